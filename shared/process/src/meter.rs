//! Counters of a worker, for metrics and for the status of its queues.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::scrubber::ScrubberStatus;
use postonce_shared::ports::queue::QueueName;
use tokio::sync::Notify;

use crate::activity::ActivityHistory;

/// A count since the start of the process.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a worker.
#[derive(Debug, Default)]
pub struct Meter {
    /// Messages received.
    pub received: Counter,
    /// Transactions that became final, or were already final.
    pub settled: Counter,
    /// Transactions that met a transient fault.
    pub transient_faults: Counter,
    /// Transactions that met a permanent fault.
    pub permanent_faults: Counter,
    /// Messages that became dead letters.
    pub dead_letters: Counter,
    /// Envelopes that were split into messages of one item.
    pub splits: Counter,
    /// Leases that were lost before the message was settled.
    pub leases_lost: Counter,
    /// Messages that were left in the queue for a worker of a newer version.
    pub newer_versions: Counter,
    /// Receives of messages whose payloads were lost.
    pub payloads_missing: Counter,
    /// Messages whose work was already final when they were received.
    pub settled_before: Counter,
    /// Messages without a valid seal.
    pub unsealed: Counter,
    /// Orders of direct producers that were accepted now or earlier, for each delivery of their message.
    pub admitted: Counter,
    /// Orders of direct producers postponed because of their partner's rate limit, counted for each postponement.
    pub postponed: Counter,
    /// Receive requests that failed.
    pub queue_faults: Counter,
    /// Transactions that met a fault of the ledger.
    pub ledger_faults: Counter,
    /// Notified when a receive request fails.
    pub queue_unavailable: Notify,
    /// Notified when a transaction fails because the ledger does not answer.
    pub ledger_unavailable: Notify,
    /// Progress of this process's scrubber.
    pub scrubber: Arc<ScrubberStatus>,
    /// Disk space of an embedded store.
    pub disk: DiskUsage,
    /// Results of the scheduled backups.
    pub backups: BackupMeter,
    /// Requests to the API that the process answered with a status of 500 or above.
    pub request_errors: Counter,
    /// Activity of the process in the last hour.
    pub activity: ActivityHistory,
    listeners: Mutex<BTreeMap<QueueName, Arc<ListenerGauge>>>,
    /// The rule for the number of receivers; empty in a process that listens to no queue.
    receivers_rule: OnceLock<String>,
    /// One entry for each kind of work.
    assigned: Mutex<Vec<AssignedQueues>>,
}

/// Returns the queues assigned to the process by a lease.
struct AssignedQueues(Box<dyn Fn() -> Vec<QueueName> + Send + Sync>);

impl fmt::Debug for AssignedQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((self.0)()).finish()
    }
}

/// Results of the scheduled backups of a process.
#[derive(Debug, Default)]
pub struct BackupMeter {
    /// Completed backups.
    pub taken: Counter,
    /// Failed attempts.
    pub failed: Counter,
    /// Whether the newest backup is recent enough; `None` before the first check and without scheduled backups.
    current: Mutex<Option<bool>>,
}

impl BackupMeter {
    /// Records whether the newest backup is recent enough.
    pub fn note_current(&self, is_current: bool) {
        *self.current.lock() = Some(is_current);
    }

    /// Returns the last recorded value; `None` if the process takes no backups.
    pub fn current(&self) -> Option<bool> {
        *self.current.lock()
    }
}

/// Gauges of the receivers of one queue in this process.
#[derive(Debug, Default)]
pub struct ListenerGauge {
    active: AtomicU64,
    max: AtomicU64,
    leased: AtomicU64,
    observed: Mutex<Option<Observed>>,
    /// Orders of direct producers in the queue.
    pub orders: OrderCounts,
}

/// Counts of the orders of direct producers from one queue.
#[derive(Debug, Default)]
pub struct OrderCounts {
    /// Accepted now or earlier, for each delivery of their message.
    pub accepted: Counter,
    /// Refused: became dead letters.
    pub refused: Counter,
    /// Postponed because of the rate of their partner, for each postponement.
    pub postponed: Counter,
}

/// The messages waiting in a queue, as last observed by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// Time of the observation.
    pub at: Timestamp,
    /// Waiting messages, without those in progress.
    pub depth: u64,
    /// Waiting time of the oldest message in the last receive.
    pub oldest_age: Duration,
}

/// Disk space of an embedded store.
#[derive(Debug, Default)]
pub struct DiskUsage(Mutex<Option<DiskBytes>>);

/// Sizes in bytes; `None` if the file system does not report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskBytes {
    /// Space that the process may still use.
    pub free: Option<u64>,
    /// Size of the database file.
    pub database: Option<u64>,
    /// Size of the write-ahead log.
    pub log: Option<u64>,
}

impl DiskUsage {
    /// Replaces the recorded sizes.
    pub fn record(&self, bytes: DiskBytes) {
        *self.0.lock() = Some(bytes);
    }

    /// Returns the last recorded sizes; `None` before the first, and for a store on other machines.
    pub fn get(&self) -> Option<DiskBytes> {
        *self.0.lock()
    }
}

/// A snapshot of a [`ListenerGauge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Listeners {
    /// Receivers that are handling messages.
    pub active: u64,
    /// Maximum number of receivers.
    pub max: u64,
    /// Messages that were received, and leased, but not yet settled.
    pub leased: u64,
    /// Waiting messages; `None` before the first receive.
    pub observed: Option<Observed>,
}

