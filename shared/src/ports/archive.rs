//! Reads of the whole ledger as it is stored, including damaged rows. The audit is based on them.
//!
//! The other ports refuse invalid data. These reads report damage row by row and continue. They only check that a row can
//! be decoded, and write nothing.

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
    /// The location of the row in terms of the store, precise enough for an operator to find it.
    pub place: String,
    /// Why the row cannot be decoded.
    pub cause: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

/// A row, or why it cannot be decoded.
pub type Readable<T> = Result<T, Damaged>;

/// A journal page as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPage {
    /// The first sequence in the row key; `None` if the key cannot be decoded.
    pub first_sequence: Option<u64>,
    /// The content, unchecked ([`JournalPage::check`] was not called).
    pub page: Readable<JournalPage>,
}

/// A page without entries as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDecisionPage {
    /// The version in the row key; `None` if the key cannot be decoded.
    pub version: Option<u64>,
    /// The content, unchecked.
    pub page: Readable<JournalPage>,
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// The account that the row belongs to.
    pub account: AccountKey,
    /// Its content.
    pub content: RowContent,
}

/// The content of a row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowContent {
    /// The account.
    Account(Box<Readable<Account>>),
    /// A journal page with entries.
    Page(StoredPage),
    /// A journal page without entries.
    DecisionPage(StoredDecisionPage),
    /// A transaction in any status.
    Transaction(Box<Readable<StoredTransaction>>),
}

/// A half-open range of users in id order, which contains all of their accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRange {
    /// The first user; `None` for the start of the store, which may also contain damaged keys.
    pub from: Option<UserId>,
    /// The first user after the range; `None` for the end of the store.
    pub to: Option<UserId>,
}

impl UserRange {
    /// The whole store.
    pub const ALL: Self = Self { from: None, to: None };

    /// Divides the whole store into `count` ranges (at least one), each with about the same share of random ids.
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

/// The stored ledger, for reading it from end to end. `cursor` is the `next` of the previous page of a listing. It is
/// opaque, and valid in every process at any later time, but only for the listing and the account or range that returned
/// it. Items that are added or changed during a listing may or may not be returned; all others are returned exactly once.
/// A page can have fewer items than the limit, or none, without being the last one.
///
/// # Errors
/// Each listing returns [`StoreFault::ForeignCursor`] when the cursor does not belong to it.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Returns at most `limit` accounts from the account lists of the users in a range, in key order. Rows that cannot be
    /// decoded are returned at their stored position.
    async fn listed_accounts(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault>;

    /// Returns the rows of the ledger in a range, account by account in key order. The account row comes first, then the
    /// pages without entries by version, the pages with entries by first sequence, and the transactions in an order that
    /// does not depend on their status. Returns at most `limit` rows, and fewer where rows are large. Rows whose account
    /// cannot be decoded are damaged.
    async fn rows(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault>;

    /// Like [`Self::rows`], but may skip rows last written before `since` on the clock of the store. This is a separate
    /// listing with its own cursors.
    async fn rows_since(
        &self,
        _since: Timestamp,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredRow>>, StoreFault> {
        self.rows(range, cursor, limit).await
    }

    /// Returns whether [`Self::accepted`] reads accepted transactions only, regardless of the number of other rows. The
    /// value never changes.
    fn has_index_of_accepted(&self) -> bool;

    /// Returns at most `limit` accepted transactions in a range, in no particular order.
    async fn accepted(
        &self,
        range: UserRange,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault>;

    /// Returns whether the account list of its user contains the account.
    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault>;

    /// Returns whether the ledger has any journal page, even a damaged one: whether anything was ever posted.
    async fn has_pages(&self) -> Result<bool, StoreFault>;

    /// Returns at most `limit` journal pages without entries of an account, by version, including damaged ones.
    async fn stored_decision_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredDecisionPage>, StoreFault>;

    /// Returns at most `limit` journal pages with entries of an account, by first sequence, including damaged ones.
    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault>;

    /// Returns at most `limit` transactions of an account in any status. The order is chosen by the store and does not
    /// depend on the status.
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
