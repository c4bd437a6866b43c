//! The cost meter: what postings cost in storage operations, summed over the processes that report.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;
use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use postonce_worker::http::{OperationCount, Status};
use postonce_worker::meter::Meter;

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

impl ProcessReport {
    /// What this process did, which listens at that address.
    pub fn here(address: &str, meter: &Meter, operations: &StorageOperations) -> Self {
        let counts = operations.snapshot().into_iter();
        Self {
            process: address.to_owned(),
            postings: meter.settled.get(),
            operations: counts.map(|(operation, count)| (operation.into(), count)).collect(),
        }
    }

    /// What another process says of itself; `None` when it speaks of kinds that are not known here.
    pub fn told(address: &str, status: &Status) -> Option<Self> {
        let mut operations: BTreeMap<ReportedOperation, u64> = BTreeMap::new();
        for OperationCount { service, operation, price, count } in &status.storage_operations {
            let kind = ReportedOperation {
                service: Service::from_code(service)?,
                name: Cow::Owned(operation.clone()),
                price: PriceKind::from_code(price)?,
            };
            operations.insert(kind, *count);
        }
        let postings = status.counters.get("settled").copied()?;
        Some(Self { process: address.to_owned(), postings, operations })
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
