//! Requests to read the files with secrets and certificates again at once, instead of at their next check.

use std::pin::pin;
use std::sync::LazyLock;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::watch;

use crate::ports::world::World;

/// Each value that is sent is a request. One for the whole process, as the signal is that causes it.
static REQUESTED: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::Sender::new(()));

/// Makes all who read such files read them again now.
pub fn request() {
    REQUESTED.send_replace(());
}

/// The requests from now on.
pub fn requests() -> Requests {
    Requests(REQUESTED.subscribe())
}

/// Requests that arrive.
#[derive(Debug)]
pub struct Requests(watch::Receiver<()>);

impl Requests {
    /// Waits for the duration. Returns true, and earlier, if there is a request.
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
