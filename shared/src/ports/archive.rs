//! Reads of the whole ledger as it is stored, including damaged rows. The audit is based on them.
//!
//! The other ports refuse invalid data; these reads report it row by row and continue. They only check
//! that a row can be decoded, and they write nothing.

use std::fmt;

use async_trait::async_trait;
use uuid::Uuid;

use super::fault::StoreFault;
use super::ledger::{Listing, StoredTransaction};
use crate::domain::account::Account;
use crate::domain::ids::{AccountKey, UserId};
use crate::domain::journal::JournalPage;
use crate::domain::time::Timestamp;

/// A row that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The location of the row in terms of the store, detailed enough for an operator to find it.
    pub place: String,
    /// The reason why it cannot be decoded.
    pub cause: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

/// A row, or the reason why it cannot be decoded.
pub type Readable<T> = Result<T, Damaged>;

/// A journal page as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPage {
    /// The first sequence according to the key of the row; `None` when the key cannot be decoded.
    pub first_sequence: Option<u64>,
    /// The content, without any check ([`JournalPage::check`] was not called).
    pub page: Readable<JournalPage>,
}

/// A page without entries as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDecisionPage {
    /// The version according to the key of the row; `None` when the key cannot be decoded.
    pub version: Option<u64>,
    /// The content, without any check.
    pub page: Readable<JournalPage>,
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// The account to which it belongs.
    pub account: AccountKey,
    /// Its content.
    pub content: RowContent,
}

/// The content of a row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowContent {
    /// The account.
    Account(Box<Readable<Account>>),
    /// A page of its journal with entries.
    Page(StoredPage),
    /// A page of its journal without entries.
    DecisionPage(StoredDecisionPage),
    /// One of its transactions, in any status.
    Transaction(Box<Readable<StoredTransaction>>),
}

/// A part of the store: the accounts of the users from one id on, to before another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRange {
    /// The first user; `None` for the start of the store, where damaged keys may lie, too.
    pub from: Option<UserId>,
    /// The first user after the range; `None` for the end of the store.
    pub to: Option<UserId>,
}

impl UserRange {
    /// The whole store.
    pub const ALL: Self = Self { from: None, to: None };

    /// Divides the whole store into this many ranges, at least one, with about as many random ids in each.
    pub fn divided(count: u16) -> Vec<Self> {
        let count = u128::from(count.max(1));
        let width = u128::MAX.checked_div(count).unwrap_or(u128::MAX);
        let start = |index: u128| {
            let is_inner = index > 0 && index < count;
            is_inner.then(|| UserId::from_uuid(Uuid::from_u128(width.saturating_mul(index))))
        };
        (0..count).map(|index| Self { from: start(index), to: start(index.saturating_add(1)) }).collect()
    }

    /// Returns whether the accounts of a user are in the range.
    pub fn contains(&self, user: UserId) -> bool {
        self.from.is_none_or(|from| from <= user) && self.to.is_none_or(|to| user < to)
    }
}

/// The stored ledger, for reading it from end to end. `cursor` is the `next` of the previous page of the
/// listing. It is opaque, valid only for the listing, and the account or the range, that returned it, and for any
/// process at any later time. Items that are added or changed during a listing may or may not be returned; all others are
/// returned exactly once. A page can have fewer items than the limit, or none, without being the last one.
///
/// # Errors
/// Each listing returns [`StoreFault::ForeignCursor`] when the cursor does not belong to it.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Returns the accounts in the account lists of the users in a range, in the order of their keys. At most
    /// `limit`. Rows that cannot be decoded are returned in their stored position.
    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault>;

    /// Returns all rows of the ledger in a range, account by account in the order of their keys. Of each account its own
    /// row comes first, then its pages without entries by version, then those with entries by first sequence, then its
    /// transactions in an order that does not depend on their status. At most `limit`, which is reduced where rows are
    /// large. Rows whose account cannot be decoded are damaged.
    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault>;

    /// Returns rows like [`Self::rows`], and may leave out those that were last written before `since`, by the clock of the
    /// store. It is another listing, with cursors of its own.
    async fn rows_since(
        &self,
        _since: Timestamp,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        self.rows(range, cursor, limit).await
    }

    /// Returns whether [`Self::accepted`] reads only accepted transactions, however many rows there are. The value never
    /// changes.
    fn has_index_of_accepted(&self) -> bool;

    /// Returns the accepted transactions in a range, in no particular order. At most `limit`.
    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault>;

    /// Returns whether the account list of its user contains the account.
    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault>;

    /// Returns whether the ledger has any journal page, also a damaged one: whether anything was ever posted.
    async fn has_pages(&self) -> Result<bool, StoreFault>;

    /// Returns the journal pages of an account without entries by version, including damaged ones. At most `limit`.
    async fn stored_decision_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredDecisionPage>, StoreFault>;

    /// Returns the journal pages of an account with entries by first sequence, including damaged ones. At most `limit`.
    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault>;

    /// Returns the transactions of an account in every status, in an order that the store chooses and that does not
    /// depend on the status. At most `limit`.
    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_divide_the_store_without_gaps() {
        for count in [0, 1, 2, 3, 64, 1000] {
            let ranges = UserRange::divided(count);
            assert_eq!(ranges.len(), usize::from(count.max(1)));
            assert_eq!((ranges[0].from, ranges[ranges.len() - 1].to), (None, None));
            assert!(ranges.windows(2).all(|pair| pair[0].to.is_some() && pair[0].to == pair[1].from));
            for id in [0, 1, u128::MAX / 64, u128::MAX / 3 + 1, u128::MAX / 2, u128::MAX] {
                let user = UserId::from_uuid(Uuid::from_u128(id));
                let holding = ranges.iter().filter(|range| range.contains(user)).count();
                assert_eq!(holding, 1, "{id} of {count} ranges");
            }
        }
    }
}
