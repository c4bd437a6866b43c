//! Requests on their way to the log, so that a send can wait for their work to come along: one message
//! then carries it all. Sending, receiving and deleting a message cost three operations, so company
//! is worth more than the time that it takes.
//!
//! Only what is under way already is waited for, and no longer than an insert lately took: a request
//! that is alone never waits, and one that is stuck holds up nobody for long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::select;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// Longest wait for company, however long inserts take: one account in trouble holds up its neighbors
/// for no longer.
const PATIENCE_MAX: Duration = Duration::from_millis(100);

/// The inserts whose work goes to one queue.
struct Lane {
    next: u64,
    open: BTreeSet<u64>,
    /// How long the last one took.
    took: Duration,
    /// The oldest that is open; all before it have ended.
    oldest: watch::Sender<u64>,
}

/// Knows the inserts of a process that are under way.
pub(super) struct Underway {
    world: Arc<dyn World>,
    lanes: Mutex<BTreeMap<QueueName, Lane>>,
}

/// An insert under way; dropping it ends it.
pub(super) struct Insert<'a> {
    underway: &'a Underway,
    queue: QueueName,
    number: u64,
    begun_at: Duration,
}

impl Underway {
    pub(super) fn new(world: Arc<dyn World>) -> Self {
        Self { world, lanes: Mutex::default() }
    }

    /// An insert begins whose work will go to that queue.
    pub(super) fn begin(&self, queue: QueueName) -> Insert<'_> {
        let number = self.lane(&queue, |lane| {
            let number = lane.next;
            lane.next = number.saturating_add(1);
            lane.open.insert(number);
            number
        });
        Insert { underway: self, queue, number, begun_at: self.world.uptime() }
    }

    /// Returns when every insert has ended that is under way now, or after the time that one takes.
    pub(super) async fn settled(&self, queue: &QueueName) {
        let (next, took, mut oldest) =
            self.lane(queue, |lane| (lane.next, lane.took, lane.oldest.subscribe()));
        let ended = oldest.wait_for(|oldest| *oldest >= next);
        select(std::pin::pin!(ended), self.world.sleep(took)).await;
    }

    fn lane<T>(&self, queue: &QueueName, look: impl FnOnce(&mut Lane) -> T) -> T {
        let mut lanes = self.lanes.lock();
        look(lanes.entry(queue.clone()).or_insert_with(|| Lane {
            next: 0,
            open: BTreeSet::new(),
            took: Duration::ZERO,
            oldest: watch::Sender::new(0),
        }))
    }
}

impl Drop for Insert<'_> {
    fn drop(&mut self) {
        let took = self.underway.world.uptime().saturating_sub(self.begun_at);
        self.underway.lane(&self.queue, |lane| {
            lane.open.remove(&self.number);
            lane.took = took.min(PATIENCE_MAX);
            let oldest = lane.open.first().copied().unwrap_or(lane.next);
            lane.oldest.send_replace(oldest);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::world::TestWorld;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_send_waits_for_what_is_under_way_and_for_nothing_else() {
        let world = Arc::new(TestWorld::new(1));
        let underway = Underway::new(world.clone());
        let queue = QueueName::of_partition("work", 0);
        let other = underway.begin(QueueName::of_partition("work", 1));
        assert!(underway.settled(&queue).now_or_never().is_some(), "a lone request never waits");

        let (one, two) = (underway.begin(queue.clone()), underway.begin(queue.clone()));
        world.advance(Duration::from_millis(5));
        drop(two);
        let mut settled = Box::pin(underway.settled(&queue));
        assert!((&mut settled).now_or_never().is_none());
        let late = underway.begin(queue.clone());
        drop(one);
        assert!((&mut settled).now_or_never().is_some(), "later ones are not waited for");

        // A stuck one holds up nobody for longer than an insert took.
        let mut settled = Box::pin(underway.settled(&queue));
        assert!((&mut settled).now_or_never().is_none());
        world.advance(Duration::from_millis(5));
        assert!(settled.now_or_never().is_some());
        drop((late, other));
    }
}
