//! Group commit without timers: while one write of a lane is under way, arriving items collect, and
//! the next write takes all of them. A lone item never waits; a crowd shares.
//!
//! The write runs in a task of its own: a caller that goes away (a client that hung up) neither
//! stops it nor takes the others' answers along.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use futures::FutureExt as _;
use futures::future::BoxFuture;
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

/// A lane is in the map while a task writes for it.
type Lanes<L, T, A> = Arc<Mutex<BTreeMap<L, VecDeque<Waiting<T, A>>>>>;

/// Collects items by lane, and writes them in groups.
pub struct GroupCommit<L, T, A> {
    world: Arc<dyn World>,
    gather: Option<Gather<L>>,
    flush: Flush<L, T, A>,
    group_max: usize,
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
        Self { world, gather: None, flush, group_max, lanes: Arc::default() }
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
        let idle = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            match lanes.get_mut(&lane) {
                Some(queue) => {
                    queue.push_back(waiting);
                    false
                }
                None => {
                    lanes.insert(lane.clone(), VecDeque::from([waiting]));
                    true
                }
            }
        };
        if idle {
            let writer = LaneWriter {
                owns_lane: true,
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
    /// Whether the lane is in the map because of this writer.
    owns_lane: bool,
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

    /// The next group; `None` when nothing waits, and then the lane is idle again.
    fn next_group(&mut self) -> Option<Vec<Waiting<T, A>>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = lanes.get_mut(&self.lane)?;
        if waiting.is_empty() {
            lanes.remove(&self.lane);
            // From here on the lane is whoever's comes next.
            self.owns_lane = false;
            return None;
        }
        Some(waiting.drain(..waiting.len().min(self.group_max)).collect())
    }
}

impl<L: Ord, T, A> Drop for LaneWriter<L, T, A> {
    /// After a panic the lane must not look busy for ever; whoever waits in it learns at once.
    fn drop(&mut self) {
        if self.owns_lane {
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.lane);
        }
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
            sizes.lock().unwrap().push(items.len());
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
        assert_eq!(sizes.lock().unwrap().as_slice(), [8, 4]);
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
        while sizes.lock().unwrap().is_empty() || gate.available_permits() > 0 {
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
