//! The partners of the bank, with their permissions and terms.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::sync_store::Swapped;
use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::PartnerId;
use crate::domain::partner::Partner;

/// The partners of one store. A record is never removed.
#[async_trait]
pub trait Partners: Send + Sync {
    /// Reads a partner. One operation of the store.
    async fn find(&self, id: &PartnerId) -> Result<Option<Versioned<Partner>>, StoreFault>;

    /// Returns partners after the given one, by id, at most `limit`. Fewer are returned only at the end.
    async fn list(&self, after: Option<&PartnerId>, limit: usize) -> Result<Vec<Partner>, StoreFault>;

    /// Writes a partner if its revision is still `expected` (`None`: if it does not exist).
    ///
    /// **Implementations never retry**: after a fault it may have been written, or may still be.
    async fn save(&self, partner: &Partner, expected: Option<&Revision>) -> Result<Swapped, StoreFault>;
}