impl Meter {
    /// Returns each counter with its name and help text.
    pub const fn counters(&self) -> [(&'static str, &'static str, &Counter); 15] {
        [
            ("messages_received", "Queue messages received", &self.received),
            ("settled", "Transactions that became final, or were already final", &self.settled),
            ("transient_faults", "Transactions that met a transient fault", &self.transient_faults),
            ("permanent_faults", "Transactions that met a permanent fault", &self.permanent_faults),
            ("dead_letters", "Messages that became dead letters", &self.dead_letters),
            ("splits", "Envelopes split into messages of one item", &self.splits),
            ("leases_lost", "Leases lost before the message was settled", &self.leases_lost),
            ("newer_versions", "Messages that wait for a newer worker", &self.newer_versions),
            (
                "payloads_missing",
                "Receipts of messages that wait because their payloads were lost",
                &self.payloads_missing,
            ),
            (
                "settled_before",
                "Messages whose work was already final when they were received",
                &self.settled_before,
            ),
            (
                "unsealed_messages",
                "Messages without a valid seal; their transactions are read from the log",
                &self.unsealed,
            ),
            ("admitted", "Orders of direct producers accepted, or accepted before", &self.admitted),
            (
                "postponed",
                "Orders of direct producers postponed because of the request rate of their partner",
                &self.postponed,
            ),
            ("queue_faults", "Receive requests that failed", &self.queue_faults),
            ("ledger_faults", "Transactions that met a fault of the ledger", &self.ledger_faults),
        ]
    }

    /// Records the rule by which this process chooses the number of receivers of a queue. Only the first call has an effect.
    pub fn report_receivers_rule(&self, rule: String) {
        self.receivers_rule.get_or_init(|| rule);
    }

    /// Returns the rule by which this process chooses the number of receivers; `None` if it listens to no queue.
    pub fn receivers_rule(&self) -> Option<&str> {
        self.receivers_rule.get().map(String::as_str)
    }

    /// Returns the gauges of all queues.
    pub fn all_listeners(&self) -> BTreeMap<QueueName, Listeners> {
        let listeners = self.listeners.lock();
        listeners.iter().map(|(queue, gauge)| (queue.clone(), gauge.snapshot())).collect()
    }

    /// Returns the gauges of the ingest queues.
    pub fn ingest_queues(&self) -> Vec<(QueueName, Arc<ListenerGauge>)> {
        let listeners = self.listeners.lock();
        let ingest = listeners.iter().filter(|(queue, _)| queue.ingest().is_some());
        ingest.map(|(queue, gauge)| (queue.clone(), Arc::clone(gauge))).collect()
    }

    /// Returns the queues that are assigned to the process by leases.
    pub fn assigned(&self) -> Vec<QueueName> {
        self.assigned.lock().iter().flat_map(|AssignedQueues(assigned)| assigned()).collect()
    }

    /// Registers a function that returns queues assigned to the process by leases.
    pub fn report_assigned(&self, assigned: impl Fn() -> Vec<QueueName> + Send + Sync + 'static) {
        self.assigned.lock().push(AssignedQueues(Box::new(assigned)));
    }

    /// Returns the gauge of a queue, and creates it on first use.
    pub fn listeners(&self, queue: &QueueName) -> Arc<ListenerGauge> {
        let mut listeners = self.listeners.lock();
        Arc::clone(listeners.entry(queue.clone()).or_default())
    }
}

impl ListenerGauge {
    /// Sets the maximum number of receivers.
    pub fn set_max(&self, max: usize) {
        self.max.store(u64::try_from(max).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Records the number of waiting messages, without those in progress, and the age of the oldest one.
    pub fn record_backlog(&self, at: Timestamp, depth: u64, oldest_age: Duration) {
        *self.observed.lock() = Some(Observed { at, depth, oldest_age });
    }

    /// Returns the last recorded number of waiting messages; zero before the first.
    pub fn depth(&self) -> u64 {
        self.observed.lock().map_or(0, |observed| observed.depth)
    }

    /// Counts messages as leased until the guard is dropped.
    pub fn lease(self: &Arc<Self>, messages: usize) -> Counted {
        self.counted(|gauge| &gauge.leased, u64::try_from(messages).unwrap_or(u64::MAX))
    }

    /// Counts a receiver as active until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> Counted {
        self.counted(|gauge| &gauge.active, 1)
    }

    fn counted(self: &Arc<Self>, counter: fn(&Self) -> &AtomicU64, number: u64) -> Counted {
        counter(self).fetch_add(number, Ordering::Relaxed);
        Counted { gauge: Arc::clone(self), counter, number }
    }

    /// Returns the current values.
    pub fn snapshot(&self) -> Listeners {
        Listeners {
            active: self.active.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            leased: self.leased.load(Ordering::Relaxed),
            observed: *self.observed.lock(),
        }
    }
}

/// Increases a gauge until it is dropped: by an active receiver, or by leased messages.
#[derive(Debug)]
pub struct Counted {
    gauge: Arc<ListenerGauge>,
    counter: fn(&ListenerGauge) -> &AtomicU64,
    number: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.gauge).fetch_sub(self.number, Ordering::Relaxed);
    }
}
