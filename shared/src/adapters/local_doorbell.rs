//! The doorbell within one process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::ports::doorbell::Doorbell;
use crate::ports::queue::QueueName;

/// Wakes the listeners of this process.
#[derive(Debug, Default)]
pub struct LocalDoorbell(Mutex<BTreeMap<String, PendingRings>>);

/// Rings for one kind of work that no listener has received yet.
#[derive(Debug, Default)]
struct PendingRings {
    queues: BTreeSet<QueueName>,
    rung: Arc<Notify>,
}

impl LocalDoorbell {
    fn pending<T>(&self, kind: &str, action: impl FnOnce(&mut PendingRings) -> T) -> T {
        let mut kinds = self.0.lock();
        action(kinds.entry(kind.to_owned()).or_default())
    }
}

#[async_trait]
impl Doorbell for LocalDoorbell {
    fn ring(&self, queue: &QueueName) {
        self.pending(queue.kind(), |pending| {
            pending.queues.insert(queue.clone());
            // `Notify` stores at most one wake-up until a listener waits, so this ring is not lost.
            pending.rung.notify_one();
        });
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        loop {
            let (queues, bell) = self
                .pending(kind, |pending| (std::mem::take(&mut pending.queues), Arc::clone(&pending.rung)));
            if !queues.is_empty() {
                return queues;
            }
            bell.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn each_queue_is_kept_once_until_a_listener_receives_it() {
        let bell = LocalDoorbell::default();
        let work = |partition| QueueName::of_partition("work", partition);
        bell.ring(&work(1));
        bell.ring(&work(0));
        bell.ring(&work(1));
        bell.ring(&QueueName::of_partition("mail", 0));
        assert_eq!(bell.rung("work").await, BTreeSet::from([work(0), work(1)]));
        assert!(bell.rung("work").now_or_never().is_none(), "all rings were received");

        let (received, ()) = futures::join!(bell.rung("work"), async { bell.ring(&work(2)) });
        assert_eq!(received, BTreeSet::from([work(2)]));
    }
}
