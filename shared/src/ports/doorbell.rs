//! Wakes listeners at once. A lost ring costs delay, never work.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::queue::QueueName;

/// Sends rings to listeners, and receives rings for this process.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Wakes the listeners of the queue. Never waits, never fails.
    fn ring(&self, queue: &QueueName);

    /// Returns the queues of a kind of work for which this process was rung since the last call; waits until there
    /// is one. Each queue is contained once, however often it was rung. One listener per kind.
    async fn rung(&self, kind: &str) -> BTreeSet<QueueName>;
}
