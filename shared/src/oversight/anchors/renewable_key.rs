//! The signing key of anchors, which can be replaced while the process runs.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::domain::anchor::signed::AnchorKey;

/// The key in use. Clones share it.
#[derive(Debug, Clone)]
pub struct RenewableKey(Arc<RwLock<AnchorKey>>);

impl RenewableKey {
    /// Returns the current key.
    pub fn get(&self) -> AnchorKey {
        self.0.read().clone()
    }

    /// Replaces the key for all later signatures.
    pub fn replace(&self, key: AnchorKey) {
        *self.0.write() = key;
    }
}

impl From<AnchorKey> for RenewableKey {
    fn from(key: AnchorKey) -> Self {
        Self(Arc::new(RwLock::new(key)))
    }
}
