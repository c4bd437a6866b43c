//! Reads: transactions by key, message id or order number, and the statement of an account.

use crate::domain::ids::{AccountKey, MessageId, OrderNumber, PartnerId, TransactionKey};
use crate::domain::journal::Entry;
use crate::domain::transaction::Outcome;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::StoredTransaction;

/// Largest number of entries in one page of a statement.
pub const STATEMENT_ENTRIES_MAX: usize = 1000;

/// Reads one transaction with any status; `None` if the log does not contain it.
///
/// # Errors
/// [`StoreFault`] when the log cannot be read.
pub async fn transaction(
    store: &Store,
    key: &TransactionKey,
) -> Result<Option<StoredTransaction>, StoreFault> {
    store.ledger.transaction(key).await
}

/// Returns the transaction that was posted with an order number. SQLite finds every posting. Other stores find it some
/// seconds later, or after a round of the scrubber if the posting process could not record its number.
///
/// # Errors
/// [`StoreFault`] when the index or the log cannot be read.
pub async fn by_order_number(
    store: &Store,
    number: OrderNumber,
) -> Result<Option<StoredTransaction>, StoreFault> {
    let Some(key) = store.order_numbers.find(number).await? else { return Ok(None) };
    let found = store.ledger.transaction(&key).await?;
    let number_of = |stored: &StoredTransaction| stored.outcome.as_ref().and_then(Outcome::order_number);
    Ok(found.filter(|stored| number_of(stored) == Some(number)))
}

/// Returns the transactions of an account with a message id, at most one for each of the partners, which choose the ids.
///
/// # Errors
/// [`StoreFault`] when the log cannot be read.
pub async fn by_message(
    store: &Store,
    (account, message): (AccountKey, MessageId),
    partners: Vec<PartnerId>,
) -> Result<Vec<StoredTransaction>, StoreFault> {
    let key = |partner| TransactionKey { account, partner, message };
    let keys: Vec<TransactionKey> = partners.into_iter().map(key).collect();
    Ok(store.ledger.transactions(&keys).await?.into_iter().flatten().collect())
}

/// Returns posted entries of an account in order from the sequence `from`, at most `limit` and at most
/// [`STATEMENT_ENTRIES_MAX`]. Fewer entries than that are the end of the statement.
///
/// # Errors
/// [`StoreFault`] when the journal is damaged or cannot be read.
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
