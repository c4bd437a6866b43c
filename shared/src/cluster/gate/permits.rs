//! Permits to post. The gate gives none while it is held. Every commit of new outcomes has one, whichever path it takes: that of
//! a request that waits, of a queued message, or of items of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::change::GateRecord;
use super::{GateState, GateValue};
use crate::domain::time::Timestamp;

/// The value of the gate, as this process knows it, and the permits in use.
#[derive(Debug)]
pub struct GatePermits {
    /// `None` before it was read, and while it cannot be decoded: then the gate counts as held.
    known: watch::Sender<Option<GateValue>>,
    /// The time of its last change.
    since: Mutex<Option<Timestamp>>,
    /// How often the value was forgotten. A read that began before is not applied.
    forgotten: AtomicU64,
    in_use: Arc<watch::Sender<usize>>,
    /// Work in progress, which will ask for permits.
    working: Arc<watch::Sender<usize>>,
}

impl Default for GatePermits {
    fn default() -> Self {
        Self {
            known: watch::Sender::new(None),
            since: Mutex::new(None),
            forgotten: AtomicU64::new(0),
            in_use: Arc::new(watch::Sender::new(0)),
            working: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl GatePermits {
    /// Returns the value that was read last.
    pub fn known(&self) -> Option<GateValue> {
        *self.known.borrow()
    }

    /// Returns the time of the last change of the value that was read last, by the clock of the process that made it; `None` if
    /// the gate was never changed, or not by a version that records it.
    pub fn since(&self) -> Option<Timestamp> {
        *self.since.lock()
    }

    /// Returns a receiver of the values that are read.
    pub fn subscribe(&self) -> watch::Receiver<Option<GateValue>> {
        self.known.subscribe()
    }

    /// Returns whether the gate is known to be released.
    pub fn is_open(&self) -> bool {
        matches!(self.known(), Some(GateValue { state: GateState::Released, .. }))
    }

    /// Returns the epoch that this process applies; zero before the first epoch, and before the first read.
    pub fn epoch(&self) -> u64 {
        self.known().map_or(0, |value| value.epoch)
    }

    /// Returns a permit; `None` while the gate is held. Keep the permit until nothing more is received or written
    /// under it.
    pub fn enter(&self) -> Option<GatePermit> {
        // Counted before the check: a hold in between either waits for this permit, or is visible to the check.
        let permit = GatePermit { _counted: Counted::begin(&self.in_use) };
        self.is_open().then_some(permit)
    }

    /// Records that work is in progress, which takes permits one after the other. It has no influence on the gate; but the
    /// process stays in the registry until it has ended ([`Self::until_idle`]), so that a hold is sent to it.
    pub fn begin_work(&self) -> WorkInProgress {
        WorkInProgress { _counted: Counted::begin(&self.working) }
    }

    /// Returns the start of a read of the gate, for [`Self::apply`].
    pub fn begin_read(&self) -> GateRead {
        GateRead { forgotten: self.forgotten.load(Ordering::SeqCst) }
    }

    /// Applies a value that was read. Returns whether it is newer: reads may complete out of order, and an older value
    /// never replaces a newer one. A read that began before [`Self::forget`] may be older than what was forgotten, so it
    /// is not applied.
    pub fn apply(&self, read: &GateRead, record: &GateRecord) -> bool {
        let value = record.value;
        self.known.send_if_modified(|known| {
            let current = read.forgotten == self.forgotten.load(Ordering::SeqCst);
            let newer = current && known.is_none_or(|before| before.epoch < value.epoch);
            if newer {
                *known = Some(value);
                *self.since.lock() = record.since;
            }
            newer
        })
    }

    /// Counts the gate as held until it is read again.
    pub fn forget(&self) {
        self.known.send_modify(|known| {
            self.forgotten.fetch_add(1, Ordering::SeqCst);
            *known = None;
            *self.since.lock() = None;
        });
    }

    /// Returns when no permit is in use.
    pub async fn until_unused(&self) {
        until_none(&self.in_use).await;
    }

    /// Returns when no work is in progress and no permit is in use. The caller makes sure that none begins meanwhile.
    pub async fn until_idle(&self) {
        // Work begins while its message is received, which needs a permit.
        until_none(&self.in_use).await;
        until_none(&self.working).await;
        until_none(&self.in_use).await;
    }
}

/// A read of the gate in progress.
#[derive(Debug)]
pub struct GateRead {
    forgotten: u64,
}

/// A permit in use, until it is dropped.
#[derive(Debug)]
pub struct GatePermit {
    _counted: Counted,
}

/// Work in progress, until it is dropped.
#[derive(Debug)]
pub struct WorkInProgress {
    _counted: Counted,
}

#[derive(Debug)]
struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn begin(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count = count.saturating_add(1));
        Self(Arc::clone(count))
    }
}

async fn until_none(count: &watch::Sender<usize>) {
    let mut count = count.subscribe();
    // The sender exists as long as its owner, who waits here.
    let _none = count.wait_for(|count| *count == 0).await;
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_began_before_the_value_was_forgotten_is_not_applied() {
        let permits = GatePermits::default();
        let since = |epoch| Some(Timestamp::from_unix_ms(epoch));
        let value = |epoch: u64, state| GateRecord {
            value: GateValue { epoch, state },
            since: since(i64::try_from(epoch).unwrap()),
            ..GateRecord::UNSET
        };
        let slow = permits.begin_read();
        permits.apply(&permits.begin_read(), &value(6, GateState::Held { release_at: None }));
        permits.forget();
        assert!(
            !permits.apply(&slow, &value(5, GateState::Released)),
            "it may be older than what was forgotten"
        );
        assert_eq!((permits.known(), permits.since()), (None, None));
        let begun = permits.begin_read();
        assert!(permits.apply(&begun, &value(6, GateState::Held { release_at: None })));
        assert!(!permits.apply(&begun, &value(5, GateState::Released)), "it is older");
        assert_eq!(permits.since(), since(6));
        assert!(permits.enter().is_none());
    }
}
