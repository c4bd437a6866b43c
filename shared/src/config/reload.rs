//! Requests to reload secrets and certificates immediately, instead of at the next check of their files.

use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::watch;

use crate::ports::world::World;

/// Each value sent is a request. It is process-wide, like the signal that triggers it.
static REQUESTED: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));

/// Makes all readers of such files reload them.
pub fn request() {
    REQUESTED.send_replace(());
}

/// Subscribes to requests from now on.
pub fn requests() -> Requests {
    Requests(REQUESTED.subscribe())
}

/// A subscription to requests.
#[derive(Debug)]
pub struct Requests(watch::Receiver<()>);

impl Requests {
    /// Waits for a request for at most the duration. Returns whether there was one.
    pub async fn within(&mut self, duration: Duration, world: &dyn World) -> bool {
        match select(pin!(self.0.changed()), pin!(world.sleep(duration))).await {
            // The sender is never dropped.
            Either::Left((requested, _)) => requested.is_ok(),
            Either::Right(_) => false,
        }
    }

    /// Returns whether there was a request since the last call.
    pub fn take(&mut self) -> bool {
        let is_requested = self.0.has_changed().unwrap_or_default();
        if is_requested {
            self.0.mark_unchanged();
        }
        is_requested
    }
}
