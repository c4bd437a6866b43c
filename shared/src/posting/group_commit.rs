//! Group commit without timers. While the maximum number of writes of a partition (usually one) is in progress, arriving
//! items are collected, and the next write takes all of them. A single item never waits; concurrent items share a write.
//!
//! The write runs in its own task. If a caller is cancelled (its client closed the connection), the write continues and
//! the other callers get their answers.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::ThreadId;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::ports::world::World;

/// Writes a group of items of one partition and returns one answer per item, in the same order.
pub type Flush<L, T, A> = Arc<dyn Fn(L, Vec<T>) -> BoxFuture<'static, Vec<A>> + Send + Sync>;

/// Waits for more items before the next group of a partition is taken.
pub type Linger<L> = Arc<dyn Fn(L) -> BoxFuture<'static, ()> + Send + Sync>;

struct Waiting<T, A> {
    item: T,
    answer: oneshot::Sender<Answers<A>>,
    thread: ThreadId,
}

/// An answer, together with the answers of other callers on the same thread. Waking a task of another thread takes a
/// system call; waking one of the same thread does not. Therefore only one caller per thread is woken. Dropping this
/// value passes the other answers on, even if that caller is cancelled.
struct Answers<A> {
    own: Option<A>,
    others: VecDeque<(oneshot::Sender<Answers<A>>, A)>,
}

