//! Money moves between any two reads of an audit, and nothing of that is a finding.

use std::sync::Arc;

use async_trait::async_trait;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::ports::Store;
use postonce_shared::ports::archive::{Archive, Readable, StoredPage};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Listing, StoredTransaction};

use super::whole::{Desk, everything, system, verify};

/// Posts something on the account, and opens another, before and after each read of it. Listings are
/// read in pages of two rows, so that a reading is many reads.
struct Busy {
    desk: Desk,
    inner: Arc<dyn Archive>,
}

impl Busy {
    async fn meanwhile(&self, account: AccountKey) {
        self.desk.post(account, &[10, -3]).await;
        self.desk.post(account, &[-99_999]).await;
        self.desk.accept(account, 1).await;
    }
}

#[async_trait]
impl Archive for Busy {
    async fn listed_accounts(
        &self,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        self.inner.listed_accounts(cursor, 2).await
    }

    async fn ledger_accounts(
        &self,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        // Known to the ledger, and not to the part of the list that was read before.
        self.desk.open().await;
        self.inner.ledger_accounts(cursor, 2).await
    }

    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault> {
        self.inner.is_listed(account).await
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        self.meanwhile(account).await;
        // At its own pace the audit would never reach the end of an account that grows as fast.
        let limit = if cursor.is_none() { 2 } else { 1000 };
        self.inner.stored_pages(account, cursor, limit).await
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        self.meanwhile(account).await;
        let limit = if cursor.is_none() { 2 } else { 1000 };
        let listing = self.inner.stored_transactions(account, cursor, limit).await;
        self.meanwhile(account).await;
        listing
    }
}

#[tokio::test]
async fn a_ledger_in_use_gives_no_finding() {
    let content = MemoryStore::empty(system());
    let desk = Desk::over(content.ports());
    for _ in 0..5 {
        let key = desk.open().await;
        for _ in 0..4 {
            desk.post(key, &[100, 200, -50]).await;
        }
    }
    let plain = content.ports();
    let busy = Busy { desk, inner: Arc::clone(&plain.archive) };
    let store = Store { archive: Arc::new(busy), ..plain };
    let (totals, found) = verify(&store, everything()).await.unwrap();
    assert_eq!(found, [], "money moves all the while");
    assert!(totals.accounts >= 5 && totals.entries >= 60, "{totals:?}");
}
