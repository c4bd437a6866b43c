//! Shared reads of the store with a limit on their storage operations per minute.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use postonce_shared::oversight::scaling::SharedFault;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::operations::metered;
use postonce_shared::ports::world::World;

use super::flight::{Flight, start};

/// Minimum pause between two reads, even if they cost nothing.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const MINUTE_MS: u64 = 60_000;

/// Function that reads the store.
pub type Read<T> = Arc<dyn Fn() -> BoxFuture<'static, Result<T, StoreFault>> + Send + Sync>;

/// A read of the store whose result callers share.
///
/// At most one read is in progress. Callers wait for it together, and it continues even if the first of them is
/// cancelled. Its result or fault is returned until the next read is due. The pause between reads depends on the
/// storage operations of the last one and on the number of processes that read. In any minute, all processes together
/// cause at most `per_minute` operations. If one read of each process costs more than that, the limit holds for the
/// average of several minutes.
pub struct CachedReading<T> {
    doing: &'static str,
    per_minute: u64,
    read: Read<T>,
    world: Arc<dyn World>,
    latest: Mutex<Option<Flight<Done<T>>>>,
}

/// Result of a completed read.
struct Done<T> {
    answer: Result<Arc<T>, SharedFault>,
    operations: u64,
    /// Uptime at the end of the read.
    ended_at: Duration,
}

impl<T> Clone for Done<T> {
    fn clone(&self) -> Self {
        Self { answer: self.answer.clone(), ..*self }
    }
}

impl<T: Send + Sync + 'static> CachedReading<T> {
    /// Creates a read of at most `per_minute` storage operations a minute, at least 1. `doing` describes it in a
    /// fault. If `read` starts tasks, they must be metered with it.
    pub fn new(doing: &'static str, per_minute: u64, world: &Arc<dyn World>, read: Read<T>) -> Self {
        Self { doing, per_minute, read, world: Arc::clone(world), latest: Mutex::new(None) }
    }

    /// Returns the last result, or that of a new read if one is due. `processes` is the number of processes that read.
    ///
    /// # Errors
    /// [`SharedFault`] of the last read.
    pub async fn get(&self, processes: u64) -> Result<Arc<T>, SharedFault> {
        let reading = {
            let mut latest = self.latest.lock();
            match latest.as_ref().filter(|reading| !self.is_due(reading, processes)) {
                Some(reading) => reading.clone(),
                None => latest.insert(self.begin()).clone(),
            }
        };
        reading.await.answer
    }

    /// Returns whether the next read may start. It may not while this one is in progress.
    fn is_due(&self, reading: &Flight<Done<T>>, processes: u64) -> bool {
        reading.clone().now_or_never().is_some_and(|Done { operations, ended_at, .. }| {
            let passed = self.world.uptime().saturating_sub(ended_at);
            passed >= pause(operations, processes, self.per_minute)
        })
    }

    fn begin(&self) -> Flight<Done<T>> {
        let (read, clock) = (Arc::clone(&self.read), Arc::clone(&self.world));
        let reading = async move {
            let (answer, counts) = metered(read()).await;
            let operations = counts.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(count));
            Done { answer: answer.map(Arc::new).map_err(Arc::new), operations, ended_at: clock.uptime() }
        };
        let (doing, clock) = (self.doing, Arc::clone(&self.world));
        let ended = move || {
            let fault = StoreFault::Unavailable { doing, source: "its task ended".into() };
            Done { answer: Err(Arc::new(fault)), operations: 0, ended_at: clock.uptime() }
        };
        start(&*self.world, reading, ended)
    }
}

