//! The key of a process that makes anchors, which can be replaced while the process runs.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::domain::anchor::signed::AnchorKey;

/// The key in use. A clone is the same value.
#[derive(Debug, Clone)]
pub struct RenewableKey(Arc<RwLock<AnchorKey>>);

impl RenewableKey {
    /// Returns the present key.
    pub fn get(&self) -> AnchorKey {
        self.0.read().clone()
    }

    /// Signs with this key from now on.
    pub fn replace(&self, key: AnchorKey) {
        *self.0.write() = key;
    }
}

impl From<AnchorKey> for RenewableKey {
    fn from(key: AnchorKey) -> Self {
        Self(Arc::new(RwLock::new(key)))
    }
}