impl<A> Answers<A> {
    /// Sends the answers to the first caller that has not been cancelled.
    fn deliver(mut answers: VecDeque<(oneshot::Sender<Self>, A)>) {
        while let Some((caller, own)) = answers.pop_front() {
            // The caller may have been cancelled; the write is complete anyway.
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

/// The waiting items of a partition, and the number of tasks that write them (at least one).
struct Partition<T, A> {
    waiting: VecDeque<Waiting<T, A>>,
    writers: usize,
    /// Whether a started writer has not taken its group yet. It will take the items that arrive now.
    starting: bool,
}

/// The partitions for which a task is writing.
type Partitions<L, T, A> = Arc<Mutex<BTreeMap<L, Partition<T, A>>>>;

/// Collects items by partition and writes them in groups.
pub struct GroupCommit<L, T, A> {
    world: Arc<dyn World>,
    linger: Option<Linger<L>>,
    flush: Flush<L, T, A>,
    group_max: usize,
    writers_max: usize,
    /// Whether the writing task runs on the thread of the caller that starts it.
    on_thread_of_caller: bool,
    partitions: Partitions<L, T, A>,
}

/// Error: the writing task ended without an answer, due to a bug or the end of the process. The item's state is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the group ended without an answer")]
pub struct Abandoned;

impl<L, T, A> GroupCommit<L, T, A>
where
    L: Clone + Ord + Send + 'static,
    T: Send + 'static,
    A: Send + 'static,
{
    /// Creates a group commit with groups of at most `group_max` items, written by `flush`.
    pub fn new(world: Arc<dyn World>, group_max: usize, flush: Flush<L, T, A>) -> Self {
        Self {
            world,
            linger: None,
            flush,
            group_max,
            writers_max: 1,
            on_thread_of_caller: false,
            partitions: Arc::default(),
        }
    }

    /// Sets the number of groups of a partition that are written concurrently. Use it for a `flush` that combines its
    /// writes, so that a group that is ready joins the next write while the previous one is in progress.
    pub fn with_concurrency(self, writers_max: NonZeroUsize) -> Self {
        Self { writers_max: writers_max.get(), ..self }
    }

    /// Writes on the thread of the caller that finds no write in progress, which answers this caller without waking
    /// another thread. If that thread ends, the write is dropped and the callers get [`Abandoned`].
    pub fn on_thread_of_caller(self) -> Self {
        Self { on_thread_of_caller: true, ..self }
    }

    /// Waits for `linger` before each group is taken, so that items that are known to arrive soon join it.
    pub fn with_linger(self, linger: Linger<L>) -> Self {
        Self { linger: Some(linger), ..self }
    }

    /// Submits an item and waits for its answer.
    ///
    /// # Errors
    /// [`Abandoned`] when no answer will come.
    pub async fn submit(&self, partition: L, item: T) -> Result<A, Abandoned> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { item, answer, thread: std::thread::current().id() };
        let has_room = {
            let mut partitions = self.partitions.lock();
            let none = || Partition { waiting: VecDeque::new(), writers: 0, starting: false };
            let of_partition = partitions.entry(partition.clone()).or_insert_with(none);
            of_partition.waiting.push_back(waiting);
            let has_room = of_partition.writers < self.writers_max && !of_partition.starting;
            if has_room {
                of_partition.writers = of_partition.writers.saturating_add(1);
                of_partition.starting = true;
            }
            has_room
        };
        if has_room {
            let writer = PartitionWriter {
                writes: true,
                partition,
                linger: self.linger.clone(),
                flush: Arc::clone(&self.flush),
                group_max: self.group_max,
                partitions: Arc::clone(&self.partitions),
            };
            let task = writer.run().boxed();
            if self.on_thread_of_caller {
                self.world.spawn_on_this_thread(task);
            } else {
                self.world.spawn(task);
            }
        }
        answered.await.ok().and_then(|mut answers| answers.own.take()).ok_or(Abandoned)
    }
}

struct PartitionWriter<L: Ord, T, A> {
    /// Whether the partition still counts this writer.
    writes: bool,
    partition: L,
    linger: Option<Linger<L>>,
    flush: Flush<L, T, A>,
    group_max: usize,
    partitions: Partitions<L, T, A>,
}

impl<L: Clone + Ord, T, A> PartitionWriter<L, T, A> {
    async fn run(mut self) {
        loop {
            if let Some(linger) = &self.linger {
                linger(self.partition.clone()).await;
            }
            let Some(group) = self.next_group() else { return };
            let (items, callers): (Vec<T>, Vec<_>) =
                group.into_iter().map(|waiting| (waiting.item, (waiting.thread, waiting.answer))).unzip();
            let results = (self.flush)(self.partition.clone(), items).await;
            assert!(results.len() == callers.len(), "each item of a group has one answer");
            // A list in the order of first occurrence is enough for a few threads.
            let mut by_thread: Vec<(ThreadId, VecDeque<_>)> = Vec::new();
            for ((thread, caller), result) in callers.into_iter().zip(results) {
                match by_thread.iter_mut().find(|(known, _)| *known == thread) {
                    Some((_, answers)) => answers.push_back((caller, result)),
                    None => by_thread.push((thread, VecDeque::from([(caller, result)]))),
                }
            }
            by_thread.into_iter().for_each(|(_, answers)| Answers::deliver(answers));
        }
    }

    /// Returns the next group. If nothing waits, ends this writer and returns `None`.
    fn next_group(&mut self) -> Option<Vec<Waiting<T, A>>> {
        let mut partitions = self.partitions.lock();
        let of_partition = partitions.get_mut(&self.partition)?;
        of_partition.starting = false;
        let size = of_partition.waiting.len().min(self.group_max);
        if size > 0 {
            return Some(of_partition.waiting.drain(..size).collect());
        }
        self.writes = false;
        remove_writer(&mut partitions, &self.partition);
        None
    }
}

impl<L: Ord, T, A> Drop for PartitionWriter<L, T, A> {
    /// After a panic, frees the partition. Callers that no other writer serves then fail at once.
    fn drop(&mut self) {
        if self.writes {
            remove_writer(&mut self.partitions.lock(), &self.partition);
        }
    }
}

/// Removes a writer from its partition. The last one removes the partition.
fn remove_writer<L: Ord, T, A>(partitions: &mut BTreeMap<L, Partition<T, A>>, partition: &L) {
    let Some(of_partition) = partitions.get_mut(partition) else { return };
    of_partition.writers = of_partition.writers.saturating_sub(1);
    of_partition.starting = false;
    if of_partition.writers == 0 {
        partitions.remove(partition);
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
    async fn items_that_arrive_during_a_write_share_the_next_one() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = doubling(Arc::clone(&gate), Arc::clone(&sizes));
        let all = futures::future::join_all((0..12).map(|item| group.submit("partition", item)));
        let open = async {
            tokio::task::yield_now().await;
            gate.add_permits(3);
        };
        let (answers, ()) = futures::join!(all, open);
        assert_eq!(answers, (0..12).map(|item| Ok(item * 2)).collect::<Vec<_>>());
        // The first write starts with the items that were there when its task first ran.
        assert_eq!(sizes.lock().as_slice(), [8, 4]);
    }

    #[tokio::test]
    async fn concurrent_groups_are_limited_and_take_all_waiting_items() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = doubling(Arc::clone(&gate), Arc::clone(&sizes));
        let group = group.with_concurrency(NonZeroUsize::new(2).unwrap());
        let mut callers = Vec::new();
        for (items, expected) in [(0..1, [1].as_slice()), (1..3, &[1, 2]), (3..6, &[1, 2])] {
            let mut more: Vec<_> = items.map(|item| Box::pin(group.submit("partition", item))).collect();
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
        assert!(group.partitions.lock().is_empty(), "no writer is left");
    }

    /// Of several callers on one thread, the one that is woken to pass the answers on is cancelled, before or after
    /// it received them.
    #[tokio::test]
    async fn a_cancelled_caller_does_not_withhold_the_answers_of_others() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = doubling(Arc::clone(&gate), Arc::clone(&sizes));
        let mut callers: Vec<_> = (0..4).map(|item| Box::pin(group.submit("partition", item))).collect();
        for caller in &mut callers {
            assert!(caller.now_or_never().is_none());
        }
        drop(callers.remove(0));
        gate.add_permits(1);
        // The group is written, and the second caller has received all answers.
        while sizes.lock().is_empty() || gate.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        drop(callers.remove(0));
        assert_eq!(futures::future::join_all(callers).await, [Ok(4), Ok(6)]);
    }

    #[tokio::test]
    async fn a_write_ends_with_the_thread_of_its_caller_and_the_partition_continues() {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Sizes::default());
        let group = Arc::new(doubling(Arc::clone(&gate), Arc::clone(&sizes)).on_thread_of_caller());
        let of_thread = Arc::clone(&group);
        let first = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut submitted = Box::pin(of_thread.submit("partition", 1));
                while sizes.lock().is_empty() {
                    assert!((&mut submitted).now_or_never().is_none(), "nothing lets the write end");
                    tokio::task::yield_now().await;
                }
            });
        });
        tokio::task::spawn_blocking(|| first.join().unwrap()).await.unwrap();
        gate.add_permits(1);
        assert_eq!(group.submit("partition", 2).await, Ok(4));
    }

    #[tokio::test]
    async fn a_group_that_panics_is_reported_and_the_partition_continues() {
        let (gate, sizes) = (Arc::new(Semaphore::new(9)), Sizes::default());
        let group = doubling(gate, sizes);
        assert_eq!(group.submit("partition", 13).await, Err(Abandoned));
        assert_eq!(group.submit("partition", 4).await, Ok(8));
    }
}
