//! Metrics of store requests, of the store's disk, its backups, and the clock skew between process and store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use postonce_shared::bank::Bank;
use postonce_shared::config::Config;
use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::ports::operations::{Operation, PriceKind, StorageOperations};
use postonce_shared::ports::store_clock::{ClockSkew, StoreClock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::family::{Family, encode_durations, in_base_unit};
use crate::meter::{DiskBytes, Meter};

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
static PRICE: Family =
    Family::counter("storage_price_dollars", &["kind"], "Price of the requests to the store, in US dollars");

static DURATIONS: Family = Family::histogram(
    "storage_operation_seconds",
    &["service", "operation"],
    "Time until the store answered, without the wait for a permit to send",
);
static ERRORS: Family = Family::counter(
    "storage_errors",
    &["service", "operation"],
    "Requests that the store did not answer, or answered with an error of its own; refusals do not count",
);
static DATABASE: Family = Family::gauge("store_database_bytes", &[], "Size of the file of an embedded store");
static LOG: Family = Family::gauge("store_log_bytes", &[], "Size of its write-ahead log");
static FREE: Family =
    Family::gauge("store_disk_free_bytes", &[], "What may still be written to its file system");

static BACKUPS: Family = Family::counter(
    "scheduled_backups",
    &[],
    "Scheduled backups that this process took of an embedded store",
);
static BACKUPS_FAILED: Family =
    Family::counter("scheduled_backups_failed", &[], "Scheduled backups that failed; each is tried again");
static BACKUP_CURRENT: Family = Family::gauge(
    "scheduled_backup_current",
    &[],
    "1 while the newest scheduled backup is recent enough, 0 after a failure until one is taken; missing without backup-folder",
);

pub(super) static FAMILIES: [&Family; 11] = [
    &OPERATIONS,
    &DURATIONS,
    &ERRORS,
    &SKEW,
    &PRICE,
    &DATABASE,
    &LOG,
    &FREE,
    &BACKUPS,
    &BACKUPS_FAILED,
    &BACKUP_CURRENT,
];

const fn labels(operation: &Operation) -> [(&'static str, &'static str); 2] {
    [("service", operation.service.code()), ("operation", operation.name)]
}

/// Collects counts, durations and failures of storage operations.
#[derive(Debug)]
pub struct OperationsCollector(pub Arc<StorageOperations>);

impl Collector for OperationsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = OPERATIONS.begin(&mut encoder)?;
        for (operation, count) in self.0.snapshot() {
            ConstCounter::new(count).encode(family.encode_family(&labels(&operation))?)?;
        }
        let answers = self.0.answers();
        let mut family = DURATIONS.begin(&mut encoder)?;
        for (operation, answers) in &answers {
            encode_durations(family.encode_family(&labels(operation))?, &answers.durations.snapshot())?;
        }
        let mut family = ERRORS.begin(&mut encoder)?;
        for (operation, answers) in &answers {
            ConstCounter::new(answers.failed()).encode(family.encode_family(&labels(operation))?)?;
        }
        Ok(())
    }
}

/// Collects the disk space of an embedded store, as last measured.
#[derive(Debug)]
pub struct DiskCollector(pub Arc<Meter>);

impl Collector for DiskCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(DiskBytes { free, database, log }) = self.0.disk.get() else { return Ok(()) };
        for (family, bytes) in [(&DATABASE, database), (&LOG, log), (&FREE, free)] {
            let Some(bytes) = bytes else { continue };
            family.measure(&mut encoder, bytes)?;
        }
        Ok(())
    }
}

/// Collects the scheduled backups; nothing if there are none.
#[derive(Debug)]
pub struct BackupCollector(pub Arc<Meter>);

impl Collector for BackupCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let backups = &self.0.backups;
        let Some(is_current) = backups.current() else { return Ok(()) };
        BACKUPS.count(&mut encoder, backups.taken.get())?;
        BACKUPS_FAILED.count(&mut encoder, backups.failed.get())?;
        BACKUP_CURRENT.measure(&mut encoder, u64::from(is_current))
    }
}

/// Collects the bounds of the clock skew; nothing while it is unknown.
#[derive(Debug)]
pub struct ClockCollector(pub Arc<StoreClock>);

impl Collector for ClockCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(ClockSkew { min_ms, max_ms }) = self.0.skew() else { return Ok(()) };
        let mut family = SKEW.begin(&mut encoder)?;
        for (bound, skew_ms) in [("min", min_ms), ("max", max_ms)] {
            let seconds = ConstGauge::new(in_base_unit(skew_ms, 1000));
            seconds.encode(family.encode_family(&[("bound", bound)])?)?;
        }
        Ok(())
    }
}

/// Collects the price of this process's storage operations by kind, for stores that charge for requests.
#[derive(Debug)]
pub struct PriceCollector {
    /// Storage operations of this process.
    pub operations: Arc<StorageOperations>,
    /// Price of each kind of operation.
    pub prices: Prices,
}

impl PriceCollector {
    /// Registers the collector for a bank, if its storage operations cost money.
    pub fn register(config: &Config, bank: &Bank, registry: &mut Registry) {
        let Some(prices) = config.prices_paid().cloned() else { return };
        registry
            .register_collector(Box::new(Self { operations: Arc::clone(&bank.store.operations), prices }));
    }
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
        Ok(())
    }
}
