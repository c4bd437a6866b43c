//! The API keys of partners. Only their hashes are stored.

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::ids::PartnerId;
use crate::domain::time::Timestamp;

/// A stored API key. It does not reveal the key itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Identifies the key in listings: the first 16 hexadecimal digits of its hash.
    pub id: String,
    /// SHA-256 of the key. Keys have 256 random bits, so a fast hash is enough.
    pub hash: [u8; 32],
    /// The partner that the key belongs to.
    pub partner: PartnerId,
    /// The permissions, as stable codes.
    pub scopes: Vec<String>,
    /// When the key was created.
    pub created_at: Timestamp,
    /// When the key was revoked; `None` while it is active.
    pub revoked_at: Option<Timestamp>,
    /// From when the key is refused; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
    /// A time at which the key was used, at most some days before the last use ([`ApiKeys::mark_used`]); `None` if the key
    /// was never used, or only with versions that do not record it.
    pub last_used_at: Option<Timestamp>,
}

impl ApiKeyRecord {
    /// Returns whether the key is neither revoked nor expired.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| now < at)
    }
}

/// The API keys of one store.
#[async_trait]
pub trait ApiKeys: Send + Sync {
    /// Stores a new key. Storing the same id again changes nothing; a revoked key stays revoked.
    async fn add(&self, record: &ApiKeyRecord) -> Result<(), StoreFault>;

    /// Reads a key by its id. Revoked keys are returned, too.
    async fn find(&self, id: &str) -> Result<Option<ApiKeyRecord>, StoreFault>;

    /// Returns all keys in id order.
    async fn list(&self) -> Result<Vec<ApiKeyRecord>, StoreFault>;

    /// Revokes a key permanently. Returns `false` if there is no key with this id. Revoking again keeps the first time.
    async fn revoke(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault>;

    /// Records that a key was used. Returns `false` if there is no key with this id. A time earlier than the recorded one
    /// has no effect. No other property of the key changes.
    async fn mark_used(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault>;
}
