//! Whether the files of an embedded store are still the ones that this process opened.

use tokio::sync::watch;

/// Tells whether this process may still use the files of its store. A remote store has none, and is always intact.
#[derive(Debug, Clone)]
pub struct StoreFiles(watch::Receiver<bool>);

impl StoreFiles {
    /// Creates the status of a store without files on this machine.
    pub fn none() -> Self {
        Self::watched().1
    }

    /// Creates the status of intact files, and the sender that updates it.
    pub fn watched() -> (watch::Sender<bool>, Self) {
        let (intact, told) = watch::channel(true);
        (intact, Self(told))
    }

    /// Returns whether every file was the opened one at the last check, which is at most a second old.
    pub fn are_intact(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the status changes after the last call. Waits forever if nothing checks the files.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
