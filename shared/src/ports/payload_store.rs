//! Large bodies by reference (claim check).

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::Listing;
use crate::domain::time::Timestamp;

/// Longest name of a payload, in characters.
pub const NAME_CHARS_MAX: usize = 200;

/// Most bytes of a body. The bank writes no larger one, and a store that others can write to reads none.
pub const PAYLOAD_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Whether a payload can have that name: lower-case letters, digits and `-`, at most [`NAME_CHARS_MAX`].
pub fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    plain && !name.is_empty() && name.len() <= NAME_CHARS_MAX
}

/// A payload in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadEntry {
    /// Its name.
    pub name: String,
    /// When it was written, by the clock of the store, to the second at least. Writing the same
    /// content again may move it.
    pub stored_at: Timestamp,
}

/// Bodies under names. A name is written once with one content; writing it again with the same
/// content is allowed.
#[async_trait]
pub trait PayloadStore: Send + Sync {
    /// Stores a body of at most [`PAYLOAD_BODY_BYTES_MAX`] bytes under a name that [`is_name`] allows.
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault>;

    /// Reads a body; `None` when there is none under that name. A larger body than [`Self::put`] takes, which
    /// others may have put there, is [`StoreFault::Corrupt`], and is not read whole.
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault>;

    /// Removes a body; removing one that is not there is fine.
    async fn delete(&self, name: &str) -> Result<(), StoreFault>;

    /// Payloads whose names begin with `prefix`, in the order of their names; what others put there under
    /// names that are none is left out. `cursor` is the `next`
    /// of the page before; it is opaque. At most `limit`, itself at least 1. What is written or
    /// removed in the meantime may or may not be in it.
    async fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<PayloadEntry>, StoreFault>;
}
