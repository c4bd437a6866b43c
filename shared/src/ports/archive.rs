//! Reading the whole ledger as it is stored, also where it is damaged: what an audit stands on.
//!
//! The other ports refuse what cannot be right; these reads tell it, row by row, and go on behind it.
//! Nothing is checked here but that a row can be read at all, and nothing is written.

use std::fmt;

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::{Listing, StoredTransaction};
use crate::domain::ids::AccountKey;
use crate::domain::journal::JournalPage;

/// A row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// Which row, in the words of the store: enough for a person to find it.
    pub place: String,
    /// What is wrong with it.
    pub cause: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)
    }
}

/// A row, or why it cannot be read.
pub type Readable<T> = Result<T, Damaged>;

/// A journal page as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPage {
    /// Where it stands: the first sequence that its row is named for; `None` when that cannot be read.
    pub first_sequence: Option<u64>,
    /// Its content, not checked in any way ([`JournalPage::check`] was not called).
    pub page: Readable<JournalPage>,
}

/// The stored ledger, for reading it from end to end. `cursor` is the `next` of the page of the listing
/// before; it is opaque, and good for the listing and the account that gave it. Items that are added or
/// changed while a listing is read may or may not be seen; all others are seen once.
#[async_trait]
pub trait Archive: Send + Sync {
    /// All accounts that the lists of the users name, over the whole store, in the order of their keys.
    /// At most `limit`. What cannot be read stands where the store has it.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] when the cursor is not one of this listing.
    async fn listed_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault>;

    /// All accounts of which the ledger has any row (the account itself, a transaction or a page), listed
    /// or not; otherwise as [`Self::listed_accounts`]. Costs about one scan for a thousand rows, or for
    /// an account that has more.
    async fn ledger_accounts(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<AccountKey>>, StoreFault>;

    /// Whether the list of its user names the account.
    async fn is_listed(&self, account: AccountKey) -> Result<bool, StoreFault>;

    /// The journal pages of an account, by their first sequences, damaged ones too. At most `limit`.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] when the cursor is not one of this listing.
    async fn stored_pages(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredPage>, StoreFault>;

    /// The transactions of an account in every status, in an order of the store's own that no change of
    /// status moves. At most `limit`.
    ///
    /// # Errors
    /// [`StoreFault::Corrupt`] when the cursor is not one of this listing.
    async fn stored_transactions(
        &self,
        account: AccountKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<Readable<StoredTransaction>>, StoreFault>;
}
