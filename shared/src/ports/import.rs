//! Writes rows of the ledger as another store has them. A copy of a store is based on it: a backup, and a restore.
//!
//! The other ports decide, guard and chain; this one stores what was decided. So no process may work on the accounts that
//! are written.

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
    /// Transactions in every status, with their marks. Their revisions are those of the other store, and are not kept.
    pub transactions: Vec<StoredTransaction>,
    /// The row of the account. Without it, the stored one stays as it is.
    pub account: Option<Account>,
}

impl AccountRows {
    /// No rows of an account.
    pub const fn of(key: AccountKey) -> Self {
        Self { key, pages: Vec::new(), transactions: Vec::new(), account: None }
    }

    /// Returns the number of rows.
    pub fn count(&self) -> usize {
        let rows = self.pages.len().saturating_add(self.transactions.len());
        rows.saturating_add(usize::from(self.account.is_some()))
    }
}

/// Writes rows as another store has them.
#[async_trait]
pub trait Import: Send + Sync {
    /// Stores the rows of different accounts. Rows with the same keys are replaced. Pages, and transactions that are final,
    /// never change: the caller passes them as they are stored already, if they are, and a store may keep what it has. An
    /// account with a row is added to the list of its user.
    ///
    /// The row of an account is written with the last of its other rows, or after them: so an account at a version has all
    /// rows of that version, if the caller passes the row with the last ones. After a fault some rows may be written, or may
    /// still be. Repeating the call has the same effect as one.
    async fn import(&self, accounts: &[AccountRows]) -> Result<(), StoreFault>;
}
