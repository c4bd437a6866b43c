//! Whether other processes can find this one in the process registry.

use std::time::Duration;

use parking_lot::Mutex;

/// The validity of the registry entry of this process. Only a registered process is notified of a change of the gate,
/// so only a registered process posts requests at once. Times are on the clock of
/// [`World::uptime`](crate::ports::world::World::uptime).
#[derive(Debug)]
pub struct Registration {
    /// `None` after the end.
    valid_until: Mutex<Option<Duration>>,
}

impl Default for Registration {
    fn default() -> Self {
        Self { valid_until: Mutex::new(Some(Duration::ZERO)) }
    }
}

impl Registration {
    /// Records that the entry was written, and is valid until a time. Has no effect after [`Self::end`].
    pub fn extend(&self, until: Duration) {
        if let Some(valid_until) = &mut *self.valid_until.lock() {
            *valid_until = until;
        }
    }

    /// Records that the process drains, so that its entry is about to be removed.
    pub fn end(&self) {
        *self.valid_until.lock() = None;
    }

    /// Returns whether the entry is valid.
    pub fn is_valid(&self, now: Duration) -> bool {
        self.valid_until.lock().is_some_and(|until| now < until)
    }
}
