//! Group commit without timers: while as many writes of a lane are under way as may be (mostly one), arriving
//! items collect, and the next write takes all of them. A lone item never waits; a crowd shares.
//!
//! The write runs in a task of its own: a caller that goes away (a client that hung up) neither
//! stops it nor takes the others' answers along.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::ThreadId;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ports::world::World;

/// Writes a group of items of one lane; one answer each, in their order.
pub type Flush<L, T, A> = Arc<dyn Fn(L, Vec<T>) -> BoxFuture<'static, Vec<A>> + Send + Sync>;

/// Waits for company, before the next group of a lane is taken.
pub type Gather<L> = Arc<dyn Fn(L) -> BoxFuture<'static, ()> + Send + Sync>;

struct Waiting<T, A> {
    item: T,
    answer: oneshot::Sender<Answers<A>>,
    /// The thread of the caller.
    home: ThreadId,
}

/// An answer, and with it those to other callers of the same thread. Waking a task of another thread takes
/// a system call, and one of the same thread does not: so one caller of each thread is woken, and passes
/// the others their answers by dropping this, however that happens.
struct Answers<A> {
    own: Option<A>,
    others: VecDeque<(oneshot::Sender<Answers<A>>, A)>,
}

impl<A> Answers<A> {
    /// Hands answers to the first caller that still waits.
    fn hand_over(mut answers: VecDeque<(oneshot::Sender<Self>, A)>) {
        while let Some((caller, own)) = answers.pop_front() {
            // Whoever asked may have gone away; the write stands all the same.
            match caller.send(Self { own: Some(own), others: answers }) {
                Ok(()) => return,
                Err(mut refused) => answers = std::mem::take(&mut refused.others),
            }
        }
    }
}

impl<A> Drop for Answers<A> {
    fn drop(&mut self) {
        for (caller, own) in self.others.drain(..) {
            drop(caller.send(Self { own: Some(own), others: VecDeque::new() }));
        }
    }
}

/// What waits in a lane, and how many tasks write for it: at least one.
struct Lane<T, A> {
    waiting: VecDeque<Waiting<T, A>>,
    writers: usize,
    /// One of them was started, and nobody has looked since: it takes what comes now.
    starting: bool,
}

/// A lane is in the map while a task writes for it.
type Lanes<L, T, A> = Arc<Mutex<BTreeMap<L, Lane<T, A>>>>;

/// Collects items by lane, and writes them in groups.
pub struct GroupCommit<L, T, A> {
    world: Arc<dyn World>,
    gather: Option<Gather<L>>,
    flush: Flush<L, T, A>,
    group_max: usize,
    writers_max: usize,
    lanes: Lanes<L, T, A>,
}

/// The task that wrote the group ended without an answer: a bug in it, or the end of the process.
/// Nothing is known about the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the group ended without an answer")]
pub struct Abandoned;

impl<L, T, A> GroupCommit<L, T, A>
where
    L: Clone + Ord + Send + 'static,
    T: Send + 'static,
    A: Send + 'static,
{
    /// Groups of at most `group_max` items, written by `flush`.
    pub fn new(world: Arc<dyn World>, group_max: usize, flush: Flush<L, T, A>) -> Self {
        Self { world, gather: None, flush, group_max, writers_max: 1, lanes: Arc::default() }
    }

    /// So many groups of a lane may be written at once: for a `flush` that shares its writes with others, so
    /// that a group that is ready finds room in the next of them while the one before is still under way.
    pub fn side_by_side(self, writers_max: NonZeroUsize) -> Self {
        Self { writers_max: writers_max.get(), ..self }
    }

    /// Waits for `gather` before each group is taken: for items that are known to be on their way.
    pub fn gathering(self, gather: Gather<L>) -> Self {
        Self { gather: Some(gather), ..self }
    }

    /// Hands in an item, and waits for its answer.
    ///
    /// # Errors
    /// [`Abandoned`] when no answer will come.
    pub async fn submit(&self, lane: L, item: T) -> Result<A, Abandoned> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { item, answer, home: std::thread::current().id() };
        let has_room = {
            let mut lanes = self.lanes.lock();
            let none = || Lane { waiting: VecDeque::new(), writers: 0, starting: false };
            let of_lane = lanes.entry(lane.clone()).or_insert_with(none);
            of_lane.waiting.push_back(waiting);
            let has_room = of_lane.writers < self.writers_max && !of_lane.starting;
            if has_room {
                of_lane.writers = of_lane.writers.saturating_add(1);
                of_lane.starting = true;
            }
            has_room
        };
        if has_room {
            let writer = LaneWriter {
                writes: true,
                lane,
                gather: self.gather.clone(),
                flush: Arc::clone(&self.flush),
                group_max: self.group_max,
                lanes: Arc::clone(&self.lanes),
            };
            self.world.spawn(writer.run().boxed());
        }
        answered.await.ok().and_then(|mut answers| answers.own.take()).ok_or(Abandoned)
    }
}

struct LaneWriter<L: Ord, T, A> {
    /// Whether the lane counts this writer.
    writes: bool,
    lane: L,
    gather: Option<Gather<L>>,
    flush: Flush<L, T, A>,
    group_max: usize,
    lanes: Lanes<L, T, A>,
}

