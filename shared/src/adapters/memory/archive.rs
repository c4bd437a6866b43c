//! Reads all rows. Rows cannot be damaged here: they are the values of the domain themselves.

use std::collections::BTreeSet;
use std::ops::Bound;

use async_trait::async_trait;

use super::log::{first_key, foreign_cursor, read_cursor, write_cursor};
use super::{MemoryStore, Tables};
use crate::domain::ids::AccountKey;
use crate::domain::journal::JournalPage;
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

    async fn has_pages(&self) -> Result<bool, StoreFault> {
        self.count_query();
        Ok(self.step(|tables| !tables.ledger.pages.is_empty()))
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
            let rows = ledger.pages.range((start, Bound::Included((account, u64::MAX))));
            let Listing { items, next } = Listing::first_of(rows, limit, |((_, first), _)| first.to_string());
            let stored = |((_, first), page): (&(AccountKey, u64), &JournalPage)| StoredPage {
                first_sequence: Some(*first),
                page: Ok(page.clone()),
            };
            Listing { items: items.into_iter().map(stored).collect(), next }
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
            let rows = rows.take_while(|(key, _)| key.account == account);
            let Listing { items, next } = Listing::first_of(rows, limit, |(key, _)| write_cursor(key));
            Listing { items: items.into_iter().map(|(_, row)| Ok(row.stored.clone())).collect(), next }
        }))
    }
}

fn bound(after: Option<AccountKey>) -> Bound<AccountKey> {
    after.map_or(Bound::Unbounded, Bound::Excluded)
}

fn list(keys: impl Iterator<Item = AccountKey>, limit: usize) -> Listing<Readable<AccountKey>> {
    let Listing { items, next } = Listing::first_of(keys, limit, ToString::to_string);
    Listing { items: items.into_iter().map(Ok).collect(), next }
}

/// Decodes a cursor of [`list`].
fn read_account(cursor: &str) -> Result<AccountKey, StoreFault> {
    let parsed = cursor.split_once('/').and_then(|(user, account)| {
        Some(AccountKey { user: user.parse().ok()?, account: account.parse().ok()? })
    });
    parsed.ok_or_else(foreign_cursor)
}
