//! Readiness of the service, derived from the results of its own requests.
//!
//! A store request for each health check would cost money, and could overload a store that is already failing. Therefore
//! `/readyz` only reads a record. When a request of a client or of the worker fails, the missing part is recorded, and one task
//! probes it until it works again. While all parts work, no store requests are made.
//!
//! The ledger is probed by a read and a write. A store whose disk is full or whose access is restricted may answer reads only;
//! it accepts nothing, and a process without requests would not notice that otherwise. The rights of a process are checked at
//! its start, and repeatedly while some are missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join3;
use parking_lot::Mutex;
use postonce_shared::backoff::STORE_CHECK;
use postonce_shared::domain::account::Versioned;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::rights::QueueUse;
use postonce_shared::ports::store_files::StoreFiles;
use postonce_shared::ports::world::World;
use tokio::sync::Notify;

use postonce_shared::ports::fault::chain;

use crate::meter::Meter;

/// Name of the value that probes write. All processes write the same value.
const PROBED_VALUE: &str = "readiness-probe";

/// Number of consecutive failed checks of the rights after which the rights count as complete. A failed check counts only if
/// the store works and no right is known to be missing. Requests without a right fail in any case, but a process whose checks
/// always fail would never become ready.
const RIGHTS_CHECKS_MAX: u32 = 12;

/// Duration of an outage after which an error is logged.
const LONG_OUTAGE: Duration = Duration::from_secs(60);

/// A precondition for readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The ledger is available.
    Ledger,
    /// The queue is available.
    Queue,
    /// The process has the rights that it needs at the store.
    Rights,
    /// The store contains the first API key.
    FirstKey,
    /// The process is registered, so that other processes can ring it.
    ProcessRegistry,
    /// The process has the same secret as the other processes.
    Secret,
    /// The files of an embedded store are still those that the process has opened.
    Files,
    /// The file system of the store has enough free space.
    Disk,
    /// The TLS certificate is valid.
    Certificate,
    /// The process is not about to end.
    Staying,
    /// The process is not draining.
    Running,
}

impl Part {
    /// All parts, in the order of `/readyz`.
    pub const ALL: [Self; 11] = [
        Self::Ledger,
        Self::Queue,
        Self::Rights,
        Self::FirstKey,
        Self::ProcessRegistry,
        Self::Secret,
        Self::Files,
        Self::Disk,
        Self::Certificate,
        Self::Staying,
        Self::Running,
    ];

    /// Returns the name in `/readyz`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::Queue => "queue",
            Self::Rights => "rights",
            Self::FirstKey => "first_key",
            Self::ProcessRegistry => "roster",
            Self::Secret => "secret",
            Self::Files => "files",
            Self::Disk => "disk",
            Self::Certificate => "certificate",
            Self::Staying => "staying",
            Self::Running => "running",
        }
    }

    /// Returns the reason that is reported while the part is missing. Without a separate address for operators, everyone can
    /// read these texts and the names of missing roles, so they must not contain secrets.
    const fn reason(self) -> &'static str {
        match self {
            Self::Ledger => "the ledger does not answer reads and writes",
            Self::Queue => "the queue does not answer",
            Self::Rights => "the process lacks rights at the storage, or they were not checked yet",
            Self::FirstKey => "the first API key is not stored yet",
            Self::ProcessRegistry => {
                "the process is not in the process registry, so other processes cannot reach it"
            }
            Self::Secret => "the ring-secret differs from that of other processes, or was not compared yet",
            Self::Files => {
                "a file of the store was removed, moved or replaced, or this cannot be checked; the log names it"
            }
            Self::Disk => "the file system of the store is almost full",
            Self::Certificate => "the TLS certificate has expired",
            Self::Staying => "the process ends soon, and still accepts requests",
            Self::Running => "the process is draining",
        }
    }
}

/// A part that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPart {
    /// Which part is missing.
    pub part: Part,
    /// The time at which this was noticed.
    pub since: Timestamp,
    /// The reason, with details.
    pub reason: String,
}

#[derive(Debug, Clone, Copy)]
struct Missing {
    since: Timestamp,
    /// False while a starting process still waits for the part for the first time.
    is_outage: bool,
}