impl<L: Clone + Ord, T, A> LaneWriter<L, T, A> {
    async fn run(mut self) {
        loop {
            if let Some(gather) = &self.gather {
                gather(self.lane.clone()).await;
            }
            let Some(group) = self.next_group() else { return };
            let (items, callers): (Vec<T>, Vec<_>) =
                group.into_iter().map(|waiting| (waiting.item, (waiting.home, waiting.answer))).unzip();
            let results = (self.flush)(self.lane.clone(), items).await;
            assert!(results.len() == callers.len(), "each item of a group has one answer");
            // A list, in the order in which threads first came: there are a few of them.
            let mut by_home: Vec<(ThreadId, VecDeque<_>)> = Vec::new();
            for ((home, caller), result) in callers.into_iter().zip(results) {
                match by_home.iter_mut().find(|(known, _)| *known == home) {
                    Some((_, answers)) => answers.push_back((caller, result)),
                    None => by_home.push((home, VecDeque::from([(caller, result)]))),
                }
            }
            by_home.into_iter().for_each(|(_, answers)| Answers::hand_over(answers));
        }
    }

    /// The next group; `None` when nothing waits, and then this writer is done.
    fn next_group(&mut self) -> Option<Vec<Waiting<T, A>>> {
        let mut lanes = self.lanes.lock();
        let of_lane = lanes.get_mut(&self.lane)?;
        of_lane.starting = false;
        let size = of_lane.waiting.len().min(self.group_max);
        if size > 0 {
            return Some(of_lane.waiting.drain(..size).collect());
        }
        self.writes = false;
        leave(&mut lanes, &self.lane);
        None
    }
}

impl<L: Ord, T, A> Drop for LaneWriter<L, T, A> {
    /// After a panic the lane must not look busy for ever; whoever waits in it for nobody else learns at once.
    fn drop(&mut self) {
        if self.writes {
            leave(&mut self.lanes.lock(), &self.lane);
        }
    }
}

/// A writer ends. The last one takes the lane along.
fn leave<L: Ord, T, A>(lanes: &mut BTreeMap<L, Lane<T, A>>, lane: &L) {
    let Some(of_lane) = lanes.get_mut(lane) else { return };
    of_lane.writers = of_lane.writers.saturating_sub(1);
    of_lane.starting = false;
    if of_lane.writers == 0 {
        lanes.remove(lane);
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "test code")]
mod tests {
    use super::*;
    use crate::adapters::system::SystemWorld;
    use tokio::sync::Semaphore;

    type Sizes = Arc<Mutex<Vec<usize>>>;

    fn doubling(gate: Arc<Semaphore>, sizes: Sizes) -> GroupCommit<&'static str, u64, u64> {
        let flush: Flush<&'static str, u64, u64> = Arc::new(move |_, items| {
            sizes.lock().push(items.len());
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                assert!(!items.contains(&13), "an unlucky group");
                items.into_iter().map(|item| item * 2).collect()
            }
            .boxed()
        });
        GroupCommit::new(Arc::new(SystemWorld::new()), 8, flush)
    }

    #[tokio::test]
    async fn what_arrives_during_a_write_shares_the_next_ones() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = doubling(Arc::clone(&gate), Arc::clone(&sizes));
        let all = futures::future::join_all((0..12).map(|item| group.submit("lane", item)));
        let open = async {
            tokio::task::yield_now().await;
            gate.add_permits(3);
        };
        let (answers, ()) = futures::join!(all, open);
        assert_eq!(answers, (0..12).map(|item| Ok(item * 2)).collect::<Vec<_>>());
        // The first write starts with what was there when its task first ran.
        assert_eq!(sizes.lock().as_slice(), [8, 4]);
    }

    #[tokio::test]
    async fn groups_side_by_side_are_as_many_as_may_be_and_take_all_that_waits() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = doubling(Arc::clone(&gate), Arc::clone(&sizes));
        let group = group.side_by_side(NonZeroUsize::new(2).unwrap());
        let mut callers = Vec::new();
        for (items, expected) in [(0..1, [1].as_slice()), (1..3, &[1, 2]), (3..6, &[1, 2])] {
            let mut more: Vec<_> = items.map(|item| Box::pin(group.submit("lane", item))).collect();
            for caller in &mut more {
                assert!(caller.now_or_never().is_none());
            }
            callers.extend(more);
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            assert_eq!(sizes.lock().as_slice(), expected);
        }
        gate.add_permits(3);
        let answers = futures::future::join_all(callers).await;
        assert_eq!(answers, (0..6).map(|item| Ok(item * 2)).collect::<Vec<_>>());
        assert_eq!(sizes.lock().as_slice(), [1, 2, 3]);
        assert!(group.lanes.lock().is_empty(), "nobody writes any more");
    }

    /// Of three callers of one thread, the one that is woken to pass the answers on goes away: before it is
    /// told, or before it looks.
    #[tokio::test]
    async fn whoever_goes_away_keeps_no_answer_from_others() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = doubling(Arc::clone(&gate), Arc::clone(&sizes));
        let mut callers: Vec<_> = (0..4).map(|item| Box::pin(group.submit("lane", item))).collect();
        for caller in &mut callers {
            assert!(caller.now_or_never().is_none());
        }
        drop(callers.remove(0));
        gate.add_permits(1);
        // The group is written, and the second caller has all answers in its hands.
        while sizes.lock().is_empty() || gate.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        drop(callers.remove(0));
        assert_eq!(futures::future::join_all(callers).await, [Ok(4), Ok(6)]);
    }

    #[tokio::test]
    async fn a_group_that_panics_is_told_and_the_lane_goes_on() {
        let (gate, sizes) = (Arc::new(Semaphore::new(9)), Sizes::default());
        let group = doubling(gate, sizes);
        assert_eq!(group.submit("lane", 13).await, Err(Abandoned));
        assert_eq!(group.submit("lane", 4).await, Ok(8));
    }
}
