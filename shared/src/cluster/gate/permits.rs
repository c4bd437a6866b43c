//! Permits to post. Every commit of new outcomes needs one, whether it comes from a waiting request, a queued message
//! or the items of a batch.
//!
//! No permits are given while the gate is held, or while this process is not listed in the registry: a hold waits only
//! for listed processes. A value read before this process was listed may predate a hold that was not sent to it, so it
//! does not count.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::change::GateRecord;
use super::{GateState, GateValue};
use crate::cluster::registration::Registration;
use crate::domain::time::Timestamp;
use crate::ports::process_registry::RegisteredProcess;
use crate::ports::world::World;

/// The gate as this process knows it, and the permits in use.
pub struct GatePermits {
    registration: Arc<Registration>,
    world: Arc<dyn World>,
    /// `None` until it is read, and while it cannot be decoded. The gate then counts as held.
    known: watch::Sender<Option<GateValue>>,
    since: Mutex<Option<Timestamp>>,
    /// How often the value was forgotten. Reads that began before the last time are not applied.
    forgotten: AtomicU64,
    in_use: Arc<watch::Sender<usize>>,
    /// Work in progress, which will request permits.
    working: Arc<watch::Sender<usize>>,
}

impl GatePermits {
    /// Creates the permits of a process that has not read the gate.
    pub fn new(registration: Arc<Registration>, world: Arc<dyn World>) -> Self {
        Self {
            registration,
            world,
            known: watch::Sender::new(None),
            since: Mutex::new(None),
            forgotten: AtomicU64::new(0),
            in_use: Arc::new(watch::Sender::new(0)),
            working: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Records that the registry lists this process until a time on the clock of [`World::uptime`]. If it was not
    /// listed before, the gate counts as held until it is read again.
    pub fn register(&self, entry: &RegisteredProcess, until: Duration) {
        let now = self.world.uptime();
        // One step, so that no permit is given in between for a value that was known before.
        self.known.send_if_modified(|known| {
            let is_interrupted = !self.registration.is_listed(now);
            if is_interrupted {
                self.forget_value(known);
            }
            self.registration.extend(entry, until);
            is_interrupted
        });
    }

    /// Returns the last value read.
    pub fn known(&self) -> Option<GateValue> {
        *self.known.borrow()
    }

    /// Returns the time of the last change of the known value, on the clock of the process that made it; `None` if the
    /// gate was never changed, or by a version that did not record the time.
    pub fn since(&self) -> Option<Timestamp> {
        *self.since.lock()
    }

    /// Subscribes to the values that are read.
    pub fn subscribe(&self) -> watch::Receiver<Option<GateValue>> {
        self.known.subscribe()
    }

    /// Returns whether permits are given: the gate is known to be released, and the registry lists this process.
    pub fn is_open(&self) -> bool {
        // `register` cannot change either between the two checks.
        let known = self.known.borrow();
        matches!(*known, Some(GateValue { state: GateState::Released, .. }))
            && self.registration.is_listed(self.world.uptime())
    }

    /// Returns the epoch that this process applies; zero before the first epoch or the first read.
    pub fn epoch(&self) -> u64 {
        self.known().map_or(0, |value| value.epoch)
    }

    /// Returns a permit; `None` unless [`Self::is_open`]. Keep the permit until nothing more is received or written
    /// under it.
    pub fn enter(&self) -> Option<GatePermit> {
        // Counted before the check, so that a concurrent hold either waits for this permit or is visible to the check.
        let permit = GatePermit { _counted: Counted::begin(&self.in_use) };
        self.is_open().then_some(permit)
    }

    /// Records work in progress, which takes permits one by one. It does not affect the gate, but keeps the process in
    /// the registry until it ends ([`Self::until_idle`]), so that a hold is sent to it.
    pub fn begin_work(&self) -> WorkInProgress {
        WorkInProgress { _counted: Counted::begin(&self.working) }
    }

    /// Marks the start of a read of the gate, for [`Self::apply`].
    pub fn begin_read(&self) -> GateRead {
        GateRead { forgotten: self.forgotten.load(Ordering::SeqCst) }
    }

    /// Applies a value that was read, and returns whether it is newer. Reads may complete out of order, and an older
    /// value never replaces a newer one. A read that began before [`Self::forget`] is not applied, because it may be
    /// older than the forgotten value.
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

    /// Forgets the value. The gate counts as held until it is read again.
    pub fn forget(&self) {
        self.known.send_modify(|known| self.forget_value(known));
    }

    fn forget_value(&self, known: &mut Option<GateValue>) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        *known = None;
        *self.since.lock() = None;
    }

    /// Completes when no permit is in use.
    pub async fn until_unused(&self) {
        until_none(&self.in_use).await;
    }

    /// Completes when no work is in progress and no permit is in use. The caller must prevent new work meanwhile.
    pub async fn until_idle(&self) {
        // Work begins while its message is received, under a permit.
        until_none(&self.in_use).await;
        until_none(&self.working).await;
        until_none(&self.in_use).await;
    }
}

impl fmt::Debug for GatePermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatePermits").field("known", &self.known()).finish_non_exhaustive()
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
    // The sender lives as long as its owner, which waits here.
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
    use crate::adapters::memory::world::TestWorld;
    use crate::testing::registered::{entry_in, listed_permits};

