//! Whether the files of an embedded store are still those that this process has opened.

use tokio::sync::watch;

/// Tells whether this process may still use the files of its store. A store on other machines has none, and is always intact.
#[derive(Debug, Clone)]
pub struct StoreFiles(watch::Receiver<bool>);

impl StoreFiles {
    /// The files of a store that has none on this machine.
    pub fn none() -> Self {
        Self::watched().1
    }

    /// Returns files that are intact, and what tells when they are not.
    pub fn watched() -> (watch::Sender<bool>, Self) {
        let (intact, told) = watch::channel(true);
        (intact, Self(told))
    }

    /// Returns whether every file is the one that was opened, as of the last check, which is at most a second old.
    pub fn are_intact(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when this has changed since the last call. Never returns if nothing checks the files.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
