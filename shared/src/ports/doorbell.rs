//! Waking a listener at once. A lost ring costs delay, never work.

use std::time::Duration;

use async_trait::async_trait;

use super::queue::QueueName;

/// Rings and listens. Rings on the same queue coalesce.
#[async_trait]
pub trait Doorbell: Send + Sync {
    /// Wakes whoever listens for that queue. Never waits, never fails.
    fn ring(&self, queue: &QueueName);

    /// Returns after `patience`, or at once when the bell rang since the last call returned.
    async fn listen(&self, queue: &QueueName, patience: Duration);
}
