//! Storage operations by kind: their number, from which costs are calculated, their durations and their failures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::durations::Durations;
use crate::domain::batch::OperationCounts;

/// Upper bounds of the duration ranges in milliseconds. No request takes longer than the last one.
const BOUNDS_MS: &[u64] = &[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];

/// A service of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Table rows.
    Table,
    /// Queue messages.
    Queue,
    /// Large bodies.
    Blob,
}

impl Service {
    /// Every service.
    pub const ALL: [Self; 3] = [Self::Table, Self::Queue, Self::Blob];

    /// Returns the service with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.code() == code)
    }

    /// Returns the name used in metrics and in the API.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
        }
    }
}

/// The price category of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriceKind {
    /// A read or write of one table row.
    Table,
    /// A table batch, or a scan.
    TableBatch,
    /// Any queue operation.
    Queue,
    /// A blob write.
    BlobWrite,
    /// A blob read, or any other blob operation.
    BlobRead,
}

impl PriceKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Table, Self::TableBatch, Self::Queue, Self::BlobWrite, Self::BlobRead];

    /// Returns the kind with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the name used in metrics and in the API.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::TableBatch => "table_batch",
            Self::Queue => "queue",
            Self::BlobWrite => "blob_write",
            Self::BlobRead => "blob_read",
        }
    }
}

/// One kind of operation, such as `table` / `insert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// The service.
    pub service: Service,
    /// The operation name of the service, in lower case with `_`.
    pub name: &'static str,
    /// The price category.
    pub price: PriceKind,
}

tokio::task_local! {
    /// Counts the requests of one task, in addition to [`StorageOperations`].
    static METER: Arc<StorageOperations>;
}

/// Runs an operation. Returns its result, and the number of store requests that its task sent, by price category.
pub async fn metered<T>(operation: impl Future<Output = T>) -> (T, OperationCounts) {
    let meter: Arc<StorageOperations> = Arc::default();
    let result = METER.scope(Arc::clone(&meter), operation).await;
    let mut counts = OperationCounts::default();
    for (operation, count) in meter.snapshot() {
        counts.add(operation.price.code(), count);
    }
    (result, counts)
}

/// Makes the requests of an operation that runs as a separate task count for the calling task.
pub fn metered_with_caller<T>(operation: impl Future<Output = T>) -> impl Future<Output = T> {
    let meter = METER.try_with(Arc::clone).ok();
    async move {
        match meter {
            Some(meter) => METER.scope(meter, operation).await,
            None => operation.await,
        }
    }
}

/// Counts of all requests since the start of the process, including retries.
#[derive(Debug, Default)]
pub struct StorageOperations {
    counts: Mutex<BTreeMap<Operation, u64>>,
    answers: Mutex<BTreeMap<Operation, Arc<Answers>>>,
}

/// Durations and failures of the requests of one kind.
#[derive(Debug)]
pub struct Answers {
    /// Response times of the store, including failed requests.
    pub durations: Durations,
    failed: AtomicU64,
}

impl Answers {
    /// Returns the number of requests that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl StorageOperations {
    /// Records the duration of a request. It failed if the store did not respond or was overloaded. A refusal for a
    /// reason, such as a changed row, is not a failure.
    pub fn answered(&self, operation: Operation, took: Duration, is_failure: bool) {
        let new = || Arc::new(Answers { durations: Durations::new(BOUNDS_MS), failed: AtomicU64::new(0) });
        let answers = Arc::clone(self.answers.lock().entry(operation).or_insert_with(new));
        answers.durations.record(took, 1);
        answers.failed.fetch_add(u64::from(is_failure), Ordering::Relaxed);
    }

    /// Returns durations and failures by kind of request.
    pub fn answers(&self) -> BTreeMap<Operation, Arc<Answers>> {
        self.answers.lock().clone()
    }

    /// Returns the total number of failed requests.
    pub fn failed(&self) -> u64 {
        self.answers.lock().values().fold(0, |sum, answers| sum.saturating_add(answers.failed()))
    }

    /// Counts one request.
    pub fn count(&self, operation: Operation) {
        self.count_here(operation);
        // Fails if the task is not metered.
        let _unmetered = METER.try_with(|meter| meter.count_here(operation));
    }

    fn count_here(&self, operation: Operation) {
        let mut counts = self.counts.lock();
        let count = counts.entry(operation).or_default();
        *count = count.saturating_add(1);
    }

    /// Returns the current counts.
    pub fn snapshot(&self) -> BTreeMap<Operation, u64> {
        self.counts.lock().clone()
    }
}
