//! What this process asks of the store, and how their clocks differ.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::ports::operations::{PriceKind, StorageOperations};
use postonce_shared::ports::store_clock::{ClockSkew, StoreClock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::family::{Family, in_base_unit};

static OPERATIONS: Family = Family::counter(
    "storage_operations",
    &["service", "operation"],
    "Requests to the store, retries included",
);
static SKEW: Family = Family::gauge(
    "clock_skew_seconds",
    &["bound"],
    "How far the clock of this process is at least and at most ahead of the clock of the store",
);
static SKEW_MILLISECONDS: Family = Family::gauge(
    "clock_skew_milliseconds",
    &["bound"],
    "Deprecated: renamed to postonce_clock_skew_seconds",
);
static PRICE: Family =
    Family::counter("storage_price_dollars", &["kind"], "Price of the requests to the store, in US dollars");
static PRICE_NANO_USD: Family = Family::counter(
    "storage_price_nano_usd",
    &["kind"],
    "Deprecated: renamed to postonce_storage_price_dollars_total",
);

/// The families of this file.
pub(super) static FAMILIES: [&Family; 5] = [&OPERATIONS, &SKEW, &SKEW_MILLISECONDS, &PRICE, &PRICE_NANO_USD];

/// Collects the count of storage operations.
#[derive(Debug)]
pub struct OperationsCollector(pub Arc<StorageOperations>);

impl Collector for OperationsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = OPERATIONS.begin(&mut encoder)?;
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
        let bounds = [("min", min_ms), ("max", max_ms)];
        let mut family = SKEW.begin(&mut encoder)?;
        for (bound, skew_ms) in bounds {
            let seconds = ConstGauge::new(in_base_unit(skew_ms, 1000));
            seconds.encode(family.encode_family(&[("bound", bound)])?)?;
        }
        let mut family = SKEW_MILLISECONDS.begin(&mut encoder)?;
        for (bound, skew_ms) in bounds {
            ConstGauge::new(skew_ms).encode(family.encode_family(&[("bound", bound)])?)?;
        }
        Ok(())
    }
}

/// Collects the cost of the storage operations of this process, by kind of price. For stores that cost money.
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
        let mut family = PRICE.begin(&mut encoder)?;
        for (kind, cost) in &costs {
            let nano_usd = i64::try_from(cost.nano_usd()).unwrap_or(i64::MAX);
            let dollars = ConstCounter::new(in_base_unit(nano_usd, 1_000_000_000));
            dollars.encode(family.encode_family(&[("kind", kind.code())])?)?;
        }
        let mut family = PRICE_NANO_USD.begin(&mut encoder)?;
        for (kind, cost) in &costs {
            let labels = [("kind", kind.code())];
            ConstCounter::new(cost.nano_usd()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