/// The record of missing parts.
pub struct Readiness {
    world: Arc<dyn World>,
    missing: Arc<Mutex<BTreeMap<Part, Missing>>>,
    /// Names of the roles or permissions that would grant the missing rights.
    lacking: Mutex<Vec<String>>,
    /// Number of consecutive failed checks of the rights while the store worked.
    unchecked: AtomicU32,
    changed: Notify,
}

impl Readiness {
    /// Creates the record of a starting process. The given parts count as missing until they work.
    pub fn starting(parts: impl IntoIterator<Item = Part>, world: &Arc<dyn World>) -> Arc<Self> {
        let since = world.now();
        let missing = parts.into_iter().map(|part| (part, Missing { since, is_outage: false })).collect();
        let missing = Arc::new(Mutex::new(missing));
        Arc::new(Self {
            world: Arc::clone(world),
            missing,
            lacking: Mutex::default(),
            unchecked: AtomicU32::default(),
            changed: Notify::new(),
        })
    }

    /// Records that a part is missing.
    pub fn lose(&self, part: Part) {
        let since = self.world.now();
        {
            let mut missing = self.missing.lock();
            if missing.contains_key(&part) {
                return;
            }
            missing.insert(part, Missing { since, is_outage: true });
        }
        let (code, reason) = (part.code(), part.reason());
        match part {
            // An intended end of the process is not an outage.
            Part::Staying | Part::Running => tracing::info!(part = code, "Not ready any more: {reason}"),
            Part::Ledger
            | Part::Queue
            | Part::Rights
            | Part::FirstKey
            | Part::ProcessRegistry
            | Part::Secret
            | Part::Files
            | Part::Disk
            | Part::Certificate => {
                tracing::warn!(part = code, "Not ready, {code} is missing: {reason}");
                self.report_if_long(part, since);
            }
        }
        self.changed.notify_one();
    }

    /// Records failures of queue and ledger that the worker of this process reports, and whether the files of the store are
    /// intact. Runs until the process ends; spawn it once.
    pub async fn follow(self: Arc<Self>, meter: Arc<Meter>, mut files: StoreFiles) {
        let lose_when = async |part, unavailable: &Notify| {
            loop {
                unavailable.notified().await;
                self.lose(part);
            }
        };
        let queue = lose_when(Part::Queue, &meter.queue_unavailable);
        let watching_files = async {
            loop {
                if files.are_intact() {
                    self.gain(Part::Files);
                } else {
                    self.lose(Part::Files);
                }
                files.changed().await;
            }
        };
        join3(queue, lose_when(Part::Ledger, &meter.ledger_unavailable), watching_files).await;
    }

    /// Logs an error if the part stays missing for [`LONG_OUTAGE`].
    fn report_if_long(&self, part: Part, since: Timestamp) {
        let (missing, world) = (Arc::clone(&self.missing), Arc::clone(&self.world));
        let report = async move {
            world.sleep(LONG_OUTAGE).await;
            if missing.lock().get(&part).is_some_and(|missing| missing.since == since) {
                let (code, reason) = (part.code(), part.reason());
                tracing::error!(part = code, "Not ready for {LONG_OUTAGE:?}, {code} is missing: {reason}");
            }
        };
        self.world.spawn(report.boxed());
    }

    /// Records that a part works.
    pub fn gain(&self, part: Part) {
        let missing = self.missing.lock().remove(&part);
        let Some(Missing { since, is_outage }) = missing else { return };
        let (code, lasted) = (part.code(), self.world.now().since(since));
        if is_outage {
            tracing::warn!(part = code, "The outage of {lasted:.1?} ended: {code} is available");
        } else {
            tracing::info!(part = code, "Available {lasted:.1?} after the start: {code}");
        }
    }

    /// Returns the missing parts; empty when the service is ready.
    pub fn missing(&self) -> Vec<MissingPart> {
        let reason = |part: Part| match self.lacking.lock().as_slice() {
            lacking @ [_, ..] if part == Part::Rights => lacks(lacking),
            _ => part.reason().to_owned(),
        };
        let missing = self.missing.lock();
        let part = |(part, missing): (&Part, &Missing)| MissingPart {
            part: *part,
            since: missing.since,
            reason: reason(*part),
        };
        missing.iter().map(part).collect()
    }

