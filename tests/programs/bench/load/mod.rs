//! The clients of a measurement: as cheap as possible, because they share two cores with the measured processes.
//! They run on one thread and send HTTP/1.1 over persistent connections.
//!
//! [`closed`] sends the next request when the previous one is answered; it measures the capacity of an arm.
//! [`open`] sends at a fixed rate, and measures latency from the time at which a request was *due*: a stall counts
//! for all requests that were due during it.

mod client;
mod closed;
mod connection;
pub mod flood;
mod open;
mod traffic;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::bench::figures::micros;

pub use closed::{Until, closed};
pub use open::open;
pub use traffic::{Target, Traffic, Way};

/// Longest measured latency, in microseconds: one minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// The result of a load.
#[derive(Debug)]
pub struct Outcome {
    /// From the first request to the last response.
    pub took: Duration,
    /// Latencies in microseconds.
    latencies: Histogram<u64>,
    /// The number of responses with each status.
    statuses: BTreeMap<u16, u64>,
    /// The number of requests without a response, and the error of the first of them.
    broken: (u64, Option<String>),
}

impl Outcome {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("valid bounds");
        Self { took: Duration::ZERO, latencies, statuses: BTreeMap::new(), broken: (0, None) }
    }

    fn note(&mut self, answer: Result<u16, String>, latency: Duration) {
        match answer {
            Ok(status) => {
                let count = self.statuses.entry(status).or_default();
                *count = count.saturating_add(1);
                self.latencies.saturating_record(micros(latency));
            }
            Err(error) => {
                self.broken.0 = self.broken.0.saturating_add(1);
                self.broken.1.get_or_insert(error);
            }
        }
    }

    /// Returns the result if every request was answered with one of these statuses.
    ///
    /// # Panics
    /// If a request was not: a refused request is not work.
    #[track_caller]
    pub fn all(self, statuses: &[u16]) -> Self {
        let others = self.statuses.keys().any(|status| !statuses.contains(status));
        assert!(
            !others && self.broken.0 == 0,
            "expected only responses with {statuses:?}: {:?}, {} without a response ({:?})",
            self.statuses,
            self.broken.0,
            self.broken.1
        );
        self
    }

    /// The number of responses.
    pub fn answered(&self) -> u64 {
        self.latencies.len()
    }

    /// The number of responses with that status.
    pub fn with_status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// The median latency in microseconds.
    pub fn p50_us(&self) -> u64 {
        self.latencies.value_at_quantile(0.5)
    }

    /// The 99th percentile of the latency in microseconds.
    pub fn p99_us(&self) -> u64 {
        self.latencies.value_at_quantile(0.99)
    }
}

/// Runs clients on their own thread.
async fn on_own_thread<T: Send + 'static>(clients: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime for the clients"), clients())
    };
    tokio::task::spawn_blocking(run).await.expect("the clients do not panic")
}
