//! The cost meter: what postings cost in storage operations, summed over the processes that report.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use postonce_shared::prices::{Cost, Prices};
use postonce_worker::meter::Meter;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// One kind of operation, as a process reports it. The name may come from another process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportedOperation {
    /// The service.
    pub service: Service,
    /// The operation in the service's own word.
    pub name: Cow<'static, str>,
    /// How it is priced.
    pub price: PriceKind,
}

impl From<Operation> for ReportedOperation {
    fn from(operation: Operation) -> Self {
        let Operation { service, name, price } = operation;
        Self { service, name: Cow::Borrowed(name), price }
    }
}

/// What one process did since it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReport {
    /// Names it: the address that it listens on.
    pub process: String,
    /// Transactions that its worker made final.
    pub postings: u64,
    /// What it asked of the store, retries included.
    pub operations: BTreeMap<ReportedOperation, u64>,
}

impl ProcessReport {
    /// All of its requests.
    pub fn count(&self) -> u64 {
        self.operations.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// What they cost.
    pub fn cost(&self, prices: &Prices) -> Cost {
        self.operations.iter().map(|(operation, count)| prices.of(operation.price, *count)).sum()
    }
}

/// Who tells what the processes of the bank did.
#[async_trait]
pub trait WorkerReports: Send + Sync {
    /// A report of each process that could be asked, this one first. Never asks the store.
    async fn reports(&self) -> Vec<ProcessReport>;
}

/// Reports of this process alone.
pub struct ThisProcess {
    /// The address that it listens on.
    pub address: String,
    /// What its worker counts; zero when it has none.
    pub meter: Arc<Meter>,
    /// What it asked of the store.
    pub operations: Arc<StorageOperations>,
}

impl ThisProcess {
    /// What this process did.
    pub fn report(&self) -> ProcessReport {
        let counts = self.operations.snapshot().into_iter();
        ProcessReport {
            process: self.address.clone(),
            postings: self.meter.settled.get(),
            operations: counts.map(|(operation, count)| (operation.into(), count)).collect(),
        }
    }
}

#[async_trait]
impl WorkerReports for ThisProcess {
    async fn reports(&self) -> Vec<ProcessReport> {
        vec![self.report()]
    }
}

/// What processes did together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostReport {
    /// The processes, as they reported.
    pub processes: Vec<ProcessReport>,
    /// All of them as one.
    pub total: ProcessReport,
}

impl CostReport {
    /// The sum of reports.
    pub fn of(processes: Vec<ProcessReport>) -> Self {
        let mut total = ProcessReport { process: String::new(), postings: 0, operations: BTreeMap::new() };
        for report in &processes {
            total.postings = total.postings.saturating_add(report.postings);
            for (operation, count) in &report.operations {
                let sum = total.operations.entry(operation.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        Self { processes, total }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn report(process: &str, postings: u64, counts: &[(&'static str, PriceKind, u64)]) -> ProcessReport {
        let operation = |name, price| Operation { service: Service::Table, name, price }.into();
        let operations = counts.iter().map(|(name, price, count)| (operation(name, *price), *count));
        ProcessReport { process: process.to_owned(), postings, operations: operations.collect() }
    }

    #[test]
    fn reports_add_up_by_operation() {
        let (insert, batch) = (("insert", PriceKind::Table), ("transaction", PriceKind::TableBatch));
        let web = report("web", 0, &[(insert.0, insert.1, 10)]);
        let worker = report("worker", 9, &[(insert.0, insert.1, 1), (batch.0, batch.1, 10)]);
        let cost = CostReport::of(vec![web.clone(), worker.clone()]);
        assert_eq!(cost.total, report("", 9, &[(insert.0, insert.1, 11), (batch.0, batch.1, 10)]));
        assert_eq!((cost.total.count(), cost.processes), (21, vec![web, worker]));
        assert_eq!(cost.total.cost(&Prices::default()).nano_usd(), 11 * 36 + 10 * 108);
    }

    #[test]
    fn nobody_who_reports_is_nothing() {
        let cost = CostReport::of(Vec::new());
        assert_eq!((cost.total.count(), cost.total.postings), (0, 0));
    }
}
