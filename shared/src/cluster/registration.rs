//! Whether other processes can find this one in the process registry.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::messaging::attempts::EntryVersion;

/// The registry entry of this process. Only a registered process is notified of a change of the gate, so only a
/// registered process posts requests at once. Times are on the clock of
/// [`World::uptime`](crate::ports::world::World::uptime).
#[derive(Debug)]
pub struct Registration {
    state: Mutex<State>,
    renewal: Notify,
}

/// The entry as this process last wrote it.
#[derive(Debug)]
enum State {
    /// The process is not registered yet.
    Starting,
    /// The entry is valid until this time.
    Valid(EntryVersion, Duration),
    /// The process drains.
    Ended,
}

impl Default for Registration {
    fn default() -> Self {
        Self { state: Mutex::new(State::Starting), renewal: Notify::new() }
    }
}

impl Registration {
    /// Records that the entry was written, and is valid until a time. Has no effect after [`Self::end`].
    pub fn extend(&self, entry: EntryVersion, until: Duration) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Ended) {
            *state = State::Valid(entry, until);
        }
    }

    /// Records that the process drains, so that its entry is about to be removed.
    pub fn end(&self) {
        *self.state.lock() = State::Ended;
    }

    /// Returns whether the entry is valid.
    pub fn is_valid(&self, now: Duration) -> bool {
        self.entry(now).is_some()
    }

    /// Returns the entry; `None` when it is not valid.
    pub fn entry(&self, now: Duration) -> Option<EntryVersion> {
        match *self.state.lock() {
            State::Valid(entry, until) if now < until => Some(entry),
            State::Valid(..) | State::Starting | State::Ended => None,
        }
    }

    /// Requests a renewal of the entry as soon as possible, because this process survived an attempt that a message may
    /// still record.
    pub fn request_renewal(&self) {
        self.renewal.notify_one();
    }

    /// Returns when a renewal is requested.
    pub async fn renewal_requested(&self) {
        self.renewal.notified().await;
    }
}
