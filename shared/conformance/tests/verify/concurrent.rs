//! Postings between any two reads of an audit cause no finding.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use postonce_shared::ports::archive::{Archive, Readable, StoredPage, StoredRow, UserRange};
use postonce_shared::testing::prelude::*;

use super::stores::{TestBank, everything, system, verify};

/// Posts on the account and opens another one before and after each read. Listings return pages of two
/// rows, so that an audit takes many reads.
struct ConcurrentArchive {
    bank: TestBank,
    inner: Arc<dyn Archive>,
    reads: AtomicU32,
}

impl ConcurrentArchive {
    async fn post_between_reads(&self, account: AccountKey) {
        self.bank.post(account, &[10, -3]).await;
        self.bank.post(account, &[-99_999]).await;
        self.bank.accept(account, 1).await;
    }
}

#[async_trait]
impl ArchiveDecorator for ConcurrentArchive {
    fn inner(&self) -> &dyn Archive {
        &*self.inner
    }

    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        // The new account is in the part of the ledger that was read before, but not in the list, or the other way round.
        self.bank.open().await;
        self.inner.listed_accounts(range, cursor, 2).await
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        self.bank.open().await;
        // Later the limit is large: the audit would never reach the end of an account that grows as fast as it reads.
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        let listing = self.inner.rows(range, cursor, if reads.is_multiple_of(3) { 2 } else { 5 }).await?;
        if reads < 500 {
            let last = listing.items.last().and_then(|row| row.as_ref().ok());
            if let Some(last) = last {
                self.post_between_reads(last.account).await;
            }
        }
        Ok(listing)
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        self.post_between_reads(account).await;
        // After the first page the limit is large: the audit would never reach the end of an account that grows
        // as fast as it reads.
        let limit = if cursor.is_none() { 2 } else { 1000 };
        self.inner.stored_pages(account, cursor, limit).await
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        _: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        self.post_between_reads(account).await;
        let limit = if cursor.is_none() { 2 } else { 1000 };
        let listing = self.inner.stored_transactions(account, cursor, limit).await;
        self.post_between_reads(account).await;
        listing
    }
}

#[tokio::test]
async fn a_ledger_in_use_gives_no_finding() {
    let content = MemoryStore::empty(system());
    let bank = TestBank::over(content.ports());
    for _ in 0..5 {
        let key = bank.open().await;
        for _ in 0..4 {
            bank.post(key, &[100, 200, -50]).await;
        }
    }
    let plain = content.ports();
    let concurrent = ConcurrentArchive { bank, inner: Arc::clone(&plain.archive), reads: AtomicU32::new(0) };
    let store = Store { archive: Arc::new(concurrent), ..plain };
    let (totals, found) = verify(&store, everything()).await.unwrap();
    assert_eq!(found, [], "concurrent postings are no findings");
    assert!(totals.accounts >= 5 && totals.entries >= 60, "{totals:?}");
}
