//! A hundred allocators over one shared value on Azurite, as in a hundred processes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::testing::prelude::*;
use postonce_tests::azurite::Ports;
use postonce_tests::wait::{self, Stopwatch};
use tokio::task::spawn_blocking;

use super::Allocator;
use crate::bench::prelude::*;

/// Write attempts for each reserved range.
pub const ATTEMPTS: Measure = Measure::of("write attempts a range", Unit::Hundredths);
/// Ranges reserved by all allocators.
const RANGES: Measure = Measure::of("ranges", Unit::PerSecond);
/// The longest wait of a caller for a number.
const LONGEST: Measure = Measure::of("longest call", Unit::Microseconds);

/// Number of allocators.
pub const ALLOCATORS: usize = 100;
/// Duration of the counting, after each allocator was refilled once.
const COUNTED: Duration = Duration::from_secs(60);
/// Longest time until all are refilled.
const REFILL_TIME_MAX: Duration = Duration::from_secs(180);
/// Ranges of an allocator that was refilled once: the first one and the refill.
const RANGES_REFILLED: u64 = 2;
/// Average numbers a second of an allocator: the ranges of both algorithms then last about
/// 10 s.
const RATE: u64 = 100;
/// Numbers a second of the slowest allocator, and the difference from one allocator to the next.
const RATE_MIN: u64 = 50;
const RATE_STEP: u64 = 1;

/// The rates at which numbers are taken from the allocators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rates {
    /// Each allocator has a different rate.
    Own,
    /// All allocators have the same rate, as behind a load balancer.
    Same,
}

impl Rates {
    /// Time between two numbers of an allocator.
    fn interval(self, index: u64) -> Duration {
        let rate = match self {
            Self::Own => RATE_MIN.saturating_add(RATE_STEP.saturating_mul(index)),
            Self::Same => RATE,
        };
        Duration::from_nanos(1_000_000_000_u64.checked_div(rate).unwrap_or(0))
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "each at a different rate",
            Self::Same => "all at the same rate",
        })
    }
}

/// The store of one allocator, with counts.
struct CountingStore {
    store: Arc<dyn SyncStore>,
    attempts: AtomicU64,
    ranges: AtomicU64,
}

#[async_trait]
impl SyncStoreDecorator for CountingStore {
    fn inner(&self) -> &dyn SyncStore {
        &*self.store
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let swapped = self.store.swap(name, expected, value).await;
        if matches!(swapped, Ok(Swapped::Done(_))) {
            self.ranges.fetch_add(1, Ordering::Relaxed);
        }
        swapped
    }
}

/// State that all callers share.
#[derive(Default)]
struct Calls {
    longest_us: AtomicU64,
    done: AtomicBool,
}

/// Starts all allocators at once, waits until each is refilled, and counts from then on.
pub async fn run<A: Allocator>(ports: Ports, rates: Rates) -> Sample {
    let store = fresh_store(ports).await;
    let stores: Vec<Arc<CountingStore>> = (0..ALLOCATORS)
        .map(|_| {
            let (store, attempts, ranges) = (Arc::clone(&store), AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(CountingStore { store, attempts, ranges })
        })
        .collect();
    let calls = Arc::new(Calls::default());
    let callers: Vec<_> = (0..)
        .zip(&stores)
        .map(|(index, counting)| {
            let (allocator, calls) = (A::over(Arc::<CountingStore>::clone(counting)), Arc::clone(&calls));
            spawn_blocking(move || call(&allocator, rates.interval(index), &calls))
        })
        .collect();
    let total = |count: fn(&CountingStore) -> &AtomicU64| -> u64 {
        stores.iter().map(|counting| count(counting).load(Ordering::Relaxed)).sum()
    };
    wait::until("each allocator was refilled", REFILL_TIME_MAX, async || {
        let refilled =
            |counting: &Arc<CountingStore>| counting.ranges.load(Ordering::Relaxed) >= RANGES_REFILLED;
        let missing = stores.iter().filter(|counting| !refilled(counting)).count();
        if missing == 0 { Ok(()) } else { Err(format!("{missing} are not refilled")) }
    })
    .await;
    let before = (total(|counting| &counting.attempts), total(|counting| &counting.ranges));
    calls.longest_us.store(0, Ordering::Relaxed);
    let watch = Stopwatch::start();
    wait::pass(COUNTED).await;
    let attempts = total(|counting| &counting.attempts).saturating_sub(before.0);
    let ranges = total(|counting| &counting.ranges).saturating_sub(before.1);
    let took = watch.elapsed();
    calls.done.store(true, Ordering::Relaxed);
    for caller in join_all(callers).await {
        caller.expect("a caller does not panic");
    }
    Sample::from([
        (ATTEMPTS, attempts.saturating_mul(100).checked_div(ranges).unwrap_or(0)),
        (RANGES, per_second(ranges, took)),
        (LONGEST, calls.longest_us.load(Ordering::Relaxed)),
    ])
}

async fn fresh_store(ports: Ports) -> Arc<dyn SyncStore> {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("numbers{}", STORES.fetch_add(1, Ordering::Relaxed));
    let connection = ports.connection_string();
    let connection = AzureConnection::parse(&connection).expect("a valid connection string");
    let config = AzureConfig::new(connection, prefix);
    azure::open(&config, Arc::new(SystemWorld::new())).await.expect("opening sends no request").sync
}

/// Takes numbers at an interval; numbers that are overdue are taken at once.
fn call<A: Allocator>(allocator: &A, interval: Duration, calls: &Calls) {
    let watch = Stopwatch::start();
    let mut due = Duration::ZERO;
    while !calls.done.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_sub(watch.elapsed()));
        let called = Stopwatch::start();
        // After a failed reservation, it tries again.
        while allocator.next().is_none() && !calls.done.load(Ordering::Relaxed) {}
        calls.longest_us.fetch_max(micros(called.elapsed()), Ordering::Relaxed);
        due = due.saturating_add(interval);
    }
}
