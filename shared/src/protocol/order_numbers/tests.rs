#![expect(clippy::arithmetic_side_effects, clippy::disallowed_methods, reason = "test code")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::future::join_all;

use super::*;
use crate::backoff::ORDER_NUMBERS_WRITE;
use crate::testing::prelude::*;

/// A failure of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    None,
    /// The write never reaches the store.
    Lost,
    /// The write takes effect, but its answer is lost.
    AnswerLost,
}

/// A sync store with injected failures.
struct FaultySyncStore {
    inner: Arc<dyn SyncStore>,
    failure: Box<dyn Fn(u64) -> Failure + Send + Sync>,
    swaps: AtomicU64,
}

impl FaultySyncStore {
    fn new(inner: Arc<dyn SyncStore>, failure: impl Fn(u64) -> Failure + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { inner, failure: Box::new(failure), swaps: AtomicU64::new(0) })
    }
}

fn timeout() -> StoreFault {
    StoreFault::Unavailable { doing: "writing a value", source: "timeout".into() }
}

#[async_trait]
impl SyncStore for FaultySyncStore {
    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        self.inner.get(name).await
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

fn repeated(numbers: &[OrderNumber]) -> usize {
    let different: BTreeSet<_> = numbers.iter().collect();
    numbers.len() - different.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_allocators_take_100_000_different_numbers_each() {
    let store = memory();
    let tasks = (0..8).map(|_| {
        let numbers = OrderNumbers::new(Arc::clone(&store), empty_ledger(), world());
        tokio::spawn(async move {
            let mut taken = Vec::with_capacity(100_000);
            while taken.len() < 100_000 {
                taken.push(numbers.next().await.unwrap());
            }
            taken
        })
    });
    let numbers: Vec<_> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!((numbers.len(), repeated(&numbers)), (800_000, 0));
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
async fn a_write_whose_answer_was_lost_counts_as_lost() {
    let store = memory();
    let first_answer_lost = |position| if position == 0 { Failure::AnswerLost } else { Failure::None };
    let numbers = OrderNumbers::new(
        FaultySyncStore::new(Arc::clone(&store), first_answer_lost),
        empty_ledger(),
        world(),
    );
    assert_eq!(numbers.next().await.unwrap().counter(), FIRST_COUNTER + RANGE_LEN_MIN);
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
        matches!(&fault, OrderNumberFault::Unsound(why) if matches!(**why, UnsoundRegister::WentBack { .. }))
    );
    let _ = store.swap(REGISTER, Some(&revision), "{}").await.unwrap();
    let fault = OrderNumbers::new(store, empty_ledger(), world()).next().await.unwrap_err();
    assert!(
        matches!(&fault, OrderNumberFault::Unsound(why) if matches!(**why, UnsoundRegister::Unreadable(_)))
    );
}

#[test]
fn ranges_grow_and_shrink_with_the_demand() {
    let seconds = Duration::from_secs;
    let check = |len, lasted, expected| assert_eq!(next_len(len, lasted), expected);
    check(100, None, 100);
    check(100, Some(seconds(1)), 200);
    check(400, Some(seconds(10)), 400);
    check(400, Some(seconds(60)), 200);
    check(100, Some(seconds(600)), 100);
    check(100_000, Some(seconds(1)), 100_000);
}
