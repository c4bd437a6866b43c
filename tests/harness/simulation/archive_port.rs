//! The archive of a process, read over the network.

use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::ports::archive::{Archive, Readable, StoredRow, UserRange};
use postonce_shared::testing::prelude::*;

use super::network::{StoreRequest, now};
use super::ports::StoreConnection;

/// Reads of all rows, one request each. Reads of one account are not simulated, because only audits use them.
pub struct ArchiveConnection(pub Arc<StoreConnection>);

#[async_trait]
impl ArchiveDecorator for ArchiveConnection {
    fn inner(&self) -> &dyn Archive {
        &*self.0.network.raw.archive
    }

    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        let cursor = cursor.map(str::to_owned);
        self.0
            .request(StoreRequest::read("listed", ""), move |network| {
                now(network.raw.archive.listed_accounts(range, cursor.as_deref(), limit))
            })
            .await
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        let cursor = cursor.map(str::to_owned);
        self.0
            .request(StoreRequest::read("rows", ""), move |network| {
                now(network.raw.archive.rows(range, cursor.as_deref(), limit))
            })
            .await
    }

    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        let cursor = cursor.map(str::to_owned);
        self.0
            .request(StoreRequest::read("accepted", ""), move |network| {
                now(network.raw.archive.accepted(range, cursor.as_deref(), limit))
            })
            .await
    }
}
