//! The configuration of a worker.

use std::num::NonZeroUsize;
use std::time::Duration;

use postonce_shared::config::Config;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// How long a received message is hidden from others; renewed at half of it.
    pub visibility_timeout: Duration,
    /// Receipts after which a message is taken apart, and a single item set aside.
    pub dequeue_count_max: u32,
    /// Longest wait between two looks at empty queues.
    pub idle_delay_max: Duration,
    /// How many receivers a queue may have.
    pub receivers: Bounds,
    /// In whose name orders of direct producers are accepted; they are refused without one.
    pub legacy_partner: Option<PartnerId>,
    /// How many orders a second are accepted for it, if it has no rate of its own; in each process.
    pub request_rate: RequestRate,
    /// Whether to hold the gate first, if nobody ever touched it.
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

/// Between how many receivers a queue with work may have in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// As soon as there is work.
    pub floor: NonZeroUsize,
    /// However much there is.
    pub ceiling: NonZeroUsize,
}
