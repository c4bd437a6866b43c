//! What a store contains, for a restore that must not replace anything.

use super::values::{COPIED_VALUES, PROGRESS, SKIPPED_VALUES};
use crate::ports::Store;
use crate::ports::archive::UserRange;
use crate::ports::fault::StoreFault;
use crate::ports::records::Collection;

/// Returns the kinds of content that a store has, in words for an operator; none if it is empty. The position of a copy is not
/// content.
///
/// # Errors
/// [`StoreFault`] when it cannot be read.
pub async fn inventory(store: &Store) -> Result<Vec<String>, StoreFault> {
    let mut found = Vec::new();
    let Store { archive, dead_letters, api_keys, payloads, records, sync, .. } = store;
    if has_rows(store).await? {
        found.push("rows of accounts".to_owned());
    }
    if !archive.listed_accounts(UserRange::ALL, None, 1).await?.items.is_empty() {
        found.push("a list of accounts".to_owned());
    }
    if !dead_letters.list(false, None, 1).await?.items.is_empty() {
        found.push("dead letters".to_owned());
    }
    let keys = api_keys.list().await?.len();
    if keys > 0 {
        found.push(format!("{keys} API keys"));
    }
    for collection in Collection::ALL {
        if !records.list(collection, "", None, 1).await?.is_empty() {
            found.push(format!("records ({})", collection.code()));
        }
    }
    if !payloads.list("", None, 1).await?.items.is_empty() {
        found.push("payloads".to_owned());
    }
    for name in COPIED_VALUES.into_iter().chain(SKIPPED_VALUES).filter(|name| *name != PROGRESS) {
        if sync.get(name).await?.is_some() {
            found.push(format!("the shared value {name}"));
        }
    }
    Ok(found)
}

/// Returns whether the ledger has any row. A response may be empty before the end.
async fn has_rows(store: &Store) -> Result<bool, StoreFault> {
    let mut cursor = None::<String>;
    loop {
        let listing = store.archive.rows(UserRange::ALL, cursor.as_deref(), 1).await?;
        if !listing.items.is_empty() {
            return Ok(true);
        }
        let Some(next) = listing.next else { return Ok(false) };
        cursor = Some(next);
    }
}
