//! The queues that this process knows to exist, so that it notices when one of them is deleted.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::attempt::Failure;
use crate::ports::queue::QueueName;

/// The error code for a queue that does not exist.
pub(super) const QUEUE_NOT_FOUND: &str = "QueueNotFound";

/// The queues that answered, and those that were deleted since.
#[derive(Debug, Default)]
pub(super) struct KnownQueues {
    queues: Mutex<Queues>,
    deleted: Notify,
}

#[derive(Debug, Default)]
struct Queues {
    existing: BTreeSet<QueueName>,
    deleted: BTreeSet<QueueName>,
}

impl KnownQueues {
    /// Records the answer to a request to a queue.
    pub(super) fn note<T>(&self, queue: &QueueName, answer: &Result<T, Failure>) {
        let mut queues = self.queues.lock();
        match answer {
            Ok(_) => {
                if !queues.existing.contains(queue) {
                    queues.existing.insert(queue.clone());
                }
            }
            Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => {
                if queues.existing.remove(queue) {
                    queues.deleted.insert(queue.clone());
                    self.deleted.notify_one();
                }
            }
            Err(_) => {}
        }
    }

    /// Returns the queues that were deleted since the last call; waits until there are some.
    pub(super) async fn deleted(&self) -> BTreeSet<QueueName> {
        loop {
            let deleted = std::mem::take(&mut self.queues.lock().deleted);
            if !deleted.is_empty() {
                return deleted;
            }
            self.deleted.notified().await;
        }
    }
}