    /// Returns whether the process is draining.
    pub fn is_ending(&self) -> bool {
        self.lacks(Part::Running)
    }

    fn lacks(&self, part: Part) -> bool {
        self.missing.lock().contains_key(&part)
    }

    fn lacks_store(&self) -> bool {
        [Part::Ledger, Part::Queue, Part::Rights].into_iter().any(|part| self.lacks(part))
    }

    /// Probes missing parts until they work, then waits for the next outage. Returns when the process drains; spawn it once.
    pub async fn watch(self: Arc<Self>, store: Store, queue: (QueueName, QueueUse), world: Arc<dyn World>) {
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

    async fn probe(&self, store: &Store, (queue, queue_use): &(QueueName, QueueUse)) {
        if self.lacks(Part::Ledger) {
            self.probed(Part::Ledger, self.probe_ledger(store).await);
        }
        if self.lacks(Part::Queue) {
            self.probed(Part::Queue, store.queue.backlog(queue).await.map(drop));
        }
        if self.lacks(Part::Rights) {
            match store.rights.lacking(queue, *queue_use).await {
                Ok(lacking) => self.checked(lacking),
                Err(fault) => {
                    let works = !self.lacks(Part::Ledger)
                        && !self.lacks(Part::Queue)
                        && self.probe_ledger(store).await.is_ok()
                        && store.queue.backlog(queue).await.is_ok();
                    self.unchecked(fault, works);
                }
            }
        }
    }

    /// Probes the ledger by a read, and by a write to a separate value.
    async fn probe_ledger(&self, store: &Store) -> Result<(), StoreFault> {
        store.ledger.probe().await?;
        let before = store.sync.get(PROBED_VALUE).await?;
        let expected = before.as_ref().map(|Versioned { revision, .. }| revision);
        // A conflict with another process's write also proves that the store accepts writes.
        let _swapped = store.sync.swap(PROBED_VALUE, expected, &self.world.now().to_string()).await?;
        Ok(())
    }

    /// Records the missing rights that a check returned.
    fn checked(&self, lacking: Vec<String>) {
        self.unchecked.store(0, Ordering::Relaxed);
        let is_told = std::mem::replace(&mut *self.lacking.lock(), lacking.clone()) == lacking;
        if lacking.is_empty() {
            return self.gain(Part::Rights);
        }
        if !is_told {
            tracing::error!(part = Part::Rights.code(), "Not ready: {}", lacks(&lacking));
        }
        self.lacked_since_start(Part::Rights);
    }

    /// Records a failed check of the rights. `works` is true if other operations of the store succeed.
    fn unchecked(&self, fault: StoreFault, works: bool) {
        let may_be_complete = works && self.lacking.lock().is_empty();
        if may_be_complete && self.unchecked.fetch_add(1, Ordering::Relaxed) >= RIGHTS_CHECKS_MAX {
            tracing::error!(
                "The rights at the storage cannot be checked, and count as complete: {}",
                chain(&fault)
            );
            return self.gain(Part::Rights);
        }
        self.probed(Part::Rights, Err(fault));
    }

    fn probed(&self, part: Part, answer: Result<(), StoreFault>) {
        match answer {
            Ok(()) => self.gain(part),
            Err(fault) => {
                tracing::debug!(part = part.code(), "Still missing: {}", chain(&fault));
                self.lacked_since_start(part);
            }
        }
    }

    /// Turns a part that a starting process is still waiting for into an outage.
    fn lacked_since_start(&self, part: Part) {
        let since = {
            let mut missing = self.missing.lock();
            let Some(missing) = missing.get_mut(&part).filter(|missing| !missing.is_outage) else { return };
            missing.is_outage = true;
            missing.since
        };
        let (code, reason) = (part.code(), part.reason());
        tracing::warn!(part = code, "Not ready since the start, {code} is missing: {reason}");
        self.report_if_long(part, since);
    }
}

fn lacks(lacking: &[String]) -> String {
    format!("the process lacks at the storage: {}", lacking.join(", "))
}

#[cfg(test)]
mod tests;
