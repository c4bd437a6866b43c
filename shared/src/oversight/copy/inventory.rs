//! Lists the contents of a store, for a restore that must not overwrite anything.

use super::values::{COPIED_VALUES, PROGRESS, SKIPPED_VALUES};
use crate::ports::Store;
use crate::ports::archive::UserRange;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::records::Collection;

/// Returns the kinds of content in a store, in words for an operator; none if it is empty. The position of a copy does not
/// count.
///
/// # Errors
/// [`StoreFault`] when the store cannot be read.
pub async fn inventory(store: &Store) -> Result<Vec<String>, StoreFault> {
    let mut found = Vec::new();
    let Store { archive, dead_letters, api_keys, payloads, records, sync, .. } = store;
    if has_items(|cursor| async move { archive.rows(UserRange::ALL, cursor.as_deref(), 1).await }).await? {
        found.push("rows of accounts".to_owned());
    }
    if has_items(|cursor| async move { archive.listed_accounts(UserRange::ALL, cursor.as_deref(), 1).await })
        .await?
    {
        found.push("a list of accounts".to_owned());
    }
    if has_items(|cursor| async move { dead_letters.list(false, cursor.as_deref(), 1).await }).await? {
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
    if has_items(|cursor| async move { payloads.list("", cursor.as_deref(), 1).await }).await? {
        found.push("payloads".to_owned());
    }
    for name in COPIED_VALUES.into_iter().chain(SKIPPED_VALUES).filter(|name| *name != PROGRESS) {
        if sync.get(name).await?.is_some() {
            found.push(format!("the shared value {name}"));
        }
    }
    Ok(found)
}

async fn has_items<T, P>(page: impl Fn(Option<String>) -> P) -> Result<bool, StoreFault>
where
    P: Future<Output = Result<Listing<T>, StoreFault>>,
{
    Ok(!Listing::first_with_items(page).await?.items.is_empty())
}
