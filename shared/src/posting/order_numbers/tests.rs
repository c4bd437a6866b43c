#![expect(clippy::arithmetic_side_effects, clippy::disallowed_methods, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::join_all;

use super::*;
use crate::backoff::ORDER_NUMBERS_WRITE;
use crate::testing::prelude::*;

/// The failure to inject into a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    None,
    /// The write never reaches the store.
    Lost,
    /// The write takes effect, but its answer is lost.
    AnswerLost,
    /// The write takes effect after the next read, and the caller gets an error at once; until then
    /// readers see the old state.
    Late,
}

/// A sync store with injected failures.
struct FaultySyncStore {
    inner: Arc<dyn SyncStore>,
    failure: Box<dyn Fn(u64) -> Failure + Send + Sync>,
    late: Mutex<Vec<(Option<Revision>, String)>>,
    swaps: AtomicU64,
}

impl FaultySyncStore {
    fn new(inner: Arc<dyn SyncStore>, failure: impl Fn(u64) -> Failure + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { inner, failure: Box::new(failure), late: Mutex::default(), swaps: AtomicU64::new(0) })
    }
}

fn timeout() -> StoreFault {
    StoreFault::Unavailable { doing: "writing a value", source: "timeout".into() }
}

#[async_trait]
impl SyncStore for FaultySyncStore {
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let read = self.inner.get(name).await;
        // Delayed writes take effect right after a read, the worst time for the next writer.
        let late: Vec<_> = std::mem::take(&mut *self.late.lock());
        for (expected, value) in late {
            drop(self.inner.swap(name, expected.as_ref(), &value).await);
        }
        read
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        match (self.failure)(self.swaps.fetch_add(1, Ordering::Relaxed)) {
            Failure::None => self.inner.swap(name, expected, value).await,
            Failure::Lost => Err(timeout()),
            Failure::AnswerLost => {
                drop(self.inner.swap(name, expected, value).await);
                Err(timeout())
            }
            Failure::Late => {
                self.late.lock().push((expected.cloned(), value.to_owned()));
                Err(timeout())
            }
        }
    }
}

fn empty_ledger() -> Arc<dyn Archive> {
    MemoryStore::new(world()).archive
}

fn world() -> Arc<dyn World> {
    Arc::new(SystemWorld::new())
}

fn memory() -> Arc<dyn SyncStore> {
    MemoryStore::new(world()).sync
}

/// Reads the register as another process.
async fn read(store: &Arc<dyn SyncStore>) -> Register {
    OrderNumbers::new(Arc::clone(store), empty_ledger(), world()).register().await.unwrap()
}

