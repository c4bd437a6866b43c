//! Readiness of the service, derived from the outcome of its own requests.
//!
//! A request to the store for each health check would cost money, and could overload a store that is already failing.
//! Therefore `/readyz` only reads a record. A failed request records the missing part, and one task probes that part
//! until it works again. While all parts work, no requests are made to the store.
//!
//! The ledger is probed by a read and a write: a store that only answers reads, because its disk is full or its access
//! is restricted, accepts nothing, and while the process gets no requests, no request would show that.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::backoff::STORE_CHECK;
use postonce_shared::domain::account::Versioned;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use tokio::sync::Notify;

use postonce_shared::ports::fault::chain;

/// Name of the value that a probe writes; all processes write the same one.
const PROBED_VALUE: &str = "readiness-probe";

/// A part that the service needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The ledger is available.
    Ledger,
    /// The queue is available.
    Queue,
    /// The store contains the first API key.
    FirstKey,
    /// The process is registered, so that other processes can ring it.
    ProcessRegistry,
    /// The secret of the process is that of the other processes.
    Secret,
    /// The file system of the store has room.
    Disk,
    /// The TLS certificate is valid.
    Certificate,
    /// The process does not end soon.
    Staying,
    /// The process is not draining.
    Running,
}

impl Part {
    /// Returns the name in `/readyz`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::Queue => "queue",
            Self::FirstKey => "first_key",
            Self::ProcessRegistry => "roster",
            Self::Secret => "secret",
            Self::Disk => "disk",
            Self::Certificate => "certificate",
            Self::Staying => "staying",
            Self::Running => "running",
        }
    }

    /// Returns what it means that the part is missing. Without an address for operators, everybody may read it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ledger => "the ledger does not answer reads and writes",
            Self::Queue => "the queue does not answer",
            Self::FirstKey => "the first API key is not stored yet",
            Self::ProcessRegistry => {
                "the process is not in the process registry, so other processes cannot reach it"
            }
            Self::Secret => "the ring-secret differs from that of other processes, or was not compared yet",
            Self::Disk => "the file system of the store is almost full",
            Self::Certificate => "the TLS certificate has expired",
            Self::Staying => "the process ends soon, and still accepts requests",
            Self::Running => "the process is draining",
        }
    }
}

/// A part that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPart {
    /// The part.
    pub part: Part,
    /// The time when this was noticed.
    pub since: Timestamp,
}

/// The record of missing parts.
pub struct Readiness {
    world: Arc<dyn World>,
    missing: Mutex<BTreeMap<Part, Timestamp>>,
    changed: Notify,
}

impl Readiness {
    /// Creates the record of a starting process: the given parts count as missing until they work.
    pub fn starting(parts: impl IntoIterator<Item = Part>, world: &Arc<dyn World>) -> Arc<Self> {
        let missing = parts.into_iter().map(|part| (part, world.now())).collect();
        Arc::new(Self { world: Arc::clone(world), missing: Mutex::new(missing), changed: Notify::new() })
    }

    /// Records that a part is missing.
    pub fn lose(&self, part: Part) {
        {
            let mut missing = self.missing.lock();
            if missing.contains_key(&part) {
                return;
            }
            missing.insert(part, self.world.now());
        }
        tracing::warn!(part = part.code(), "Not ready, {} is missing: {}", part.code(), part.reason());
        self.changed.notify_one();
    }

    /// Records that a part works.
    pub fn gain(&self, part: Part) {
        let since = self.missing.lock().remove(&part);
        if let Some(since) = since {
            let lasted = self.world.now().since(since);
            tracing::info!(part = part.code(), "Available after {lasted:.1?}: {}", part.code());
        }
    }

    /// Returns the missing parts; empty when the service is ready.
    pub fn missing(&self) -> Vec<MissingPart> {
        self.missing.lock().iter().map(|(part, since)| MissingPart { part: *part, since: *since }).collect()
    }

    /// Returns whether the process drains: it finishes work in progress and takes no more.
    pub fn is_ending(&self) -> bool {
        self.lacks(Part::Running)
    }

    fn lacks(&self, part: Part) -> bool {
        self.missing.lock().contains_key(&part)
    }

    fn lacks_store(&self) -> bool {
        self.lacks(Part::Ledger) || self.lacks(Part::Queue)
    }

    /// Probes the missing parts until they work, then waits until a part is missing again. Ends with the process;
    /// spawn it once.
    pub async fn watch(self: Arc<Self>, store: Store, queue: QueueName, world: Arc<dyn World>) {
        let mut backoff = STORE_CHECK.start();
        while !self.lacks(Part::Running) {
            self.probe(&store, &queue).await;
            if self.lacks_store() {
                world.sleep(backoff.next(&*world)).await;
            } else {
                backoff.reset();
                self.changed.notified().await;
            }
        }
    }

    async fn probe(&self, store: &Store, queue: &QueueName) {
        if self.lacks(Part::Ledger) {
            self.probed(Part::Ledger, self.probe_ledger(store).await);
        }
        if self.lacks(Part::Queue) {
            self.probed(Part::Queue, store.queue.backlog(queue).await.map(drop));
        }
    }

    /// Reads the ledger, and writes a value beside it.
    async fn probe_ledger(&self, store: &Store) -> Result<(), StoreFault> {
        store.ledger.probe().await?;
        let before = store.sync.get(PROBED_VALUE).await?;
        let expected = before.as_ref().map(|Versioned { revision, .. }| revision);
        // If another process wrote first, the store answers writes as well.
        let _swapped = store.sync.swap(PROBED_VALUE, expected, &self.world.now().to_string()).await?;
        Ok(())
    }

    fn probed(&self, part: Part, answer: Result<(), StoreFault>) {
        match answer {
            Ok(()) => self.gain(part),
            Err(fault) => tracing::debug!(part = part.code(), "Still missing: {}", chain(&fault)),
        }
    }
}
