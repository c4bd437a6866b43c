//! Threads of one process that take numbers from one allocator, over a store in memory that answers at
//! once, or as late as one behind a network.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::domain::account::{Revision, Versioned};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::sync_store::{Swapped, SyncStore};
use postonce_shared::testing::decorators::SyncStoreDecorator;
use postonce_tests::wait::{self, Stopwatch};
use tokio::task::spawn_blocking;

use super::Allocator;
use crate::figures::per_second;
use crate::rounds::{Measure, Sample, Unit};

/// Numbers that all threads together took.
pub const NUMBERS: Measure = Measure::of("numbers", Unit::PerSecond);

/// Numbers that each thread keeps, once the time is over, to compare them with those of all others.
const KEPT: usize = 10_000;

/// How far away the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// It answers at once: what the allocator itself costs.
    AtHand,
    /// It answers after a millisecond or two, which is still faster than a storage service.
    Distant,
}

/// The least time to an answer of a distant store.
const DISTANCE: Duration = Duration::from_millis(1);

/// A store that is far away.
struct Distant(Arc<dyn SyncStore>);

#[async_trait]
impl SyncStoreDecorator for Distant {
    fn inner(&self) -> &dyn SyncStore {
        &*self.0
    }

    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        wait::pass(DISTANCE).await;
        self.0.get(name).await
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        wait::pass(DISTANCE).await;
        self.0.swap(name, expected, value).await
    }
}

/// What a thread took.
#[derive(Default)]
struct Taken {
    count: u64,
    sum: u128,
}

/// Takes numbers for a while, and checks that none was handed out twice.
pub async fn run<A: Allocator>(threads: usize, store: Store, lasting: Duration) -> Sample {
    let memory = MemoryStore::new(Arc::new(SystemWorld::new())).sync;
    let allocator = Arc::new(A::over(match store {
        Store::AtHand => memory,
        Store::Distant => Arc::new(Distant(memory)),
    }));
    let first = first_of(&allocator).await;
    let start = Arc::new(Barrier::new(threads.saturating_add(1)));
    let done = Arc::new(AtomicBool::new(false));
    let takers: Vec<_> = (0..threads)
        .map(|_| {
            let (allocator, start, done) = (Arc::clone(&allocator), Arc::clone(&start), Arc::clone(&done));
            spawn_blocking(move || {
                start.wait();
                take_until(&*allocator, &done)
            })
        })
        .collect();
    start.wait();
    let watch = Stopwatch::start();
    wait::pass(lasting).await;
    done.store(true, Ordering::Relaxed);
    let taken = join_all(takers).await;
    let took = watch.elapsed();
    let mut all = Taken { count: 1, sum: first.into() };
    for taken in taken {
        let Taken { count, sum } = taken.expect("a thread that takes numbers does not fall over");
        all = Taken { count: all.count.saturating_add(count), sum: all.sum.saturating_add(sum) };
    }
    // One allocator alone at its store leaves no number out.
    assert_eq!(all.sum, sum_from(first, all.count), "numbers were repeated or left out");
    assert_different(&allocator, threads).await;
    Sample::from([(NUMBERS, per_second(all.count, took))])
}

/// A number before all others, taken where a thread may wait.
async fn first_of<A: Allocator>(allocator: &Arc<A>) -> u64 {
    let allocator = Arc::clone(allocator);
    let first = spawn_blocking(move || allocator.next()).await;
    first.ok().flatten().expect("nobody else reserves")
}

fn take_until<A: Allocator>(allocator: &A, done: &AtomicBool) -> Taken {
    let mut taken = Taken::default();
    while !done.load(Ordering::Relaxed) {
        let number = allocator.next().expect("nobody else reserves");
        taken.count = taken.count.wrapping_add(1);
        taken.sum = taken.sum.wrapping_add(number.into());
    }
    taken
}

/// The sum of so many numbers in a row.
fn sum_from(first: u64, count: u64) -> u128 {
    let (first, count) = (u128::from(first), u128::from(count));
    let steps = count.saturating_mul(count.saturating_sub(1)).div_euclid(2);
    count.saturating_mul(first).saturating_add(steps)
}

/// A sum can be right by chance: this compares numbers one by one.
async fn assert_different<A: Allocator>(allocator: &Arc<A>, threads: usize) {
    let keepers = (0..threads).map(|_| {
        let allocator = Arc::clone(allocator);
        spawn_blocking(move || -> Vec<u64> {
            (0..KEPT).map(|_| allocator.next().expect("nobody else reserves")).collect()
        })
    });
    let kept = join_all(keepers).await.into_iter();
    let mut kept: Vec<u64> = kept.flat_map(|it| it.expect("a thread does not fall over")).collect();
    let count = kept.len();
    kept.sort_unstable();
    kept.dedup();
    assert_eq!(kept.len(), count, "numbers were repeated");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_numbers_adds_up() {
        assert_eq!([sum_from(7, 0), sum_from(7, 1), sum_from(7, 3)], [0, 7, 24]);
    }
}