/// Returns the pause between two reads of one process. `processes` processes share `per_minute` operations.
fn pause(operations: u64, processes: u64, per_minute: u64) -> Duration {
    let of_all = operations.saturating_mul(processes.max(1));
    let pause_ms = match per_minute.checked_div(of_all) {
        // The read costs nothing.
        None => 0,
        Some(0) => of_all.saturating_mul(MINUTE_MS).div_ceil(per_minute.max(1)),
        // The number of reads that a minute allows. A process starts no more of them in any minute.
        Some(readings) => MINUTE_MS.div_ceil(readings),
    };
    Duration::from_millis(pause_ms).max(PAUSE_MIN)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::{Either, join_all, select};
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::operations::{Operation, PriceKind, Service, StorageOperations};

    use super::*;

    const READ: Operation = Operation { service: Service::Table, name: "get", price: PriceKind::Table };
    const PER_MINUTE: u64 = 30;

    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Creates a process whose read costs some operations and takes some time. It returns the number of the read.
    fn process(
        world: &Arc<TestWorld>,
        store: &Arc<StorageOperations>,
        (operations, takes, fails): (u64, Duration, bool),
    ) -> Arc<CachedReading<u64>> {
        let (store, clock, readings) = (Arc::clone(store), Arc::clone(world), Arc::new(AtomicU64::new(0)));
        let read: Read<u64> = Arc::new(move || {
            let (store, clock, readings) = (Arc::clone(&store), Arc::clone(&clock), Arc::clone(&readings));
            async move {
                (0..operations).for_each(|_| store.count(READ));
                if !takes.is_zero() {
                    clock.sleep(takes).await;
                }
                let number = readings.fetch_add(1, Ordering::Relaxed);
                let fault = || StoreFault::Unavailable { doing: "reading", source: "an outage".into() };
                if fails { Err(fault()) } else { Ok(number) }
            }
            .boxed()
        });
        let as_world: Arc<dyn World> = Arc::<TestWorld>::clone(world);
        Arc::new(CachedReading::new("reading", PER_MINUTE, &as_world, read))
    }

    fn count(store: &StorageOperations) -> u64 {
        store.snapshot().values().sum()
    }

    /// Calls several processes repeatedly for five minutes. Returns the largest number of operations in any minute.
    async fn largest_in_a_minute(processes: u64, operations: u64, fails: bool) -> u64 {
        let (world, store) = (Arc::new(TestWorld::new(1)), Arc::<StorageOperations>::default());
        let start = || process(&world, &store, (operations, Duration::ZERO, fails));
        let banks: Vec<_> = (0..processes).map(|_| start()).collect();
        let mut totals = vec![0];
        for _ in 0..600 {
            let calls = banks.iter().flat_map(|bank| (0..10).map(|_| bank.get(processes)));
            assert!(join_all(calls).await.iter().all(|answer| answer.is_err() == fails));
            totals.push(count(&store));
            world.advance(Duration::from_millis(500));
            settle().await;
        }
        // A minute has 120 steps of half a second.
        totals.windows(121).map(|minute| minute[120].saturating_sub(minute[0])).max().unwrap()
    }

    #[tokio::test]
    async fn all_callers_of_all_processes_stay_within_the_limit_in_any_minute() {
        for (processes, operations, expected) in
            [(1, 1, 30), (1, 4, 28), (1, 8, 24), (1, 13, 26), (1, 30, 30), (2, 4, 24), (3, 7, 21), (5, 6, 30)]
        {
            let largest = largest_in_a_minute(processes, operations, false).await;
            assert_eq!(largest, expected, "{processes} processes, {operations} operations");
            assert_eq!(largest_in_a_minute(processes, operations, true).await, expected, "during an outage");
        }
        // One read costs more than a minute allows.
        assert_eq!(pause(45, 1, 30), Duration::from_secs(90));
        assert_eq!(pause(16, 4, 30), Duration::from_secs(128));
        assert_eq!((pause(0, 9, 30), pause(1, 0, 30)), (PAUSE_MIN, Duration::from_secs(2)));
    }

    #[tokio::test]
    async fn a_reading_is_shared_also_if_its_first_caller_is_cancelled() {
        let (world, store) = (Arc::new(TestWorld::new(1)), Arc::<StorageOperations>::default());
        let bank = process(&world, &store, (6, Duration::from_secs(40), false));
        let is_cancelled = matches!(select(pin!(bank.get(1)), pin!(settle())).await, Either::Right(_));
        assert!(is_cancelled, "the reading ended at once");
        world.advance(Duration::from_secs(39));
        let others = join_all((0..20).map(|_| bank.get(1)));
        let ended = async {
            settle().await;
            world.advance(Duration::from_secs(1));
        };
        let (answers, ()) = futures::join!(others, ended);
        assert!(answers.iter().all(|answer| **answer.as_ref().unwrap() == 0));
        assert_eq!(count(&store), 6);
        // The pause of 12 seconds starts at the end of the read.
        world.advance(Duration::from_millis(11_999));
        assert_eq!((*bank.get(1).await.unwrap(), count(&store)), (0, 6));
        world.advance(Duration::from_millis(1));
        let (answer, ()) = futures::join!(bank.get(1), async {
            settle().await;
            world.advance(Duration::from_secs(40));
        });
        assert_eq!((*answer.unwrap(), count(&store)), (1, 12));
    }
}
