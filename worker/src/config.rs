//! The configuration of a worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use postonce_shared::config::{AnchorTerms, Config};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::oversight::scrubber::ScrubberTerms;

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Time for which a received message is hidden from other receivers. Renewed after half of it.
    pub visibility_timeout: Duration,
    /// Number of receipts after which an envelope is split, and work is tried alone; and number of processes, from 3 to
    /// 8, that must end during such attempts until the work becomes a dead letter.
    pub dequeue_count_max: u32,
    /// Longest delays between two polls of empty queues.
    pub idle_delays: IdleDelays,
    /// Smallest and largest number of receivers of a queue.
    pub receivers: Bounds,
    /// The partner for which orders of direct producers are accepted. Without it they are refused.
    pub legacy_partner: Option<PartnerId>,
    /// Request rate of that partner if it has no rate of its own; applies to each process.
    pub request_rate: RequestRate,
    /// When and how fast it scrubs.
    pub scrubber: ScrubberTerms,
    /// How the scrubber makes anchors.
    pub anchors: AnchorTerms,
    /// Whether to hold the gate at the start, if it was never set.
    pub held: bool,
}

impl From<&Config> for WorkerConfig {
    fn from(config: &Config) -> Self {
        Self {
            visibility_timeout: config.visibility_timeout,
            dequeue_count_max: config.dequeue_count_max,
            idle_delays: IdleDelays::of(config),
            receivers: Bounds { floor: config.receivers_min, ceiling: config.receivers_max },
            legacy_partner: config.legacy_partner.clone(),
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

/// Longest delays between two polls of empty queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleDelays {
    /// While a ring may be lost unnoticed.
    pub unproven: Duration,
    /// While it is proven that rings of all processes arrive. Not shorter.
    pub proven: Duration,
    /// Whether each poll reads every queue, instead of one in turn.
    pub every_queue: bool,
}

impl IdleDelays {
    /// The delays by default.
    pub const DEFAULT: Self =
        Self { unproven: Duration::from_secs(60), proven: Duration::from_secs(600), every_queue: false };

    /// The delays for producers that write directly to the queues, and do not ring.
    pub const DIRECT_PRODUCERS: Self = Self { every_queue: true, ..Self::fixed(Duration::from_secs(5)) };

    /// Returns one delay for both cases.
    pub const fn fixed(delay: Duration) -> Self {
        Self { unproven: delay, proven: delay, every_queue: false }
    }

    /// No polls: for queues that another task wakes in case a ring was lost.
    pub const NEVER: Self = Self::fixed(Duration::MAX);

    /// Returns whether there are no polls.
    pub fn is_never(self) -> bool {
        self.unproven == Duration::MAX
    }

    /// Returns whether there is one delay for both cases.
    pub fn is_fixed(self) -> bool {
        self.proven <= self.unproven
    }

    fn of(config: &Config) -> Self {
        let every_queue = config.legacy_partner.is_some();
        match config.idle_poll_max {
            Some(delay) => Self { every_queue, ..Self::fixed(delay) },
            None if every_queue => Self::DIRECT_PRODUCERS,
            None => Self::DEFAULT,
        }
    }
}

/// Smallest and largest number of receivers of one queue in one process, while the queue has work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Number of receivers when there is any work.
    pub floor: NonZeroUsize,
    /// Number of receivers at most.
    pub ceiling: NonZeroUsize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use postonce_shared::config::{Environment, add_settings};

    #[test]
    fn polls_are_rarer_only_by_default_and_if_all_producers_ring() {
        let check = |arguments: &[&str], expected: IdleDelays| {
            let arguments = std::iter::once("test").chain(arguments.iter().copied());
            let command = add_settings(Command::new("test"));
            let matches = command.try_get_matches_from(arguments).unwrap();
            let config = Config::read(&matches, &Environment::default()).unwrap();
            assert_eq!(WorkerConfig::from(&config).idle_delays, expected);
        };
        let minute = Duration::from_secs(60);
        check(&[], IdleDelays { unproven: minute, proven: minute * 10, every_queue: false });
        check(&["--legacy-partner", "shop"], IdleDelays::DIRECT_PRODUCERS);
        check(&["--idle-poll-max-ms", "60000"], IdleDelays::fixed(minute));
        let ten_minutes = IdleDelays { every_queue: true, ..IdleDelays::fixed(minute * 10) };
        check(&["--idle-poll-max-ms", "600000", "--legacy-partner", "shop"], ten_minutes);
    }
}
