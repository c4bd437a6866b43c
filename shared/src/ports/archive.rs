//! Reads of the whole ledger as it is stored, including damaged rows. The audit is based on them.
//!
//! The other ports refuse invalid data; these reads report it row by row and continue. They only check
//! that a row can be decoded, and they write nothing.

use std::fmt;

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::{Listing, StoredTransaction};
use crate::domain::ids::AccountKey;
use crate::domain::journal::JournalPage;

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

/// The stored ledger, for reading it from end to end. `cursor` is the `next` of the previous page of the
/// listing. It is opaque, and valid only for the listing and the account that returned it. Items that are added
/// or changed during a listing may or may not be returned; all others are returned exactly once.
#[async_trait]
pub trait Archive: Send + Sync {
    /// Returns all accounts in the account lists of users, over the whole store, in the order of their keys. At most
    /// `limit`. Rows that cannot be decoded are returned in their stored position.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] when the cursor does not belong to this listing.
    async fn listed_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault>;

    /// Returns all accounts for which the ledger contains any row (the account itself, a transaction or a page), listed
    /// or not; otherwise like [`Self::listed_accounts`]. The cost is about one scan per thousand rows, or per account
    /// with more rows than that.
    async fn ledger_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault>;

    /// Returns whether the account list of its user contains the account.
    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault>;

    /// Returns whether the ledger has any journal page, also a damaged one: whether anything was ever posted.
    async fn has_pages(&self) -> Result<bool, StoreFault>;

    /// Returns the journal pages of an account by first sequence, including damaged ones. At most `limit`.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] when the cursor does not belong to this listing.
    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault>;

    /// Returns the transactions of an account in every status, in an order that the store chooses and that does not
    /// depend on the status. At most `limit`.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] when the cursor does not belong to this listing.
    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault>;
}
