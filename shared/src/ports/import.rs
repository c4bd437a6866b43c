//! Writes rows of the ledger exactly as another store has them. Backups and restores are based on it.
//!
//! The other ports decide, guard and chain; this port stores existing decisions. No process may work on the accounts
//! meanwhile.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::StoredTransaction;
use crate::domain::account::Account;
use crate::domain::ids::AccountKey;
use crate::domain::journal::JournalPage;

/// Rows of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRows {
    /// The account. All rows belong to it.
    pub key: AccountKey,
    /// Pages of its journal, with or without entries.
    pub pages: Vec<JournalPage>,
    /// Transactions in any status, with their marks. Their revisions belong to the other store and are not kept.
    pub transactions: Vec<StoredTransaction>,
    /// The account row. If it is `None`, the stored row does not change.
    pub account: Option<Account>,
}

impl AccountRows {
    /// Creates an empty set of rows for an account.
    pub const fn of(key: AccountKey) -> Self {
        Self { key, pages: Vec::new(), transactions: Vec::new(), account: None }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        let rows = self.pages.len().saturating_add(self.transactions.len());
        rows.saturating_add(usize::from(self.account.is_some()))
    }
}

/// Writes rows exactly as another store has them.
#[async_trait]
pub trait Import: Send + Sync {
    /// Stores the rows of different accounts, replacing rows with the same keys. Pages and final transactions never
    /// change, so the caller passes existing ones unchanged, and a store may keep what it has. An account with a row is
    /// added to the list of its user.
    ///
    /// The account row is written with the last of its other rows, or after them. If the caller passes the account row
    /// with the last rows, an account at a version therefore has all rows of that version. After a fault some rows may be
    /// written, or may still be. Repeating the call has the same effect as one call.
    async fn import(&self, accounts: &[AccountRows]) -> Result<(), StoreFault>;
}
