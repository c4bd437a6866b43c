//! Draining: a process takes no more work and finishes the work in progress.

use std::time::Duration;

use tokio::sync::watch;

/// Maximum duration of a drain. Work that is still in progress then is redelivered when its leases expire.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Starts a drain. Dropping it starts the drain as well.
#[derive(Debug)]
pub struct DrainStarter(watch::Sender<bool>);

/// Shows whether the drain has started.
#[derive(Debug, Clone)]
pub struct Drain(watch::Receiver<bool>);

/// Creates a drain that has not started.
pub fn drain() -> (DrainStarter, Drain) {
    let (sender, receiver) = watch::channel(false);
    (DrainStarter(sender), Drain(receiver))
}

impl DrainStarter {
    /// Starts the drain: no more work is taken from now on.
    pub fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Returns whether the drain has started.
    pub fn is_started(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Returns when the drain starts.
    pub async fn started(&self) {
        // An error means that the starter was dropped, which starts the drain as well.
        drop(self.0.clone().wait_for(|started| *started).await);
    }
}
