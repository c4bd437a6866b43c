//! Threads of one process that take numbers from one allocator, over a memory store that answers at once or with
//! the delay of a network.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::testing::prelude::*;
use postonce_tests::wait::{self, Stopwatch};
use tokio::task::spawn_blocking;

use super::Allocator;
use crate::bench::prelude::*;

/// Numbers taken by all threads.
pub const NUMBERS: Measure = Measure::of("numbers", Unit::PerSecond);

/// Numbers that each thread keeps at the end, to compare them with those of the other threads.
const KEPT: usize = 10_000;

/// The location of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Answers at once: measures the allocator itself.
    Local,
    /// Answers after one or two milliseconds, which is still faster than a storage service.
    Remote,
}

/// Shortest delay of a remote store.
const DELAY: Duration = Duration::from_millis(1);

/// A store with the delay of a network.
struct RemoteStore(Arc<dyn SyncStore>);

#[async_trait]
impl SyncStoreDecorator for RemoteStore {
    fn inner(&self) -> &dyn SyncStore {
        &*self.0
    }

    async fn get(&self, name: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        wait::pass(DELAY).await;
        self.0.get(name).await
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        wait::pass(DELAY).await;
        self.0.swap(name, expected, value).await
    }
}

/// The numbers that a thread took.
#[derive(Default)]
struct Taken {
    count: u64,
    sum: u128,
}

/// Takes numbers for a while, and checks that none was allocated twice.
pub async fn run<A: Allocator>(threads: usize, store: Store, lasting: Duration) -> Sample {
    let memory = MemoryStore::new(Arc::new(SystemWorld::new())).sync;
    let allocator = Arc::new(A::over(match store {
        Store::Local => memory,
        Store::Remote => Arc::new(RemoteStore(memory)),
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
        let Taken { count, sum } = taken.expect("a thread that takes numbers does not panic");
        all = Taken { count: all.count.saturating_add(count), sum: all.sum.saturating_add(sum) };
    }
    // A single allocator over a store skips no number.
    assert_eq!(all.sum, sum_from(first, all.count), "numbers were repeated or skipped");
    assert_different(&allocator, threads).await;
    Sample::from([(NUMBERS, per_second(all.count, took))])
}

/// The first number, taken on a thread that may block.
async fn first_of<A: Allocator>(allocator: &Arc<A>) -> u64 {
    let allocator = Arc::clone(allocator);
    let first = spawn_blocking(move || allocator.next()).await;
    first.ok().flatten().expect("no other allocator reserves")
}

fn take_until<A: Allocator>(allocator: &A, done: &AtomicBool) -> Taken {
    let mut taken = Taken::default();
    while !done.load(Ordering::Relaxed) {
        let number = allocator.next().expect("no other allocator reserves");
        taken.count = taken.count.wrapping_add(1);
        taken.sum = taken.sum.wrapping_add(number.into());
    }
    taken
}

/// The sum of consecutive numbers.
fn sum_from(first: u64, count: u64) -> u128 {
    let (first, count) = (u128::from(first), u128::from(count));
    let steps = count.saturating_mul(count.saturating_sub(1)).div_euclid(2);
    count.saturating_mul(first).saturating_add(steps)
}

/// Compares numbers one by one, because a sum can be right by chance.
async fn assert_different<A: Allocator>(allocator: &Arc<A>, threads: usize) {
    let keepers = (0..threads).map(|_| {
        let allocator = Arc::clone(allocator);
        spawn_blocking(move || -> Vec<u64> {
            (0..KEPT).map(|_| allocator.next().expect("no other allocator reserves")).collect()
        })
    });
    let kept = join_all(keepers).await.into_iter();
    let mut kept: Vec<u64> = kept.flat_map(|it| it.expect("a thread does not panic")).collect();
    let count = kept.len();
    kept.sort_unstable();
    kept.dedup();
    assert_eq!(kept.len(), count, "numbers were repeated");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_consecutive_numbers_is_computed() {
        assert_eq!([sum_from(7, 0), sum_from(7, 1), sum_from(7, 3)], [0, 7, 24]);
    }
}
