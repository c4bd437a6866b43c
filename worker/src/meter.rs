//! What the worker counts, for metrics and for the operators' view of the queues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::ports::queue::QueueName;

/// A count since the start of the process.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a worker.
#[derive(Debug, Default)]
pub struct Meter {
    /// Messages received.
    pub received: Counter,
    /// Pieces of work that became final, or were found final.
    pub settled: Counter,
    /// Pieces of work that met a fault which may pass.
    pub transient_faults: Counter,
    /// Pieces of work that met a fault which does not pass.
    pub permanent_faults: Counter,
    /// Messages that were set aside.
    pub dead_letters: Counter,
    /// Envelopes that were taken apart into single items.
    pub splits: Counter,
    /// Leases that were lost before the message was settled.
    pub leases_lost: Counter,
    /// Messages that wait for a newer worker.
    pub newer_versions: Counter,
    /// Messages whose work was settled before they came.
    pub settled_before: Counter,
    /// Messages without a valid seal.
    pub unsealed: Counter,
    /// Orders of direct producers that were accepted, or found accepted.
    pub admitted: Counter,
    /// Orders of direct producers that came above the rate of their partner, each time they did.
    pub postponed: Counter,
    /// Receives that met a fault.
    pub queue_faults: Counter,
    /// Pieces of work that met a fault of the ledger.
    pub ledger_faults: Counter,
    listeners: Mutex<BTreeMap<QueueName, Arc<ListenerGauge>>>,
}

/// The listeners of one queue in this process.
#[derive(Debug, Default)]
pub struct ListenerGauge {
    active: AtomicU64,
    max: AtomicU64,
    depth: AtomicU64,
    oldest_age_ms: AtomicU64,
}

/// A look at [`ListenerGauge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Listeners {
    /// Listeners that have work in hand.
    pub active: u64,
    /// Listeners that there can be.
    pub max: u64,
    /// Messages that were seen to wait behind those in hand, as far as was asked.
    pub depth: u64,
    /// How long the oldest message had waited that was received last.
    pub oldest_age: Duration,
}

impl Meter {
    /// Every counter with its name and what it counts, for metrics and for other processes.
    pub const fn counters(&self) -> [(&'static str, &'static str, &Counter); 14] {
        [
            ("messages_received", "Queue messages received", &self.received),
            ("settled", "Transactions that became final, or were found final", &self.settled),
            ("transient_faults", "Faults that may pass", &self.transient_faults),
            ("permanent_faults", "Faults that do not pass", &self.permanent_faults),
            ("dead_letters", "Messages set aside for a person", &self.dead_letters),
            ("splits", "Envelopes taken apart into single items", &self.splits),
            ("leases_lost", "Messages whose lease was lost before they were settled", &self.leases_lost),
            ("newer_versions", "Messages that wait for a newer worker", &self.newer_versions),
            ("settled_before", "Messages whose work was settled before they came", &self.settled_before),
            (
                "unsealed_messages",
                "Messages without a valid seal, whose transactions were read from the log",
                &self.unsealed,
            ),
            ("admitted", "Orders of direct producers accepted, or found accepted", &self.admitted),
            (
                "postponed",
                "Orders of direct producers postponed by the rate of their partner",
                &self.postponed,
            ),
            ("queue_faults", "Receives that failed", &self.queue_faults),
            ("ledger_faults", "Transactions that met a fault of the ledger", &self.ledger_faults),
        ]
    }

    /// The gauges of all queues.
    pub fn all_listeners(&self) -> BTreeMap<QueueName, Listeners> {
        let listeners = self.listeners.lock();
        listeners.iter().map(|(queue, gauge)| (queue.clone(), gauge.look())).collect()
    }

    /// The gauge of a queue; made on first use.
    pub fn listeners(&self, queue: &QueueName) -> Arc<ListenerGauge> {
        let mut listeners = self.listeners.lock();
        Arc::clone(listeners.entry(queue.clone()).or_default())
    }
}

impl ListenerGauge {
    /// Says how many there can be.
    pub fn allow(&self, max: usize) {
        self.max.store(u64::try_from(max).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Notes what was seen to wait, beyond what is in hand.
    pub fn see(&self, depth: u64, oldest_age: Duration) {
        self.depth.store(depth, Ordering::Relaxed);
        let oldest_age_ms = u64::try_from(oldest_age.as_millis()).unwrap_or(u64::MAX);
        self.oldest_age_ms.store(oldest_age_ms, Ordering::Relaxed);
    }

    /// The depth that was seen last.
    pub fn depth(&self) -> u64 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Counts a listener as busy until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.active.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// How many there are.
    pub fn look(&self) -> Listeners {
        Listeners {
            active: self.active.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            depth: self.depth(),
            oldest_age: Duration::from_millis(self.oldest_age_ms.load(Ordering::Relaxed)),
        }
    }
}

/// A busy listener.
#[derive(Debug)]
pub struct Busy(Arc<ListenerGauge>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
