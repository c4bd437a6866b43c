//! A hundred allocators at one shared value on Azurite, as a hundred processes have them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::adapters::azure::{self, AzureConfig, AzureConnection};
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::domain::account::Revision;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::sync_store::{Swapped, SyncStore};
use postonce_shared::testing::decorators::SyncStoreDecorator;
use postonce_tests::azurite::Azurite;
use postonce_tests::wait::{self, Stopwatch};
use tokio::task::spawn_blocking;

use super::Allocator;
use crate::figures::{micros, per_second};
use crate::rounds::{Measure, Sample, Unit};

/// Writes that were tried for each range that was reserved.
pub const ATTEMPTS: Measure = Measure::of("write attempts a range", Unit::Hundredths);
/// Ranges that all allocators together reserved.
const RANGES: Measure = Measure::of("ranges", Unit::PerSecond);
/// The longest that a caller waited for a number.
const LONGEST: Measure = Measure::of("longest call", Unit::Microseconds);

/// Allocators at once.
pub const ALLOCATORS: usize = 100;
/// How long is counted, once each allocator was refilled.
const COUNTED: Duration = Duration::from_secs(60);
/// Longest time until then.
const REFILL_TIME_MAX: Duration = Duration::from_secs(180);
/// Ranges of an allocator that was refilled: the first one, and that.
const RANGES_REFILLED: u64 = 2;
/// Numbers a second that an allocator is asked for, on average: the ranges of both algorithms last about
/// 10 s then.
const PACE: u64 = 100;
/// Numbers a second of the slowest, and how much faster each one is than the one before.
const PACE_LEAST: u64 = 50;
const PACE_STEP: u64 = 1;

/// How fast the allocators are asked for numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paces {
    /// Each at a pace of its own.
    Own,
    /// All at the same pace, as behind a load balancer.
    Same,
}

impl Paces {
    /// Time between two numbers of an allocator.
    fn interval(self, place: u64) -> Duration {
        let pace = match self {
            Self::Own => PACE_LEAST.saturating_add(PACE_STEP.saturating_mul(place)),
            Self::Same => PACE,
        };
        Duration::from_nanos(1_000_000_000_u64.checked_div(pace).unwrap_or(0))
    }
}

impl fmt::Display for Paces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "each at a pace of its own",
            Self::Same => "all at the same pace",
        })
    }
}

/// The way of one allocator to the store.
struct Counted {
    store: Arc<dyn SyncStore>,
    attempts: AtomicU64,
    ranges: AtomicU64,
}

#[async_trait]
impl SyncStoreDecorator for Counted {
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

/// What all callers share.
#[derive(Default)]
struct Calls {
    longest_us: AtomicU64,
    done: AtomicBool,
}

/// Starts all of them at once, lets each be refilled, and counts from then on.
pub async fn run<A: Allocator>(azurite: &Azurite, paces: Paces) -> Sample {
    let store = fresh_store(azurite).await;
    let ways: Vec<Arc<Counted>> = (0..ALLOCATORS)
        .map(|_| {
            let (store, attempts, ranges) = (Arc::clone(&store), AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(Counted { store, attempts, ranges })
        })
        .collect();
    let calls = Arc::new(Calls::default());
    let callers: Vec<_> = (0..)
        .zip(&ways)
        .map(|(place, way)| {
            let (allocator, calls) = (A::over(Arc::<Counted>::clone(way)), Arc::clone(&calls));
            spawn_blocking(move || call(&allocator, paces.interval(place), &calls))
        })
        .collect();
    let total = |count: fn(&Counted) -> &AtomicU64| -> u64 {
        ways.iter().map(|way| count(way).load(Ordering::Relaxed)).sum()
    };
    wait::until("each allocator was refilled", REFILL_TIME_MAX, async || {
        let refilled = |way: &Arc<Counted>| way.ranges.load(Ordering::Relaxed) >= RANGES_REFILLED;
        let missing = ways.iter().filter(|way| !refilled(way)).count();
        if missing == 0 { Ok(()) } else { Err(format!("{missing} were not")) }
    })
    .await;
    let before = (total(|way| &way.attempts), total(|way| &way.ranges));
    calls.longest_us.store(0, Ordering::Relaxed);
    let watch = Stopwatch::start();
    wait::pass(COUNTED).await;
    let attempts = total(|way| &way.attempts).saturating_sub(before.0);
    let ranges = total(|way| &way.ranges).saturating_sub(before.1);
    let took = watch.elapsed();
    calls.done.store(true, Ordering::Relaxed);
    for caller in join_all(callers).await {
        caller.expect("a caller does not fall over");
    }
    Sample::from([
        (ATTEMPTS, attempts.saturating_mul(100).checked_div(ranges).unwrap_or(0)),
        (RANGES, per_second(ranges, took)),
        (LONGEST, calls.longest_us.load(Ordering::Relaxed)),
    ])
}

async fn fresh_store(azurite: &Azurite) -> Arc<dyn SyncStore> {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("crowd{}", STORES.fetch_add(1, Ordering::Relaxed));
    let connection = azurite.ports().connection_string();
    let connection = AzureConnection::parse(&connection).expect("Azurite's connection string is sound");
    let config = AzureConfig { connection, prefix };
    azure::open(&config, Arc::new(SystemWorld::new())).await.expect("opening asks nobody").sync
}

/// Takes a number whenever one is due; those that are late are taken at once.
fn call<A: Allocator>(allocator: &A, interval: Duration, calls: &Calls) {
    let watch = Stopwatch::start();
    let mut due = Duration::ZERO;
    while !calls.done.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_sub(watch.elapsed()));
        let called = Stopwatch::start();
        // Who is told that others were faster asks again.
        while allocator.next().is_none() && !calls.done.load(Ordering::Relaxed) {}
        calls.longest_us.fetch_max(micros(called.elapsed()), Ordering::Relaxed);
        due = due.saturating_add(interval);
    }
}
