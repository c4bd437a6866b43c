//! The metrics of a process, as Prometheus collectors. Collecting makes no store requests.

mod exposition;
mod family;
mod process;
mod state;
mod store;
mod work;

pub use exposition::Format;
pub use family::Family;
pub use store::PriceCollector;

use std::fmt;
use std::sync::Arc;

use postonce_shared::bank::Bank;
use prometheus_client::collector::Collector;
use prometheus_client::registry::Registry;

use self::family::PREFIX;
use self::process::{BuildCollector, LogCollector, ProcessCollector};
use self::state::{GateCollector, LatencyCollector, ReadinessCollector, TracesCollector};
use self::store::{BackupCollector, ClockCollector, DiskCollector, OperationsCollector};
use self::work::{ScrubberCollector, WorkerCollector};
use crate::meter::Meter;
use crate::readiness::Readiness;

/// The metrics of a process.
pub struct ProcessMetrics {
    of_bank: Registry,
    /// Metrics whose names have no prefix.
    standard: Registry,
}

impl ProcessMetrics {
    /// Creates the metrics that every process has. `meter` contains the counters of its worker, if it has one.
    pub fn of(bank: &Bank, meter: &Arc<Meter>, readiness: &Arc<Readiness>) -> Self {
        let (mut of_bank, mut standard) = (Registry::with_prefix(PREFIX), Registry::default());
        let collectors: [Box<dyn Collector>; 12] = [
            Box::new(WorkerCollector(Arc::clone(meter))),
            Box::new(ScrubberCollector(Arc::clone(&meter.scrubber))),
            Box::new(DiskCollector(Arc::clone(meter))),
            Box::new(BackupCollector(Arc::clone(meter))),
            Box::new(OperationsCollector(Arc::clone(&bank.store.operations))),
            Box::new(ClockCollector(Arc::clone(&bank.store.clock))),
            Box::new(GateCollector(Arc::clone(&bank.gate_permits))),
            Box::new(ReadinessCollector(Arc::clone(readiness))),
            Box::new(LatencyCollector(Arc::clone(&bank.latency))),
            Box::new(TracesCollector(Arc::clone(&bank.tracer))),
            Box::new(BuildCollector),
            Box::new(LogCollector),
        ];
        collectors.into_iter().for_each(|collector| of_bank.register_collector(collector));
        standard.register_collector(Box::new(ProcessCollector));
        Self { of_bank, standard }
    }

    /// Returns the registry of the metrics of the bank, to register further collectors.
    pub const fn of_bank(&mut self) -> &mut Registry {
        &mut self.of_bank
    }

    /// Encodes all metrics.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when a collector fails.
    pub fn encode(&self, format: Format) -> Result<Vec<u8>, fmt::Error> {
        format.encode(&[&self.of_bank, &self.standard])
    }
}

/// Returns the metric families common to worker and web processes, for their documentation.
pub fn families() -> Vec<Family> {
    let counters = work::counters(&Meter::default()).map(|(family, _)| family).collect::<Vec<_>>();
    let families = work::FAMILIES.into_iter().chain(store::FAMILIES).chain(state::FAMILIES);
    counters.into_iter().chain(families.chain(process::FAMILIES).cloned()).collect()
}