/// Returns pseudo-random failures, each determined by the position of its write.
fn scattered(seed: u64) -> impl Fn(u64) -> Failure {
    move |position| {
        let mixed = (position ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match (mixed >> 60) & 7 {
            0 => Failure::Lost,
            1 | 2 => Failure::AnswerLost,
            3 => Failure::Late,
            _ => Failure::None,
        }
    }
}

/// Takes numbers from several allocators concurrently, each with its own failures on one store.
async fn take_all(
    allocators: usize,
    count: usize,
    step: usize,
    failure: fn(u64) -> Failure,
) -> Vec<OrderNumber> {
    let store = memory();
    let tasks = (0..allocators).map(|_| {
        let numbers =
            OrderNumbers::new(FaultySyncStore::new(Arc::clone(&store), failure), empty_ledger(), world());
        tokio::spawn(async move {
            let mut taken = Vec::with_capacity(count);
            while taken.len() < count {
                taken.extend(numbers.take(step).await.unwrap());
            }
            taken
        })
    });
    join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect()
}

fn repeated(numbers: &[OrderNumber]) -> usize {
    let different: BTreeSet<_> = numbers.iter().collect();
    numbers.len() - different.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_allocators_take_100_000_different_numbers_each() {
    let numbers = take_all(8, 100_000, 1, |_| Failure::None).await;
    assert_eq!((numbers.len(), repeated(&numbers)), (800_000, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_and_unclear_writes_never_repeat_a_number() {
    for seed in 0..20_u64 {
        let store = memory();
        let tasks = (0..4).map(|taker| {
            let way = FaultySyncStore::new(Arc::clone(&store), scattered(seed * 4 + taker));
            let numbers = OrderNumbers::new(way, empty_ledger(), world());
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while taken.len() < 3000 {
                    // A fault is allowed; the next request tries again.
                    if let Ok(some) = numbers.take(7).await {
                        taken.extend(some);
                    }
                }
                taken
            })
        });
        let numbers: Vec<_> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(repeated(&numbers), 0, "seed {seed}");
    }
}

/// A wrong implementation: the range is used before its write is confirmed, and the write is guarded by the
/// revision at the time of the write.
async fn naive_range(sync: &dyn SyncStore, len: u64) -> Span {
    let read = sync.get(REGISTER).await.unwrap();
    let register = read.map_or_else(Register::fresh, |stored| Register::decode(&stored.value).unwrap());
    let now = Timestamp::from_unix_ms(0);
    let (after, span) = register.reserve("naive", len, &[], Report::default(), now).unwrap();
    let newest = sync.get(REGISTER).await.unwrap().map(|stored| stored.revision);
    drop(sync.swap(REGISTER, newest.as_ref(), &after.encode()).await);
    span
}

#[tokio::test]
async fn the_same_failures_make_a_naive_allocator_repeat_numbers() {
    let mut repetitions = 0;
    for seed in 0..20 {
        let sync = FaultySyncStore::new(memory(), scattered(seed));
        let mut numbers = Vec::new();
        for _ in 0..20 {
            let span = naive_range(&*sync, 10).await;
            numbers.extend((span.from..span.until).map(OrderNumber::from_counter));
        }
        repetitions += repeated(&numbers);
    }
    assert!(repetitions > 0, "these failures find nothing, so the test above proves nothing");
}

#[tokio::test]
async fn all_waiters_share_one_fetch() {
    let sync = FaultySyncStore::new(memory(), |_| Failure::None);
    let numbers = OrderNumbers::new(sync.clone(), empty_ledger(), world());
    let taken = join_all((0..40).map(|_| numbers.next())).await;
    let taken: Vec<_> = taken.into_iter().map(Result::unwrap).collect();
    assert_eq!(repeated(&taken), 0);
    assert_eq!(sync.swaps.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_next_range_is_fetched_before_the_first_is_used_up() {
    let sync = FaultySyncStore::new(memory(), |_| Failure::None);
    let numbers = OrderNumbers::new(sync.clone(), empty_ledger(), world());
    // The next range is requested at a random point in the middle half of the range.
    let _ = numbers.take(75).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while numbers.state.lock().following.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "no second range was fetched in the background");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_clean_shutdown_returns_unused_numbers() {
    let store = memory();
    let first = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
    let taken = first.take(3).await.unwrap();
    assert_eq!((read(&store).await.issued, first.register().await.unwrap().issued), (0, 3));
    first.close().await.unwrap();
    assert!(matches!(first.next().await, Err(OrderNumberFault::Closed)));
    // The returned range starts below the confirmed end: this is not an error.
    assert_eq!(first.register().await.unwrap().returned, 97);
    let second = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
    let next = second.next().await.unwrap();
    assert_eq!(next.counter(), taken[2].counter() + 1);
    let register = read(&store).await;
    assert_eq!((register.issued, register.returned, register.lost), (3, 97, 0));
}

#[tokio::test]
async fn numbers_that_no_write_contained_are_issued_again() {
    let store = memory();
    let numbers = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
    let taken = numbers.take(5).await.unwrap();
    numbers.give_back(taken[2..].to_vec());
    assert_eq!(numbers.take(4).await.unwrap()[..3], taken[2..]);
    numbers.close().await.unwrap();
    let register = read(&store).await;
    assert_eq!((register.reserved, register.issued, register.returned), (100, 6, 94));
}

#[tokio::test]
async fn ranges_have_the_configured_lengths() {
    const ISSUED: u64 = 50;
    for (min, max) in [(1, 1), (2, 5), (20, 20)] {
        let store = memory();
        let lengths = RangeLengths { min, max };
        let numbers = OrderNumbers::with_ranges(&store, &empty_ledger(), world(), lengths);
        for _ in 0..ISSUED {
            let _number = numbers.next().await.unwrap();
        }
        // The current range and the following one are not used up.
        let reserved = read(&store).await.reserved;
        assert!((ISSUED..=ISSUED + 2 * max).contains(&reserved), "{lengths:?}: {reserved}");
        assert!(min < max || reserved % min == 0, "{lengths:?}: {reserved}");
    }
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_counts_as_lost() {
    let store = memory();
    let first_answer_lost = |position| if position == 0 { Failure::AnswerLost } else { Failure::None };
    let numbers = OrderNumbers::new(
        FaultySyncStore::new(Arc::clone(&store), first_answer_lost),
        empty_ledger(),
        world(),
    );
    assert_eq!(numbers.next().await.unwrap().counter(), FIRST_COUNTER + RangeLengths::DEFAULT.min);
    numbers.close().await.unwrap();
    let register = read(&store).await;
    let Register { next, reserved, issued, returned, lost, .. } = register;
    assert_eq!((next - FIRST_COUNTER, reserved, issued, returned, lost), (101, 200, 1, 99, 100));
}

#[tokio::test]
async fn an_unavailable_store_is_reported_after_a_limited_number_of_attempts() {
    let sync = FaultySyncStore::new(memory(), |_| Failure::Lost);
    let numbers = OrderNumbers::new(sync.clone(), empty_ledger(), world());
    assert!(matches!(numbers.next().await, Err(OrderNumberFault::Unavailable(_))));
    assert_eq!(sync.swaps.load(Ordering::Relaxed), u64::from(ORDER_NUMBERS_WRITE.attempts));
}

#[tokio::test]
async fn a_damaged_or_restored_register_is_refused() {
    let store = memory();
    let numbers = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
    let _ = numbers.take(40).await.unwrap();
    let stored = store.get(REGISTER).await.unwrap().unwrap();
    // The empty register of an old backup is restored.
    let put_back = store.swap(REGISTER, Some(&stored.revision), &Register::fresh().encode()).await.unwrap();
    let Swapped::Done(revision) = put_back else { panic!("there is no other writer") };
    let fault = numbers.take(100).await.unwrap_err();
    assert!(
        matches!(&fault, OrderNumberFault::Unsound(why) if matches!(**why, RegisterError::WentBack { .. }))
    );
    let _ = store.swap(REGISTER, Some(&revision), "{}").await.unwrap();
    let fault = OrderNumbers::new(store, empty_ledger(), world()).next().await.unwrap_err();
    assert!(
        matches!(&fault, OrderNumberFault::Unsound(why) if matches!(**why, RegisterError::Unreadable(_)))
    );
}

#[test]
fn ranges_grow_and_shrink_with_the_demand() {
    let seconds = Duration::from_secs;
    let check = |len, lasted, expected| assert_eq!(RangeLengths::DEFAULT.next(len, lasted), expected);
    check(100, None, 100);
    check(100, Some(seconds(1)), 200);
    check(400, Some(seconds(10)), 400);
    check(400, Some(seconds(60)), 200);
    check(100, Some(seconds(600)), 100);
    check(100_000, Some(seconds(1)), 100_000);
}

#[test]
fn the_failure_sequence_contains_every_kind() {
    let kinds: BTreeMap<u64, Failure> = (0..64).map(|position| (position, scattered(1)(position))).collect();
    for failure in [Failure::None, Failure::Lost, Failure::AnswerLost, Failure::Late] {
        assert!(kinds.values().any(|found| *found == failure), "{failure:?} never happens");
    }
}
