//! Readiness of the service, derived from the outcome of its own requests.
//!
//! A request to the store for each health check would cost money, and could overload a store that is already failing.
//! Therefore `/readyz` only reads a record. A failed request records the missing part, and one task probes that part
//! until it works again. While all parts work, no requests are made to the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::backoff::STORE_CHECK;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use tokio::sync::Notify;

use postonce_shared::ports::fault::chain;

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
            Self::Running => "running",
        }
    }
}

/// The record of missing parts.
#[derive(Debug)]
pub struct Readiness {
    missing: Mutex<BTreeSet<Part>>,
    changed: Notify,
}

impl Readiness {
    /// Creates the record of a starting process: the given parts count as missing until they work.
    pub fn starting(parts: impl IntoIterator<Item = Part>) -> Arc<Self> {
        Arc::new(Self { missing: Mutex::new(parts.into_iter().collect()), changed: Notify::new() })
    }

    /// Records that a part is missing.
    pub fn lose(&self, part: Part) {
        if self.missing.lock().insert(part) {
            tracing::warn!(part = part.code(), "Not ready: {} is missing", part.code());
            self.changed.notify_one();
        }
    }

    /// Records that a part works.
    pub fn gain(&self, part: Part) {
        if self.missing.lock().remove(&part) {
            tracing::info!(part = part.code(), "Available again: {}", part.code());
        }
    }

    /// Returns the missing parts; empty when the service is ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.missing.lock().iter().map(|part| part.code()).collect()
    }

    /// Returns whether the process drains: it finishes work in progress and takes no more.
    pub fn is_ending(&self) -> bool {
        self.lacks(Part::Running)
    }

    fn lacks(&self, part: Part) -> bool {
        self.missing.lock().contains(&part)
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
            self.probed(Part::Ledger, store.ledger.probe().await);
        }
        if self.lacks(Part::Queue) {
            self.probed(Part::Queue, store.queue.backlog(queue).await.map(drop));
        }
    }

    fn probed(&self, part: Part, answer: Result<(), StoreFault>) {
        match answer {
            Ok(()) => self.gain(part),
            Err(fault) => tracing::debug!(part = part.code(), "Still missing: {}", chain(&fault)),
        }
    }
}
