//! Wakes listeners immediately. A lost ring delays work, but never loses it.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::queue::QueueName;

/// Sends rings to listeners, and receives rings for this process.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Wakes the listeners of the queue; for an ingest queue, that of one other process at most. Never waits and never fails.
    fn ring(&self, queue: &QueueName);

    /// Returns the queues of a kind of work for which this process received rings since the last call. Waits for the first
    /// ring. Each queue is returned once, even after several rings. At most one listener per kind may call this.
    async fn rung(&self, kind: &str) -> BTreeSet<QueueName>;

    /// Returns the uptime until which rings of all processes are proven to reach this process. While that is proven, a
    /// lost ring is repeated within a minute. `None` if it is not proven: rings may be lost unnoticed.
    fn proven_until(&self) -> Option<Duration> {
        None
    }

    /// Returns the number of other processes that are known to listen.
    fn other_listeners(&self) -> u32 {
        0
    }
}
