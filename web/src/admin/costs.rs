//! Costs of storage operations, summed over all processes that report them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;
use postonce_process::http::{OperationCount, POSTED_IMMEDIATELY, Status};
use postonce_process::meter::Meter;
use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use postonce_shared::posting::waiting::ServedCounts;

/// Kind of storage operation in a report. The name may come from another process, so it can be unknown here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportedOperation {
    /// Storage service of the operation.
    pub service: Service,
    /// Name of the operation in the storage service.
    pub name: Cow<'static, str>,
    /// Price category.
    pub price: PriceKind,
}

impl From<Operation> for ReportedOperation {
    fn from(operation: Operation) -> Self {
        let Operation { service, name, price } = operation;
        Self { service, name: Cow::Borrowed(name), price }
    }
}

/// Counters of one process since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReport {
    /// The listening address, which identifies the process.
    pub process: String,
    /// Number of transactions that it posted or rejected.
    pub postings: u64,
    /// Number of these that were posted or rejected at once, without the queue.
    pub immediate: u64,
    /// Number of storage operations, including retries.
    pub operations: BTreeMap<ReportedOperation, u64>,
}

impl ProcessReport {
    /// Returns the total number of operations.
    pub fn count(&self) -> u64 {
        self.operations.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the cost of the operations.
    pub fn cost(&self, prices: &Prices) -> Cost {
        self.operations.iter().map(|(operation, count)| prices.of(operation.price, *count)).sum()
    }
}

/// Source of the reports of all processes.
#[async_trait]
pub trait WorkerReports: Send + Sync {
    /// Returns a report of each reachable process, starting with this one. May read the process registry from the store.
    async fn reports(&self) -> Vec<ProcessReport>;
}

impl ProcessReport {
    /// Creates the report of this process, which listens at `address`.
    pub fn of_this_process(
        address: &str,
        meter: &Meter,
        served: &ServedCounts,
        operations: &StorageOperations,
    ) -> Self {
        let counts = operations.snapshot().into_iter();
        let immediate = served.immediate();
        Self {
            process: address.to_owned(),
            postings: meter.settled.get().saturating_add(immediate),
            immediate,
            operations: counts.map(|(operation, count)| (operation.into(), count)).collect(),
        }
    }

    /// Converts the status of another process; `None` if a service or price category is unknown, or a counter is missing.
    pub fn from_status(address: &str, status: &Status) -> Option<Self> {
        let mut operations: BTreeMap<ReportedOperation, u64> = BTreeMap::new();
        for OperationCount { service, operation, price, count } in &status.storage_operations {
            let kind = ReportedOperation {
                service: Service::from_code(service)?,
                name: Cow::Owned(operation.clone()),
                price: PriceKind::from_code(price)?,
            };
            operations.insert(kind, *count);
        }
        let settled = status.counters.get("settled").copied()?;
        let immediate = status.counters.get(POSTED_IMMEDIATELY).copied()?;
        let postings = settled.saturating_add(immediate);
        Some(Self { process: address.to_owned(), postings, immediate, operations })
    }
}

/// Reports of several processes and their sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostReport {
    /// The report of each process.
    pub processes: Vec<ProcessReport>,
    /// The sum of all reports.
    pub total: ProcessReport,
}

impl CostReport {
    /// Sums reports.
    pub fn of(processes: Vec<ProcessReport>) -> Self {
        let mut total =
            ProcessReport { process: String::new(), postings: 0, immediate: 0, operations: BTreeMap::new() };
        for report in &processes {
            total.postings = total.postings.saturating_add(report.postings);
            total.immediate = total.immediate.saturating_add(report.immediate);
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
        let immediate = postings / 3;
        ProcessReport { process: process.to_owned(), postings, immediate, operations: operations.collect() }
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
    fn without_reports_the_sum_is_zero() {
        let cost = CostReport::of(Vec::new());
        assert_eq!((cost.total.count(), cost.total.postings), (0, 0));
    }
}
