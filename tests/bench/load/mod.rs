//! The clients of a measurement: as cheap as clients can be, because they share two cores with what
//! they measure. They run on one thread of their own and speak HTTP/1.1 over connections that they keep.
//!
//! [`closed`] sends the next request when the one before is answered: it finds out how much an arm can
//! take. [`open`] sends at a rate, whatever the arm does, and counts time from when a request was
//! *meant* to be sent: a stall counts for all that should have been sent meanwhile.

mod closed;
mod connection;
mod open;
mod traffic;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::figures::micros;

pub use closed::{Until, closed};
pub use open::open;
pub use traffic::{Target, Traffic};

/// Longest latency that is told apart, in microseconds: one minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// What came of a load.
#[derive(Debug)]
pub struct Outcome {
    /// From the first request to the last answer.
    pub took: Duration,
    /// Microseconds until the answer.
    latencies: Histogram<u64>,
    /// How often each status came.
    statuses: BTreeMap<u16, u64>,
    /// Requests without an answer, and why the first of them had none.
    broken: (u64, Option<String>),
}

impl Outcome {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are sound");
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

    /// The same, when every request was answered with one of these statuses.
    ///
    /// # Panics
    /// When one was not: what an arm refuses is not work done.
    #[track_caller]
    pub fn all(self, statuses: &[u16]) -> Self {
        let others = self.statuses.keys().any(|status| !statuses.contains(status));
        assert!(
            !others && self.broken.0 == 0,
            "all answers had to be one of {statuses:?}: {:?}, {} without an answer ({:?})",
            self.statuses,
            self.broken.0,
            self.broken.1
        );
        self
    }

    /// Requests that were answered.
    pub fn answered(&self) -> u64 {
        self.latencies.len()
    }

    /// Requests that were answered with that status.
    pub fn with_status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// Microseconds that half of the requests did not exceed.
    pub fn p50_us(&self) -> u64 {
        self.latencies.value_at_quantile(0.5)
    }

    /// Microseconds that 99 of 100 requests did not exceed.
    pub fn p99_us(&self) -> u64 {
        self.latencies.value_at_quantile(0.99)
    }
}

/// Runs clients on a thread of their own.
async fn on_own_thread(clients: impl AsyncFnOnce() -> Outcome + Send + 'static) -> Outcome {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime for the clients"), clients())
    };
    tokio::task::spawn_blocking(run).await.expect("the clients do not panic")
}
