//! Costs of storage operations, summed over all processes that report them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use postonce_process::http::{OperationCount, POSTED_IMMEDIATELY, Status};
use postonce_process::meter::Meter;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::estimate::MONTH;
use postonce_shared::oversight::prices::{Cost, Prices};
use postonce_shared::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use postonce_shared::posting::waiting::ServedCounts;

/// Time after which the rate of a process is not dominated by its start.
const PROJECTED_FROM: Duration = Duration::from_secs(10 * 60);

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
    /// Time since the process started, during which it counted.
    pub counted_for: Duration,
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
    /// Creates the report of this process, which listens at `address` and started `counted_for` ago.
    pub fn of_this_process(
        (address, counted_for): (&str, Duration),
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
            counted_for,
        }
    }

    /// Converts the status of a process at this time; `None` if a service or price category is unknown, or a counter is missing.
    pub fn from_status(address: &str, status: &Status, now: Timestamp) -> Option<Self> {
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
        let counted_for = now.since(Timestamp::from_unix_ms(status.started_at));
        Some(Self { process: address.to_owned(), postings, immediate, operations, counted_for })
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
        let mut total = ProcessReport {
            process: String::new(),
            postings: 0,
            immediate: 0,
            operations: BTreeMap::new(),
            counted_for: Duration::ZERO,
        };
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

    /// Returns the cost of a month at the rate of each process since its start; `None` without processes, and while one has counted
    /// for less than [`PROJECTED_FROM`].
    pub fn per_month(&self, prices: &Prices) -> Option<Cost> {
        let per_month = |report: &ProcessReport| {
            let counted_for = Some(report.counted_for).filter(|time| *time >= PROJECTED_FROM)?;
            report.cost(prices).at_the_rate_of(counted_for, MONTH)
        };
        if self.processes.is_empty() { None } else { self.processes.iter().map(per_month).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(process: &str, postings: u64, counts: &[(&'static str, PriceKind, u64)]) -> ProcessReport {
        let operation = |name, price| Operation { service: Service::Table, name, price }.into();
        let operations = counts.iter().map(|(name, price, count)| (operation(name, *price), *count));
        let immediate = postings / 3;
        ProcessReport {
            process: process.to_owned(),
            postings,
            immediate,
            operations: operations.collect(),
            counted_for: Duration::ZERO,
        }
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
    fn a_month_is_projected_from_the_rate_of_each_process() {
        let counting = |minutes: u64, count| ProcessReport {
            counted_for: Duration::from_secs(minutes * 60),
            ..report("", 0, &[("receive", PriceKind::Queue, count)])
        };
        let month = |reports: &[ProcessReport]| {
            CostReport::of(reports.to_vec()).per_month(&Prices::default()).map(Cost::dollars)
        };
        // 10,000 queue operations an hour and 20,000 a day, at 0.004 dollars for 10,000.
        let (hour, day) = (counting(60, 10_000), counting(24 * 60, 20_000));
        assert_eq!(month(std::slice::from_ref(&hour)).as_deref(), Some("2.88"));
        assert_eq!(month(&[hour.clone(), day]).as_deref(), Some("3.12"));
        assert_eq!(month(&[hour.clone(), counting(9, 1)]), None, "one process has just started");
        assert_eq!(month(&[hour, counting(10, 0)]).as_deref(), Some("2.88"));
    }

    #[test]
    fn without_reports_the_sum_is_zero() {
        let cost = CostReport::of(Vec::new());
        assert_eq!((cost.total.count(), cost.total.postings), (0, 0));
        assert_eq!(cost.per_month(&Prices::default()), None);
    }
}
