//! Large bodies by reference (claim check).

use async_trait::async_trait;

use super::fault::StoreFault;

/// Bodies under names. A name is written once with one content; writing it again with the same
/// content is allowed.
#[async_trait]
pub trait PayloadStore: Send + Sync {
    /// Stores a body. Names are lower-case letters, digits and `-`, at most 200 characters.
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault>;

    /// Reads a body; `None` when there is none under that name.
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault>;

    /// Removes a body; removing one that is not there is fine.
    async fn delete(&self, name: &str) -> Result<(), StoreFault>;
}
