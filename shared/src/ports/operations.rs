//! What the store is asked to do, counted by kind: cost is a feature.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// A service of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Rows.
    Table,
    /// Messages.
    Queue,
    /// Large bodies.
    Blob,
}

impl Service {
    /// Every service.
    pub const ALL: [Self; 3] = [Self::Table, Self::Queue, Self::Blob];

    /// The service of that name.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.code() == code)
    }

    /// The name in metrics and in the API.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
        }
    }
}

/// How an operation is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriceKind {
    /// One table row read or written.
    Table,
    /// A table batch, or a scan.
    TableBatch,
    /// Any queue operation.
    Queue,
    /// A blob written.
    BlobWrite,
    /// A blob read, or anything else on blobs.
    BlobRead,
}

impl PriceKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Table, Self::TableBatch, Self::Queue, Self::BlobWrite, Self::BlobRead];

    /// The kind of that name.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The name in metrics and in the API.
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
    /// The operation in the service's own word, lower case with `_`.
    pub name: &'static str,
    /// How it is priced.
    pub price: PriceKind,
}

/// Counts since the start of the process: every request that went out, retries included.
#[derive(Debug, Default)]
pub struct StorageOperations(Mutex<BTreeMap<Operation, u64>>);

impl StorageOperations {
    /// Counts one request.
    pub fn count(&self, operation: Operation) {
        let mut counts = self.0.lock();
        let count = counts.entry(operation).or_default();
        *count = count.saturating_add(1);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> BTreeMap<Operation, u64> {
        self.0.lock().clone()
    }
}
