//! The access rights of a process to its store.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::queue::QueueName;

/// How a process uses queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueUse {
    /// Sends messages, and reads the size of queues.
    Send,
    /// Also receives messages, renews their leases, deletes them, and creates queues.
    Process,
}

/// Reports missing access rights.
#[async_trait]
pub trait StoreRights: Send + Sync {
    /// Returns, in words for operators, what would grant each right that a process with this use of queues lacks; empty if
    /// it lacks none. `queue` stands for all queues. Changes nothing in the store.
    async fn lacking(&self, queue: &QueueName, queue_use: QueueUse) -> Result<Vec<String>, StoreFault>;
}

/// A store without access control: a process that can open it has all rights.
#[derive(Debug, Clone, Copy)]
pub struct AllRights;

#[async_trait]
impl StoreRights for AllRights {
    async fn lacking(&self, _queue: &QueueName, _queue_use: QueueUse) -> Result<Vec<String>, StoreFault> {
        Ok(Vec::new())
    }
}
