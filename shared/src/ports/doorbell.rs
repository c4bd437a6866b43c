//! Waking listeners at once. A lost ring costs delay, never work.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::queue::QueueName;

/// Rings, and tells who is rung.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Wakes whoever listens for that queue. Never waits, never fails.
    fn ring(&self, queue: &QueueName);

    /// The queues of a kind of work for which this process was rung since the last call; waits until
    /// there is one. However often it rang, a queue stands in it once. One listener per kind.
    async fn rung(&self, kind: &str) -> BTreeSet<QueueName>;
}
