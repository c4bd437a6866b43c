//! The metrics of a process with a worker, as collectors for Prometheus. Collecting makes no requests to the store.

mod exposition;
mod family;
mod store;
mod work;

pub use exposition::Format;
pub use family::{Family, PREFIX};
pub use store::{ClockCollector, OperationsCollector, PriceCollector};
pub use work::{ScrubberCollector, WorkerCollector};

use std::fmt;
use std::sync::Arc;

use postonce_shared::oversight::prices::Prices;
use postonce_shared::ports::operations::StorageOperations;
use postonce_shared::ports::store_clock::StoreClock;
use prometheus_client::registry::Registry;

use crate::meter::Meter;

/// The metrics of a worker process.
pub struct WorkerMetrics(Registry);

impl WorkerMetrics {
    /// Creates the metrics of the worker with these counters, and those of its store. `prices` are those of a store whose
    /// operations cost money.
    pub fn new(
        meter: &Arc<Meter>,
        (operations, clock): (&Arc<StorageOperations>, &Arc<StoreClock>),
        prices: Option<&Prices>,
    ) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(WorkerCollector(Arc::clone(meter))));
        registry.register_collector(Box::new(ScrubberCollector(Arc::clone(&meter.scrubber))));
        registry.register_collector(Box::new(OperationsCollector(Arc::clone(operations))));
        registry.register_collector(Box::new(ClockCollector(Arc::clone(clock))));
        if let Some(prices) = prices.cloned() {
            let operations = Arc::clone(operations);
            registry.register_collector(Box::new(PriceCollector { operations, prices }));
        }
        Self(registry)
    }

    /// Returns all metrics as text.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when a collector fails.
    pub fn text(&self, format: Format) -> Result<String, fmt::Error> {
        format.encode(&[&self.0])
    }
}

/// Returns the families of all metrics that a worker process and a web process have, for their documentation.
pub fn families() -> Vec<Family> {
    let counters = work::counters(&Meter::default()).map(|(family, _)| family).collect::<Vec<_>>();
    let families = work::FAMILIES.into_iter().chain(store::FAMILIES).cloned();
    counters.into_iter().chain(families).collect()
}
