//! The configuration of a worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use postonce_shared::config::Config;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Time for which a received message is hidden from other receivers. Renewed after half of it.
    pub visibility_timeout: Duration,
    /// Number of receipts after which an envelope is split, and a single item becomes a dead letter.
    pub dequeue_count_max: u32,
    /// Longest delay between two polls of empty queues.
    pub idle_delay_max: Duration,
    /// Smallest and largest number of receivers of a queue.
    pub receivers: Bounds,
    /// The partner for which orders of direct producers are accepted. Without it they are refused.
    pub legacy_partner: Option<PartnerId>,
    /// Request rate of that partner if it has no rate of its own; applies to each process.
    pub request_rate: RequestRate,
    /// Whether to hold the gate at the start, if it was never set.
    pub held: bool,
}

impl From<&Config> for WorkerConfig {
    fn from(config: &Config) -> Self {
        Self {
            visibility_timeout: config.visibility_timeout,
            dequeue_count_max: config.dequeue_count_max,
            idle_delay_max: config.idle_poll_max,
            receivers: Bounds { floor: config.receivers_min, ceiling: config.receivers_max },
            legacy_partner: config.legacy_partner.clone(),
            request_rate: config.http.rate(),
            held: false,
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
