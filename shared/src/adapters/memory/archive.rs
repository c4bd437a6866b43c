//! Reading everything. Nothing can be damaged here: the rows are the values of the domain themselves.

use std::collections::BTreeSet;
use std::ops::Bound;

use async_trait::async_trait;

use super::log::{first_key, foreign_cursor, read_cursor, write_cursor};
use super::{MemoryStore, Tables};
use crate::domain::ids::AccountKey;
use crate::ports::archive::{Archive, Readable, StoredPage};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction};

#[async_trait]
impl Archive for MemoryStore {
    async fn listed_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        self.count_query();
        let after = cursor.map(read_account).transpose()?;
        Ok(self.step(|Tables { ledger, .. }| {
            let keys = ledger.accounts.range((bound(after), Bound::Unbounded)).map(|(key, _)| *key);
            list(keys, limit)
        }))
    }

    async fn ledger_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        self.count_query();
        let after = cursor.map(read_account).transpose()?;
        Ok(self.step(|Tables { ledger, .. }| {
            let mut keys: BTreeSet<AccountKey> = ledger.accounts.keys().copied().collect();
            keys.extend(ledger.transactions.keys().map(|key| key.account));
            keys.extend(ledger.pages.keys().map(|(account, _)| *account));
            list(keys.range((bound(after), Bound::Unbounded)).copied(), limit)
        }))
    }

    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.ledger.accounts.contains_key(&account)))
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        self.count_query();
        let after: Option<u64> = cursor.map(|text| text.parse().map_err(|_| foreign_cursor())).transpose()?;
        let start = after.map_or(Bound::Included((account, 0)), |after| Bound::Excluded((account, after)));
        Ok(self.step(|Tables { ledger, .. }| {
            let mut pages = ledger.pages.range((start, Bound::Included((account, u64::MAX))));
            let items: Vec<StoredPage> = pages
                .by_ref()
                .take(limit)
                .map(|((_, first), page)| StoredPage { first_sequence: Some(*first), page: Ok(page.clone()) })
                .collect();
            let last = items.last().and_then(|last| last.first_sequence);
            Listing { next: last.filter(|_| pages.next().is_some()).map(|last| last.to_string()), items }
        }))
    }

    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        self.count_query();
        let last = cursor.map(read_cursor).transpose()?;
        if last.as_ref().is_some_and(|key| key.account != account) {
            return Err(foreign_cursor());
        }
        let start = last.map_or_else(|| Bound::Included(first_key(account)), Bound::Excluded);
        Ok(self.step(|Tables { ledger, .. }| {
            let rows = ledger.transactions.range((start, Bound::Unbounded));
            let mut rows = rows.take_while(|(key, _)| key.account == account);
            let found: Vec<StoredTransaction> =
                rows.by_ref().take(limit).map(|(_, row)| row.stored.clone()).collect();
            let last = found.last().map(|stored| write_cursor(&stored.transaction.key));
            Listing {
                next: last.filter(|_| rows.next().is_some()),
                items: found.into_iter().map(Ok).collect(),
            }
        }))
    }
}

fn bound(after: Option<AccountKey>) -> Bound<AccountKey> {
    after.map_or(Bound::Unbounded, Bound::Excluded)
}

fn list(mut keys: impl Iterator<Item = AccountKey>, limit: usize) -> Listing<Readable<AccountKey>> {
    let found: Vec<AccountKey> = keys.by_ref().take(limit).collect();
    let last = found.last().map(ToString::to_string);
    Listing { next: last.filter(|_| keys.next().is_some()), items: found.into_iter().map(Ok).collect() }
}

/// Reads what [`list`] wrote.
fn read_account(cursor: &str) -> Result<AccountKey, StoreFault> {
    let parsed = cursor.split_once('/').and_then(|(user, account)| {
        Some(AccountKey { user: user.parse().ok()?, account: account.parse().ok()? })
    });
    parsed.ok_or_else(foreign_cursor)
}
