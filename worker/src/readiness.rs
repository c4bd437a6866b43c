//! Readiness of the service, derived from the outcome of its own requests.
//!
//! A request to the store for each health check would cost money, and could overload a store that is already failing.
//! Therefore `/readyz` only reads a record. A failed request, of a client or of the worker, records the missing part, and one task
//! probes that part until it works again. While all parts work, no requests are made to the store.
//!
//! The ledger is probed by a read and a write: a store that only answers reads, because its disk is full or its access
//! is restricted, accepts nothing, and while the process gets no requests, no request would show that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join;
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

use crate::meter::Meter;

/// Name of the value that a probe writes; all processes write the same one.
const PROBED_VALUE: &str = "readiness-probe";

/// Time without a part after which the log reports an error.
const LONG_OUTAGE: Duration = Duration::from_secs(60);

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
    /// Every part.
    pub const ALL: [Self; 9] = [
        Self::Ledger,
        Self::Queue,
        Self::FirstKey,
        Self::ProcessRegistry,
        Self::Secret,
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

#[derive(Debug, Clone, Copy)]
struct Missing {
    since: Timestamp,
    /// False for parts that a starting process has not had yet.
    is_outage: bool,
}

/// The record of missing parts.
pub struct Readiness {
    world: Arc<dyn World>,
    missing: Arc<Mutex<BTreeMap<Part, Missing>>>,
    changed: Notify,
}

impl Readiness {
    /// Creates the record of a starting process: the given parts count as missing until they work.
    pub fn starting(parts: impl IntoIterator<Item = Part>, world: &Arc<dyn World>) -> Arc<Self> {
        let since = world.now();
        let missing = parts.into_iter().map(|part| (part, Missing { since, is_outage: false })).collect();
        let missing = Arc::new(Mutex::new(missing));
        Arc::new(Self { world: Arc::clone(world), missing, changed: Notify::new() })
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
            // The process ends as it was asked to.
            Part::Staying | Part::Running => tracing::info!(part = code, "Not ready any more: {reason}"),
            Part::Ledger
            | Part::Queue
            | Part::FirstKey
            | Part::ProcessRegistry
            | Part::Secret
            | Part::Disk
            | Part::Certificate => {
                tracing::warn!(part = code, "Not ready, {code} is missing: {reason}");
                self.report_if_long(part, since);
            }
        }
        self.changed.notify_one();
    }

    /// Records the parts that fail for the worker of this process. Ends with the process; spawn it once.
    pub async fn follow(self: Arc<Self>, meter: Arc<Meter>) {
        let lose_when = async |part, unavailable: &Notify| {
            loop {
                unavailable.notified().await;
                self.lose(part);
            }
        };
        let queue = lose_when(Part::Queue, &meter.queue_unavailable);
        join(queue, lose_when(Part::Ledger, &meter.ledger_unavailable)).await;
    }

    /// Logs an error when the part is missing for [`LONG_OUTAGE`] without interruption.
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
        let missing = self.missing.lock();
        missing.iter().map(|(part, missing)| MissingPart { part: *part, since: missing.since }).collect()
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
            Err(fault) => {
                tracing::debug!(part = part.code(), "Still missing: {}", chain(&fault));
                self.lacked_since_start(part);
            }
        }
    }

    /// Records that a part that a starting process has not had yet does not answer, so this is an outage.
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

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::fault::Cause;
    use postonce_shared::testing::written::Written;

    use super::*;

    /// Lets the tasks run until they wait.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_outage_is_a_warning_an_error_after_a_minute_and_a_warning_at_its_end() {
        let written = Written::default();
        let lines = || written.lines().iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).without_time();
        let subscriber = subscriber.with_target(false);
        let _guard = tracing::subscriber::set_default(subscriber.with_ansi(false).finish());
        let test_world = Arc::new(TestWorld::new(1));
        let world: Arc<dyn World> = Arc::<TestWorld>::clone(&test_world);
        let readiness = Readiness::starting([Part::Queue], &world);
        let no_answer = || Cause::from(std::io::Error::other("no answer"));
        let unavailable = || Err(StoreFault::Unavailable { doing: "probe", source: no_answer() });
        let meter = Arc::<Meter>::default();
        world.spawn(Arc::clone(&readiness).follow(Arc::clone(&meter)).boxed());
        settle().await;

        // A worker meets it in many transactions. Another part fails from the start on.
        for _ in 0..100 {
            meter.ledger_unavailable.notify_one();
            settle().await;
            readiness.probed(Part::Queue, unavailable());
        }
        let begins = [
            "WARN Not ready, ledger is missing: the ledger does not answer reads and writes part=\"ledger\"",
            "WARN Not ready since the start, queue is missing: the queue does not answer part=\"queue\"",
        ];
        assert_eq!(lines(), begins);
        test_world.advance(LONG_OUTAGE.saturating_sub(Duration::from_millis(1)));
        settle().await;
        assert_eq!(lines().len(), 2, "{:#?}", lines());
        test_world.advance(Duration::from_millis(1));
        settle().await;
        let mut errors = lines().split_off(2);
        errors.sort();
        assert!(errors[0].starts_with("ERROR Not ready for 60s, ledger is missing"), "{errors:#?}");
        assert!(errors[1].starts_with("ERROR Not ready for 60s, queue is missing"), "{errors:#?}");
        test_world.advance(Duration::from_secs(5));
        readiness.probed(Part::Ledger, Ok(()));
        readiness.probed(Part::Queue, Ok(()));
        let ends = lines().split_off(4);
        assert_eq!(
            ends,
            ["ledger", "queue"]
                .map(|code| format!("WARN The outage of 65.0s ended: {code} is available part=\"{code}\""))
        );
    }
}
