//! Storage of large message bodies (claim check).

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::Listing;
use crate::domain::time::Timestamp;

/// Maximum length of a payload name, in characters.
pub const NAME_CHARS_MAX: usize = 200;

/// Maximum size of a body in bytes. Larger bodies are neither written nor read, even if another program stored them.
pub const PAYLOAD_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Returns whether a name is valid: lower-case letters, digits and `-`, at most [`NAME_CHARS_MAX`].
pub fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    plain && !name.is_empty() && name.len() <= NAME_CHARS_MAX
}

/// A payload in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadEntry {
    /// The name.
    pub name: String,
    /// The time of the last write on the clock of the store, precise to at least a second. Writing the same content again
    /// may change it.
    pub stored_at: Timestamp,
}

/// Bodies stored by name. A name always has the same content; writing that content again is allowed.
#[async_trait]
pub trait PayloadStore: Send + Sync {
    /// Stores a body of at most [`PAYLOAD_BODY_BYTES_MAX`] bytes under a name that [`is_name`] allows.
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault>;

    /// Reads a body; `None` if the name does not exist. A larger body than [`Self::put`] accepts, written by another
    /// program, results in [`StoreFault::Corrupt`] and is not read completely.
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault>;

    /// Deletes a body. Succeeds if it does not exist.
    async fn delete(&self, name: &str) -> Result<(), StoreFault>;

    /// Returns at most `limit` (at least 1) payloads whose names start with `prefix`, in name order. Invalid names,
    /// written by other programs, are skipped. `cursor` is the `next` of the previous page; it is opaque. Payloads written
    /// or deleted meanwhile may or may not be included.
    async fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<PayloadEntry>, StoreFault>;
}
