//! The configuration of a worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use postonce_shared::backoff::IDLE_POLL;
use postonce_shared::config::{AnchorTerms, Config, IngestQueue, ReceiversRule};
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::oversight::scrubber::ScrubberTerms;

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Time for which a received message is hidden from other receivers. Leases are renewed after half of it.
    pub visibility_timeout: Duration,
    /// Number of receipts after which an envelope is split and a single item is tried alone. Limited to 3 to 8, it is also the
    /// number of processes that must end during such attempts before the work becomes a dead letter.
    pub dequeue_count_max: u32,
    /// Maximum delays between two polls of empty queues.
    pub idle_delays: IdleDelays,
    /// Minimum and maximum number of receivers per queue.
    pub receivers: Bounds,
    /// The number of receivers between both.
    pub receivers_rule: ReceiversRule,
    /// The queues of direct producers.
    pub ingest: Vec<IngestQueue>,
    /// Request rate of their partners in each process, if the partner has no rate of its own.
    pub request_rate: RequestRate,
    /// Schedule and speed of the scrubber.
    pub scrubber: ScrubberTerms,
    /// Settings for the anchors that the scrubber creates.
    pub anchors: AnchorTerms,
    /// Whether to hold a gate that was never set.
    pub held: bool,
}

impl From<&Config> for WorkerConfig {
    fn from(config: &Config) -> Self {
        Self {
            visibility_timeout: config.visibility_timeout,
            dequeue_count_max: config.dequeue_count_max,
            idle_delays: IdleDelays {
                first: config.idle_poll_min,
                factor: config.idle_poll_factor,
                ..config.idle_poll_max.map_or(IdleDelays::DEFAULT, IdleDelays::fixed)
            },
            receivers: Bounds { floor: config.receivers_min, ceiling: config.receivers_max },
            receivers_rule: config.receivers_rule.clone().unwrap_or_default(),
            ingest: config.ingest.clone(),
            request_rate: config.http.rate(),
            scrubber: ScrubberTerms {
                operations_per_day: config.scrubber_operations_per_day,
                delay: config.scrubber_delay,
            },
            anchors: config.anchors.clone(),
            held: false,
        }
    }
}

/// Maximum delays between two polls of empty queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleDelays {
    /// Applies while a ring may be lost unnoticed.
    pub unproven: Duration,
    /// Applies while rings of all processes are proven to arrive. At least as long as `unproven`.
    pub proven: Duration,
    /// The first delay.
    pub first: Duration,
    /// Factor from each delay to the next.
    pub factor: u32,
}

impl IdleDelays {
    /// The default delays.
    pub const DEFAULT: Self = Self {
        unproven: Duration::from_secs(60),
        proven: Duration::from_secs(600),
        first: IDLE_POLL.first,
        factor: IDLE_POLL.factor,
    };

    /// Creates the same delay for both cases.
    pub const fn fixed(delay: Duration) -> Self {
        Self { unproven: delay, proven: delay, ..Self::DEFAULT }
    }

    /// Disables polls, for queues that another task rings again in case a ring was lost.
    pub const NEVER: Self = Self::fixed(Duration::MAX);

    /// Returns whether polls are disabled.
    pub fn is_never(self) -> bool {
        self.unproven == Duration::MAX
    }

    /// Returns whether both cases have the same delay.
    pub fn is_fixed(self) -> bool {
        self.proven <= self.unproven
    }
}

/// Minimum and maximum number of receivers of one queue in one process while the queue has work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Number of receivers for any amount of work.
    pub floor: NonZeroUsize,
    /// Maximum number of receivers.
    pub ceiling: NonZeroUsize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use postonce_shared::config::{Environment, add_settings};

    #[test]
    fn polls_are_rarer_only_by_default() {
        let check = |arguments: &[&str], expected: IdleDelays| {
            let arguments = std::iter::once("test").chain(arguments.iter().copied());
            let command = add_settings(Command::new("test"));
            let matches = command.try_get_matches_from(arguments).unwrap();
            let config = Config::read(&matches, &Environment::default()).unwrap();
            assert_eq!(WorkerConfig::from(&config).idle_delays, expected);
        };
        let minute = Duration::from_secs(60);
        check(&[], IdleDelays { unproven: minute, proven: minute * 10, ..IdleDelays::DEFAULT });
        let slower = IdleDelays { first: Duration::from_secs(1), factor: 3, ..IdleDelays::DEFAULT };
        check(&["--idle-poll-min-ms", "1000", "--idle-poll-factor", "3"], slower);
        check(&["--idle-poll-max-ms", "60000"], IdleDelays::fixed(minute));
    }
}
