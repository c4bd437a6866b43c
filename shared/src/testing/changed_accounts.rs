//! An archive whose account rows differ from the ledger, as after tampering or lost writes.

use std::sync::Arc;

use async_trait::async_trait;

use super::decorators::ArchiveDecorator;
use crate::domain::account::Account;
use crate::ports::archive::{Archive, Readable, RowContent, StoredRow, UserRange};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;

/// Changes each account row that a walk reads.
pub struct ChangedAccounts<F> {
    /// The wrapped archive.
    pub inner: Arc<dyn Archive>,
    /// The change to apply.
    pub change: F,
}

#[async_trait]
impl<F: Fn(&mut Account) + Send + Sync> ArchiveDecorator for ChangedAccounts<F> {
    fn inner(&self) -> &dyn Archive {
        &*self.inner
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let mut listing = self.inner.rows(range, cursor, limit).await?;
        for row in listing.items.iter_mut().flatten() {
            if let RowContent::Account(account) = &mut row.content
                && let Ok(account) = &mut **account
            {
                (self.change)(account);
            }
        }
        Ok(listing)
    }
}
