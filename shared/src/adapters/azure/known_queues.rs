//! Tracks which queues exist, so that this process notices when a queue is deleted.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::attempt::RequestFault;
use crate::ports::queue::QueueName;

/// The error code for a queue that does not exist.
pub(super) const QUEUE_NOT_FOUND: &str = "QueueNotFound";

/// The queues that are known to exist, and those that were deleted since then.
#[derive(Debug, Default)]
pub(super) struct KnownQueues {
    queues: Mutex<Queues>,
    deleted: Notify,
}

#[derive(Debug, Default)]
struct Queues {
    /// The existing queues, each with the value of `found` when it was discovered.
    existing: BTreeMap<QueueName, u64>,
    found: u64,
    deleted: BTreeSet<QueueName>,
}

/// The state of a queue when a request to it began: when it was discovered, if it was known to exist.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked(Option<u64>);

impl KnownQueues {
    /// Must be called before each request whose answer is passed to [`Self::note`].
    pub(super) fn ask(&self, queue: &QueueName) -> Asked {
        Asked(self.queues.lock().existing.get(queue).copied())
    }

    /// Records the answer to a request. `QueueNotFound` shows a deletion only if the queue was known to exist when the
    /// request began and was not created again since. Otherwise the answer may be older than the queue. The deletion of an
    /// ingest queue is not recorded: no accepted transaction needs its messages.
    pub(super) fn note<T>(&self, queue: &QueueName, Asked(found): Asked, answer: &Result<T, RequestFault>) {
        if queue.ingest().is_some() {
            return;
        }
        let mut queues = self.queues.lock();
        match answer {
            Ok(_) => {
                if !queues.existing.contains_key(queue) {
                    queues.found = queues.found.wrapping_add(1);
                    let found = queues.found;
                    queues.existing.insert(queue.clone(), found);
                }
            }
            Err(failure) if failure.has_code(QUEUE_NOT_FOUND) => {
                if found.is_some() && queues.existing.get(queue).copied() == found {
                    queues.existing.remove(queue);
                    queues.deleted.insert(queue.clone());
                    self.deleted.notify_one();
                }
            }
            Err(_) => {}
        }
    }

    /// Returns the queues that were deleted since the last call. Waits until there is at least one.
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const CREATED: Result<(), RequestFault> = Ok(());

    fn not_found() -> Result<(), RequestFault> {
        Err(RequestFault::of_status(404, Some(QUEUE_NOT_FOUND.to_owned())))
    }

    #[test]
    fn a_request_that_began_before_the_queue_was_created_does_not_show_that_it_was_deleted() {
        let (known, queue) = (KnownQueues::default(), QueueName::of_partition("work", 0));
        let (read, create) = (known.ask(&queue), known.ask(&queue));
        known.note(&queue, create, &CREATED);
        known.note(&queue, read, &not_found());
        assert_eq!(known.deleted().now_or_never(), None);

        let later = known.ask(&queue);
        known.note(&queue, later, &not_found());
        assert_eq!(known.deleted().now_or_never(), Some(BTreeSet::from([queue.clone()])));

        // Two requests find the queue deleted. One of the answers arrives after the queue was created again.
        known.note(&queue, known.ask(&queue), &CREATED);
        let (first, late) = (known.ask(&queue), known.ask(&queue));
        known.note(&queue, first, &not_found());
        known.note(&queue, known.ask(&queue), &CREATED);
        known.note(&queue, late, &not_found());
        assert_eq!(known.deleted().now_or_never(), Some(BTreeSet::from([queue])));
        assert_eq!(known.deleted().now_or_never(), None);
    }
}
