//! What a process with a worker counts, as collectors for Prometheus. Reading them asks nothing of
//! the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::ports::operations::{PriceKind, StorageOperations};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::meter::{Listeners, Meter};

/// What the names of all metrics begin with.
pub const PREFIX: &str = "postonce";
/// The media type of the text.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A gauge of each queue: its name, what it says, and where it is read.
type Gauge = (&'static str, &'static str, fn(&Listeners) -> u64);

/// Reads the worker's counters when it is asked.
#[derive(Debug)]
pub struct WorkerCollector(pub Arc<Meter>);

impl Collector for WorkerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, counter) in self.0.counters() {
            let (name, count) = (format!("worker_{name}"), ConstCounter::new(counter.get()));
            count.encode(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?)?;
        }
        let listeners = self.0.all_listeners();
        let gauges: [Gauge; 2] = [
            ("worker_listeners_active", "Receivers that have work in hand", |queue| queue.active),
            ("worker_listeners_max", "Receivers that there may be", |queue| queue.max),
        ];
        for (name, help, read) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (queue, look) in &listeners {
                let gauge = ConstGauge::new(i64::try_from(read(look)).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&[("queue", queue.as_str())])?)?;
            }
        }
        Ok(())
    }
}

/// Reads the count of storage operations when it is asked.
#[derive(Debug)]
pub struct OperationsCollector(pub Arc<StorageOperations>);

impl Collector for OperationsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Requests to the store, retries included";
        let mut family = encoder.encode_descriptor("storage_operations", help, None, MetricType::Counter)?;
        for (operation, count) in self.0.snapshot() {
            let labels = [("service", operation.service.code()), ("operation", operation.name)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Counts for Prometheus what the operations of this process cost, by what they are priced as.
#[derive(Debug)]
pub struct PriceCollector {
    /// What it asked of the store.
    pub operations: Arc<StorageOperations>,
    /// What that costs.
    pub prices: Prices,
}

impl Collector for PriceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut costs: BTreeMap<PriceKind, Cost> = BTreeMap::new();
        for (operation, count) in self.operations.snapshot() {
            let cost = costs.entry(operation.price).or_default();
            *cost = cost.plus(self.prices.of(operation.price, count));
        }
        let help = "Price of the requests to the store, in billionths of a US dollar";
        let mut family =
            encoder.encode_descriptor("storage_price_nano_usd", help, None, MetricType::Counter)?;
        for (kind, cost) in costs {
            let labels = [("kind", kind.code())];
            ConstCounter::new(cost.nano_usd()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The metrics of a worker process.
pub struct WorkerMetrics(Registry);

impl WorkerMetrics {
    /// The metrics of the worker that counts there.
    pub fn new(meter: &Arc<Meter>, operations: &Arc<StorageOperations>, prices: &Prices) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(WorkerCollector(Arc::clone(meter))));
        registry.register_collector(Box::new(OperationsCollector(Arc::clone(operations))));
        let (operations, prices) = (Arc::clone(operations), prices.clone());
        registry.register_collector(Box::new(PriceCollector { operations, prices }));
        Self(registry)
    }

    /// All of it as text.
    ///
    /// # Errors
    /// [`fmt::Error`] when a collector fails.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0)?;
        Ok(text)
    }
}
