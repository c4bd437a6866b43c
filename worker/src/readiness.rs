//! Whether the service can do its work, known from watching it work.
//!
//! Asking the store for every health check would cost money and could itself break a store that is
//! in trouble. So `/readyz` only reads a note. A failed request writes on it what is missing; one
//! task then probes that part until it answers again. While all is well and nobody calls, nothing
//! is asked of the store.

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

/// What the service needs to do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The ledger answers.
    Ledger,
    /// The queue answers.
    Queue,
    /// The store knows its first API key.
    FirstKey,
    /// Others know where to ring.
    ProcessRegistry,
    /// The process is not ending.
    Running,
}

impl Part {
    /// The name in `/readyz`.
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

/// The note of what is missing.
#[derive(Debug)]
pub struct Readiness {
    missing: Mutex<BTreeSet<Part>>,
    changed: Notify,
}

impl Readiness {
    /// A process that starts, and needs these parts: nothing was seen to work yet.
    pub fn starting(parts: impl IntoIterator<Item = Part>) -> Arc<Self> {
        Arc::new(Self { missing: Mutex::new(parts.into_iter().collect()), changed: Notify::new() })
    }

    /// Notes that a part did not do its work.
    pub fn lose(&self, part: Part) {
        if self.missing.lock().insert(part) {
            tracing::warn!(part = part.code(), "Not ready: {} is missing", part.code());
            self.changed.notify_one();
        }
    }

    /// Notes that a part works.
    pub fn gain(&self, part: Part) {
        if self.missing.lock().remove(&part) {
            tracing::info!(part = part.code(), "{} is there", part.code());
        }
    }

    /// What is missing; nothing when the service is ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.missing.lock().iter().map(|part| part.code()).collect()
    }

    /// Whether the process is about to end: it finishes what is in hand, and takes no more.
    pub fn is_ending(&self) -> bool {
        self.lacks(Part::Running)
    }

    fn lacks(&self, part: Part) -> bool {
        self.missing.lock().contains(&part)
    }

    fn lacks_store(&self) -> bool {
        self.lacks(Part::Ledger) || self.lacks(Part::Queue)
    }

    /// Probes what is missing until it is there, then waits until something is missing again. Ends
    /// when the process does: spawn it once.
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
