//! Reads all rows. They are domain values and not encoded, so they cannot be damaged.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;

use super::log::{first_key, foreign_cursor, read_cursor, write_cursor};
use super::{MemoryStore, Tables};
use crate::domain::account::Account;
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::journal::JournalPage;
use crate::domain::transaction::TransactionStatus;
use crate::ports::archive::{
    Archive, Readable, RowContent, StoredDecisionPage, StoredPage, StoredRow, UserRange,
};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction};

#[async_trait]
impl Archive for MemoryStore {
    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault> {
        self.count_query();
        let after = cursor.map(read_account).transpose()?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.step(|Tables { ledger, .. }| {
            let keys = ledger.accounts.range((after, Bound::Unbounded)).map(|(key, _)| *key);
            let keys = keys.filter(|key| range.contains(key.user));
            let Listing { items, next } = Listing::first_of(keys, limit, ToString::to_string);
            Listing { items: items.into_iter().map(Ok).collect(), next }
        }))
    }

    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        self.count_query();
        let after = cursor.map(Position::parse).transpose()?;
        Ok(self.step(|Tables { ledger, .. }| {
            let mut rows: BTreeMap<Position, Row<'_>> = BTreeMap::new();
            let mut add = |account: &AccountKey, position: RowPosition, row| {
                let position = Position { account: *account, row: position };
                if range.contains(account.user) && after.as_ref().is_none_or(|after| position > *after) {
                    rows.insert(position, row);
                }
            };
            for (key, account) in &ledger.accounts {
                add(key, RowPosition::Account, Row::Account(&account.value));
            }
            for ((account, version), page) in &ledger.decision_pages {
                add(account, RowPosition::DecisionPage(*version), Row::DecisionPage(*version, page));
            }
            for ((account, first), page) in &ledger.pages {
                add(account, RowPosition::Page(*first), Row::Page(*first, page));
            }
            for (key, row) in &ledger.transactions {
                add(&key.account, RowPosition::Transaction(key.clone()), Row::Transaction(&row.stored));
            }
            let Listing { items, next } = Listing::first_of(rows, limit, |(position, _)| position.to_text());
            let stored = |(position, row): (Position, Row<'_>)| {
                Ok(StoredRow { account: position.account, content: row.to_content() })
            };
            Listing { items: items.into_iter().map(stored).collect(), next }
        }))
    }

    fn has_index_of_accepted(&self) -> bool {
        true
    }

    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault> {
        self.count_query();
        let start = cursor.map(read_cursor).transpose()?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.step(|Tables { ledger, .. }| {
            let rows = ledger.transactions.range((start, Bound::Unbounded));
            let rows = rows.filter(|(key, row)| {
                range.contains(key.account.user) && row.status() == TransactionStatus::Accepted
            });
            let Listing { items, next } = Listing::first_of(rows, limit, |(key, _)| write_cursor(key));
            Listing { items: items.into_iter().map(|(_, row)| Ok(row.stored.clone())).collect(), next }
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

    async fn stored_decision_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredDecisionPage>, StoreFault> {
        self.count_query();
        let after = read_number(cursor)?;
        Ok(self.step(|Tables { ledger, .. }| {
            let Listing { items, next } = pages_after(&ledger.decision_pages, account, after, limit);
            let stored = |(version, page)| StoredDecisionPage { version: Some(version), page: Ok(page) };
            Listing { items: items.into_iter().map(stored).collect(), next }
        }))
    }

    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault> {
        self.count_query();
        let after = read_number(cursor)?;
        Ok(self.step(|Tables { ledger, .. }| {
            let Listing { items, next } = pages_after(&ledger.pages, account, after, limit);
            let stored =
                |(first_sequence, page)| StoredPage { first_sequence: Some(first_sequence), page: Ok(page) };
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

/// Parses the cursor of a listing of pages.
fn read_number(cursor: Option<&str>) -> Result<Option<u64>, StoreFault> {
    cursor.map(|text| text.parse().map_err(|_| foreign_cursor())).transpose()
}

/// Returns the pages of an account whose number is greater than `after`, with their numbers.
fn pages_after(
    pages: &BTreeMap<(AccountKey, u64), JournalPage>,
    account: AccountKey,
    after: Option<u64>,
    limit: usize,
) -> Listing<(u64, JournalPage)> {
    let start = after.map_or(Bound::Included((account, 0)), |after| Bound::Excluded((account, after)));
    let rows = pages.range((start, Bound::Included((account, u64::MAX))));
    let rows = rows.map(|((_, number), page)| (*number, page.clone()));
    Listing::first_of(rows, limit, |(number, _)| number.to_string())
}

/// A row of the listing of all rows. Only the rows that are returned are cloned.
#[derive(Clone, Copy)]
enum Row<'a> {
    Account(&'a Account),
    DecisionPage(u64, &'a JournalPage),
    Page(u64, &'a JournalPage),
    Transaction(&'a StoredTransaction),
}

impl Row<'_> {
    fn to_content(self) -> RowContent {
        match self {
            Self::Account(account) => RowContent::Account(Box::new(Ok(account.clone()))),
            Self::DecisionPage(version, page) => RowContent::DecisionPage(StoredDecisionPage {
                version: Some(version),
                page: Ok(page.clone()),
            }),
            Self::Page(first, page) => {
                RowContent::Page(StoredPage { first_sequence: Some(first), page: Ok(page.clone()) })
            }
            Self::Transaction(stored) => RowContent::Transaction(Box::new(Ok(stored.clone()))),
        }
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    account: AccountKey,
    row: RowPosition,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum RowPosition {
    Account,
    DecisionPage(u64),
    Page(u64),
    Transaction(TransactionKey),
}

impl Position {
    fn to_text(&self) -> String {
        let account = self.account;
        match &self.row {
            RowPosition::Account => format!("{account}.a."),
            RowPosition::DecisionPage(version) => format!("{account}.d.{version}"),
            RowPosition::Page(first) => format!("{account}.p.{first}"),
            RowPosition::Transaction(key) => format!("{account}.t.{}", write_cursor(key)),
        }
    }

    fn parse(cursor: &str) -> Result<Self, StoreFault> {
        let mut parts = cursor.splitn(3, '.');
        let account = read_account(parts.next().unwrap_or_default())?;
        let row = match (parts.next(), parts.next()) {
            (Some("a"), Some("")) => RowPosition::Account,
            (Some("d"), Some(version)) => {
                RowPosition::DecisionPage(version.parse().map_err(|_| foreign_cursor())?)
            }
            (Some("p"), Some(first)) => RowPosition::Page(first.parse().map_err(|_| foreign_cursor())?),
            (Some("t"), Some(key)) => RowPosition::Transaction(read_cursor(key)?),
            _ => return Err(foreign_cursor()),
        };
        Ok(Self { account, row })
    }
}

/// Parses an account key in a cursor.
fn read_account(cursor: &str) -> Result<AccountKey, StoreFault> {
    let parsed = cursor.split_once('/').and_then(|(user, account)| {
        Some(AccountKey { user: user.parse().ok()?, account: account.parse().ok()? })
    });
    parsed.ok_or_else(foreign_cursor)
}
