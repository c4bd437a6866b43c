//! The rights of a process at its store.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::queue::QueueName;

/// What a process does with queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueUse {
    /// It sends messages, and reads the size of queues.
    Send,
    /// It also receives messages, renews their leases, deletes them, and creates queues.
    Process,
}

/// Tells which rights a process lacks.
#[async_trait]
pub trait StoreRights: Send + Sync {
    /// Returns what grants each right that a process with this use of queues lacks, in words for operators; empty if it lacks
    /// none. `queue` stands for all queues. Changes nothing, and creates nothing.
    async fn lacking(&self, queue: &QueueName, queue_use: QueueUse) -> Result<Vec<String>, StoreFault>;
}

/// The rights at a store without access control: a process that can open it has all of them.
#[derive(Debug, Clone, Copy)]
pub struct AllRights;

#[async_trait]
impl StoreRights for AllRights {
    async fn lacking(&self, _queue: &QueueName, _queue_use: QueueUse) -> Result<Vec<String>, StoreFault> {
        Ok(Vec::new())
    }
}
