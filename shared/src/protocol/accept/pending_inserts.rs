//! Tracks the inserts in progress of a process, so that a send can wait for their work and one message carries it all.
//! A message costs three operations (send, receive and delete), so fewer messages are worth the delay.
//!
//! A send waits only for inserts that are already in progress, and no longer than the latest insert took. A single
//! request therefore never waits, and a stuck insert delays others only for a short time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::select;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// Longest delay of a send, however long inserts take. It limits the effect of a slow account on others with the same queue.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The inserts whose work goes to one queue.
struct Partition {
    next: u64,
    open: BTreeSet<u64>,
    /// The duration of the latest insert, at most [`WAIT_MAX`].
    duration: Duration,
    /// The number of the oldest insert in progress; all earlier ones have ended.
    oldest: watch::Sender<u64>,
}

pub(super) struct PendingInserts {
    world: Arc<dyn World>,
    partitions: Mutex<BTreeMap<QueueName, Partition>>,
}

/// An insert in progress. Dropping the value ends it.
pub(super) struct PendingInsert<'a> {
    inserts: &'a PendingInserts,
    queue: QueueName,
    number: u64,
    started_at: Duration,
}

impl PendingInserts {
    pub(super) fn new(world: Arc<dyn World>) -> Self {
        Self { world, partitions: Mutex::default() }
    }

    /// Registers the start of an insert whose work goes to this queue.
    pub(super) fn begin(&self, queue: QueueName) -> PendingInsert<'_> {
        let number = self.partition(&queue, |partition| {
            let number = partition.next;
            partition.next = number.saturating_add(1);
            partition.open.insert(number);
            number
        });
        PendingInsert { inserts: self, queue, number, started_at: self.world.uptime() }
    }

    /// Waits until every current insert has ended, at most for the duration of the latest one.
    pub(super) async fn wait_for_current(&self, queue: &QueueName) {
        let (next, duration, mut oldest) = self
            .partition(queue, |partition| (partition.next, partition.duration, partition.oldest.subscribe()));
        let ended = oldest.wait_for(|oldest| *oldest >= next);
        select(std::pin::pin!(ended), self.world.sleep(duration)).await;
    }

    fn partition<T>(&self, queue: &QueueName, access: impl FnOnce(&mut Partition) -> T) -> T {
        let mut partitions = self.partitions.lock();
        access(partitions.entry(queue.clone()).or_insert_with(|| Partition {
            next: 0,
            open: BTreeSet::new(),
            duration: Duration::ZERO,
            oldest: watch::Sender::new(0),
        }))
    }
}

impl Drop for PendingInsert<'_> {
    fn drop(&mut self) {
        let duration = self.inserts.world.uptime().saturating_sub(self.started_at);
        self.inserts.partition(&self.queue, |partition| {
            partition.open.remove(&self.number);
            partition.duration = duration.min(WAIT_MAX);
            let oldest = partition.open.first().copied().unwrap_or(partition.next);
            partition.oldest.send_replace(oldest);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::world::TestWorld;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_send_waits_only_for_inserts_in_progress() {
        let world = Arc::new(TestWorld::new(1));
        let inserts = PendingInserts::new(world.clone());
        let queue = QueueName::of_partition("work", 0);
        let other = inserts.begin(QueueName::of_partition("work", 1));
        assert!(inserts.wait_for_current(&queue).now_or_never().is_some(), "a single request never waits");

        let (one, two) = (inserts.begin(queue.clone()), inserts.begin(queue.clone()));
        world.advance(Duration::from_millis(5));
        drop(two);
        let mut settled = Box::pin(inserts.wait_for_current(&queue));
        assert!((&mut settled).now_or_never().is_none());
        let late = inserts.begin(queue.clone());
        drop(one);
        assert!((&mut settled).now_or_never().is_some(), "a send does not wait for later inserts");

        // A stuck insert delays others no longer than an insert took.
        let mut settled = Box::pin(inserts.wait_for_current(&queue));
        assert!((&mut settled).now_or_never().is_none());
        world.advance(Duration::from_millis(5));
        assert!(settled.now_or_never().is_some());
        drop((late, other));
    }
}