    const SECOND: Duration = Duration::from_secs(1);

    fn value(epoch: u64, state: GateState) -> GateRecord {
        let since = Some(Timestamp::from_unix_ms(i64::try_from(epoch).unwrap()));
        GateRecord { value: GateValue { epoch, state }, since, ..GateRecord::UNSET }
    }

    fn read(permits: &GatePermits, record: &GateRecord) {
        assert!(permits.apply(&permits.begin_read(), record));
    }

    /// Creates the permits of a process that is not registered.
    fn unregistered() -> (GatePermits, Arc<Registration>, Arc<TestWorld>) {
        let (registration, world) = (Arc::<Registration>::default(), Arc::new(TestWorld::new(1)));
        (GatePermits::new(Arc::clone(&registration), world.clone()), registration, world)
    }

    #[test]
    fn a_read_that_began_before_the_value_was_forgotten_is_not_applied() {
        let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
        let permits = listed_permits(&world);
        let slow = permits.begin_read();
        read(&permits, &value(6, GateState::Held { release_at: None }));
        permits.forget();
        assert!(
            !permits.apply(&slow, &value(5, GateState::Released)),
            "it may be older than what was forgotten"
        );
        assert_eq!((permits.known(), permits.since()), (None, None));
        let begun = permits.begin_read();
        assert!(permits.apply(&begun, &value(6, GateState::Held { release_at: None })));
        assert!(!permits.apply(&begun, &value(5, GateState::Released)), "it is older");
        assert_eq!(permits.since(), Some(Timestamp::from_unix_ms(6)));
        assert!(permits.enter().is_none());
    }

    #[test]
    fn a_process_that_the_others_do_not_find_gets_no_permit() {
        let (permits, registration, world) = unregistered();
        read(&permits, &value(1, GateState::Released));
        assert!(permits.enter().is_none(), "it is not registered");
        let entry = entry_in(&*world);
        permits.register(&entry, world.uptime() + SECOND);
        assert!(permits.enter().is_none(), "the gate may have been held before the registration");
        read(&permits, &value(1, GateState::Released));
        assert!(permits.enter().is_some());
        permits.register(&entry, world.uptime() + SECOND * 2);
        assert!(permits.enter().is_some(), "it was found all the time");
        world.advance(SECOND * 2);
        assert!(permits.enter().is_none(), "its entry is out of date");
        let slow = permits.begin_read();
        permits.register(&entry, world.uptime() + SECOND);
        assert!(permits.enter().is_none(), "the gate may have been held meanwhile");
        assert!(!permits.apply(&slow, &value(1, GateState::Released)), "this read may be older");
        read(&permits, &value(1, GateState::Released));
        registration.end();
        assert!(permits.enter().is_some(), "a process that drains finishes its work");
        registration.withdraw();
        assert!(permits.enter().is_none(), "its entry may be removed");
    }

    #[test]
    fn who_waits_for_the_gate_learns_of_the_registration() {
        let (permits, _, world) = unregistered();
        let mut changes = permits.subscribe();
        permits.register(&entry_in(&*world), Duration::MAX);
        assert!(changes.has_changed().unwrap(), "a reader that waits after a fault reads now");
        read(&permits, &value(1, GateState::Released));
        let _ = changes.borrow_and_update();
        permits.register(&entry_in(&*world), Duration::MAX);
        assert!(!changes.has_changed().unwrap(), "a renewal costs no read");
    }
}
