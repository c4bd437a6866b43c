//! Counts for Prometheus. Reading them asks nothing of the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::ports::operations::StorageOperations;
use postonce_shared::protocol::accept::{AcceptFault, Acceptance, Accepted};
use postonce_worker::metrics::{OperationsCollector, PREFIX};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use postonce_worker::metrics::OPENMETRICS;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    route: String,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// The metrics of a process.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<Answer, Counter>,
    durations: Family<Route, Histogram, fn() -> Histogram>,
    submissions: Family<Outcome, Counter>,
}

impl Metrics {
    /// Metrics that start at zero, with the store's own count beside them.
    pub fn new(operations: Arc<StorageOperations>) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let requests = Family::<Answer, Counter>::default();
        let durations: Family<Route, Histogram, fn() -> Histogram> = Family::new_with_constructor(histogram);
        let submissions = Family::<Outcome, Counter>::default();
        registry.register("http_requests", "Answered requests", requests.clone());
        registry.register("http_request_seconds", "Time until the answer", durations.clone());
        registry.register(
            "submissions",
            "Deposits and withdrawals by what became of the request",
            submissions.clone(),
        );
        registry.register_collector(Box::new(OperationsCollector(operations)));
        Self { registry: Mutex::new(registry), requests, durations, submissions }
    }

    /// Adds the metrics of another part of the process, such as the worker's.
    pub fn add(&self, collector: Box<dyn Collector>) {
        self.registry.lock().register_collector(collector);
    }

    /// Counts an answered request. `route` is the template of its path.
    pub fn answered(&self, route: &str, method: &'static str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.durations.get_or_create(&Route { route: route.clone(), method }).observe(took.as_secs_f64());
        self.requests.get_or_create(&Answer { route, method, status }).inc();
    }

    /// Counts what became of a deposit or a withdrawal that reached the acceptor.
    pub fn submitted(&self, acceptance: &Result<Acceptance, AcceptFault>) {
        let outcome = match acceptance {
            Ok(Acceptance::Accepted(Accepted { replayed: false, .. })) => "accepted",
            Ok(Acceptance::Accepted(Accepted { replayed: true, .. })) => "replayed",
            Ok(Acceptance::KeyReused) => "key_reused",
            Ok(Acceptance::AccountUnknown) => "account_unknown",
            Ok(Acceptance::CurrencyMismatch { .. }) => "currency_mismatch",
            Err(_) => "fault",
        };
        self.submissions.get_or_create(&Outcome { outcome }).inc();
    }

    /// All of it as text.
    ///
    /// # Errors
    /// [`fmt::Error`] when a collector fails.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}

/// Seconds, from what the memory answers to what a client does not wait for.
fn histogram() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}
