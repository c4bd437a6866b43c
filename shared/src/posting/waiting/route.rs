//! The routes by which requests were served: at once, or through the queue for a reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// The route of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// This process posted or rejected the transaction in the step that inserted it.
    Immediate,
    /// The work was put on the queue, unless the transaction existed before.
    Queued(QueueReason),
}

/// The reason why a request was not served at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueReason {
    /// The client does not wait for the outcome.
    NotWaiting,
    /// Immediate posting is switched off.
    Off,
    /// The gate is held, or its state is unknown.
    GateHeld,
    /// The process is not registered, so a change of the gate would not be sent to it; or it drains.
    Unregistered,
    /// Accepted transactions of the account are not final.
    OpenWork,
    /// The account cannot pay, and accepted transactions that this process does not know may change that.
    Rejection,
    /// Other processes change the account at the same time.
    Contended,
    /// The key exists.
    KeyTaken,
    /// The rights of the caller may have changed. They are looked up again before anything is stored.
    RightsChanged,
    /// The store or the order numbers were not available, or posting failed otherwise. The transaction may be posted.
    Fault,
    /// The waiting time of the request ended first. The transaction may be posted.
    Late,
}

impl QueueReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::NotWaiting,
        Self::Off,
        Self::GateHeld,
        Self::Unregistered,
        Self::OpenWork,
        Self::Rejection,
        Self::Contended,
        Self::KeyTaken,
        Self::RightsChanged,
        Self::Fault,
        Self::Late,
    ];

    /// Returns the label in metrics, such as `not_waiting`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotWaiting => "not_waiting",
            Self::Off => "off",
            Self::GateHeld => "gate_held",
            Self::Unregistered => "unregistered",
            Self::OpenWork => "open_work",
            Self::Rejection => "rejection",
            Self::Contended => "contended",
            Self::KeyTaken => "key_taken",
            Self::RightsChanged => "rights_changed",
            Self::Fault => "fault",
            Self::Late => "late",
        }
    }

    /// Returns whether the transaction may have been posted although this process does not know it.
    pub const fn is_in_doubt(self) -> bool {
        match self {
            Self::Fault | Self::Late => true,
            Self::NotWaiting
            | Self::Off
            | Self::GateHeld
            | Self::Unregistered
            | Self::OpenWork
            | Self::Rejection
            | Self::Contended
            | Self::KeyTaken
            | Self::RightsChanged => false,
        }
    }
}

/// Counts the requests of a process by route, and the transactions that they added.
#[derive(Debug, Default)]
pub struct ServedCounts {
    accepted: AtomicU64,
    immediate: AtomicU64,
    /// In the order of [`QueueReason::ALL`].
    queued: [AtomicU64; QueueReason::ALL.len()],
}

impl ServedCounts {
    /// Counts a request.
    pub(crate) fn add(&self, route: Route) {
        let counter = match route {
            Route::Immediate => Some(&self.immediate),
            Route::Queued(reason) => self.of(reason),
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts transactions that were accepted, and had not been accepted before: those of a request,
    /// or of a direct producer, or the items of a batch.
    pub fn accept(&self, count: u64) {
        self.accepted.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of newly accepted transactions, including items of batches.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that were posted or rejected at once.
    pub fn immediate(&self) -> u64 {
        self.immediate.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that took the queue for this reason.
    pub fn queued(&self, reason: QueueReason) -> u64 {
        self.of(reason).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    fn of(&self, reason: QueueReason) -> Option<&AtomicU64> {
        let all = QueueReason::ALL.iter().zip(&self.queued);
        all.into_iter().find_map(|(other, counter)| (*other == reason).then_some(counter))
    }
}
