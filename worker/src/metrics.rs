//! The counters of a process with a worker, as collectors for Prometheus. Collecting makes no requests to the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::oversight::scrubber::ScrubberStatus;
use postonce_shared::ports::operations::{PriceKind, StorageOperations};
use postonce_shared::ports::store_clock::{ClockSkew, StoreClock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::meter::{Listeners, Meter};

/// Prefix of all metric names.
pub const PREFIX: &str = "postonce";
/// Media type of the text format.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A gauge of each queue: name, help text, and the function that reads it.
type Gauge = (&'static str, &'static str, fn(&Listeners) -> u64);

/// Collects the counters of the worker.
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
            ("worker_listeners_active", "Receivers that handle messages now", |queue| queue.active),
            ("worker_listeners_max", "Largest allowed number of receivers", |queue| queue.max),
        ];
        for (name, help, read) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (queue, gauges) in &listeners {
                let gauge = ConstGauge::new(i64::try_from(read(gauges)).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&[("queue", queue.as_str())])?)?;
            }
        }
        Ok(())
    }
}

/// Collects what the scrubber does in this process.
#[derive(Debug)]
pub struct ScrubberCollector(pub Arc<ScrubberStatus>);

impl Collector for ScrubberCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let ScrubberStatus { operations, findings, enqueued, .. } = &*self.0;
        let counters = [
            ("operations", "Storage operations of the scrubber", operations),
            ("findings", "Rows that differ from what the bank wrote", findings),
            ("enqueued", "Transactions whose forgotten work was enqueued again", enqueued),
        ];
        for (name, help, count) in counters {
            let (name, count) = (format!("scrubber_{name}"), ConstCounter::new(count.get()));
            count.encode(encoder.encode_descriptor(&name, help, None, MetricType::Counter)?)?;
        }
        // Only the process that scrubs knows the rest.
        let Some(report) = self.0.report() else { return Ok(()) };
        let seconds = |time: Timestamp| time.unix_ms().checked_div(1000).unwrap_or_default();
        let (round, last) = (report.round.as_ref(), report.last_round.as_ref());
        let gauges = [
            (
                "round_permille",
                "Part of the round that is done",
                round.map(|round| i64::from(round.progress)),
            ),
            (
                "round_started_timestamp_seconds",
                "Start of the round",
                round.map(|round| seconds(round.started_at)),
            ),
            (
                "last_round_ended_timestamp_seconds",
                "End of the last round",
                last.and_then(|last| last.ended_at).map(seconds),
            ),
            (
                "last_round_findings",
                "Findings of the last round",
                last.map(|last| i64::try_from(last.findings).unwrap_or(i64::MAX)),
            ),
            (
                "oldest_accepted_timestamp_seconds",
                "When the oldest accepted transaction that is not a dead letter was accepted",
                report.oldest_accepted_at.map(seconds),
            ),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let name = format!("scrubber_{name}");
            let descriptor = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(descriptor)?;
        }
        Ok(())
    }
}

/// Collects the count of storage operations.
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

/// Collects the range of the clock skew; nothing while it is unknown.
#[derive(Debug)]
pub struct ClockCollector(pub Arc<StoreClock>);

impl Collector for ClockCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(ClockSkew { min_ms, max_ms }) = self.0.skew() else { return Ok(()) };
        let help =
            "How far the clock of this process is at least and at most ahead of the clock of the store";
        let mut family =
            encoder.encode_descriptor("clock_skew_milliseconds", help, None, MetricType::Gauge)?;
        for (bound, skew_ms) in [("min", min_ms), ("max", max_ms)] {
            ConstGauge::new(skew_ms).encode(family.encode_family(&[("bound", bound)])?)?;
        }
        Ok(())
    }
}

/// Collects the cost of the storage operations of this process, by kind of price.
#[derive(Debug)]
pub struct PriceCollector {
    /// Operations of this process.
    pub operations: Arc<StorageOperations>,
    /// Price of each operation.
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
    /// Creates the metrics of the worker with these counters, and those of its store.
    pub fn new(
        meter: &Arc<Meter>,
        (operations, clock): (&Arc<StorageOperations>, &Arc<StoreClock>),
        prices: &Prices,
    ) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(WorkerCollector(Arc::clone(meter))));
        registry.register_collector(Box::new(ScrubberCollector(Arc::clone(&meter.scrubber))));
        registry.register_collector(Box::new(OperationsCollector(Arc::clone(operations))));
        registry.register_collector(Box::new(ClockCollector(Arc::clone(clock))));
        let (operations, prices) = (Arc::clone(operations), prices.clone());
        registry.register_collector(Box::new(PriceCollector { operations, prices }));
        Self(registry)
    }

    /// Returns all metrics as text.
    ///
    /// # Errors
    /// Fails with [`fmt::Error`] when a collector fails.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0)?;
        Ok(text)
    }
}
