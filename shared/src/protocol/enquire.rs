//! Reads: one transaction, and the statement of an account.

use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::journal::Entry;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::StoredTransaction;

/// Largest number of entries in one page of a statement.
pub const STATEMENT_ENTRIES_MAX: usize = 1000;

/// Reads one transaction in any status.
///
/// # Errors
/// [`StoreFault`] when the log cannot be read.
pub async fn transaction(
    store: &Store,
    key: &TransactionKey,
) -> Result<Option<StoredTransaction>, StoreFault> {
    store.ledger.transaction(key).await
}

/// Returns posted entries of an account in order, starting at the sequence `from`, at most `limit` (itself at
/// most [`STATEMENT_ENTRIES_MAX`]). Fewer entries than `limit` mean that there are no more.
///
/// # Errors
/// [`StoreFault`] when the journal cannot be read, or is damaged.
pub async fn statement(
    store: &Store,
    account: AccountKey,
    from: u64,
    limit: usize,
) -> Result<Vec<Entry>, StoreFault> {
    let limit = limit.min(STATEMENT_ENTRIES_MAX);
    let pages = store.log.pages(account, from, limit).await?;
    let entries = pages.into_iter().flat_map(|page| page.entries);
    Ok(entries.filter(|entry| entry.sequence >= from).take(limit).collect())
}
