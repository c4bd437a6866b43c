//! The keys that partners call with. Only their hashes are stored.

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::ids::PartnerId;
use crate::domain::time::Timestamp;

/// A stored API key. Whoever reads the store cannot call with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Names the key in listings: the first 16 hexadecimal digits of its hash.
    pub id: String,
    /// SHA-256 of the key. Keys carry 256 random bits, so a fast hash is enough.
    pub hash: [u8; 32],
    /// Who calls with it.
    pub partner: PartnerId,
    /// What it allows, by stable codes.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was revoked; `None` while it works.
    pub revoked_at: Option<Timestamp>,
}

/// The API keys of one store.
#[async_trait]
pub trait ApiKeys: Send + Sync {
    /// Stores a new key. Storing the same id again changes nothing; a revoked key stays revoked.
    async fn add(&self, record: &ApiKeyRecord) -> Result<(), StoreFault>;

    /// Reads a key by its id, revoked ones included.
    async fn find(&self, id: &str) -> Result<Option<ApiKeyRecord>, StoreFault>;

    /// All keys, by id.
    async fn list(&self) -> Result<Vec<ApiKeyRecord>, StoreFault>;

    /// Revokes a key for ever. False when there is none with that id. Revoking twice keeps the
    /// first time.
    async fn revoke(&self, id: &str, at: Timestamp) -> Result<bool, StoreFault>;
}
