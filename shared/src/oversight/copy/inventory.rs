//! What a store contains, for a restore that must not replace anything.

use super::values::{COPIED_VALUES, PROGRESS, SKIPPED_VALUES};
use crate::ports::Store;
use crate::ports::archive::UserRange;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::records::Collection;

/// Returns the kinds of content that a store has, in words for an operator; none if it is empty. The position of a copy is not
/// content.
///
/// # Errors
/// [`StoreFault`] when it cannot be read.
pub async fn inventory(store: &Store) -> Result<Vec<String>, StoreFault> {
    let mut found = Vec::new();
    let Store { archive, dead_letters, api_keys, payloads, records, sync, .. } = store;
    if has_items(async |cursor| archive.rows(UserRange::ALL, cursor.as_deref(), 1).await).await? {
        found.push("rows of accounts".to_owned());
    }
    if has_items(async |cursor| archive.listed_accounts(UserRange::ALL, cursor.as_deref(), 1).await).await? {
        found.push("a list of accounts".to_owned());
    }
    if has_items(async |cursor| dead_letters.list(false, cursor.as_deref(), 1).await).await? {
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
    if has_items(async |cursor| payloads.list("", cursor.as_deref(), 1).await).await? {
        found.push("payloads".to_owned());
    }
    for name in COPIED_VALUES.into_iter().chain(SKIPPED_VALUES).filter(|name| *name != PROGRESS) {
        if sync.get(name).await?.is_some() {
            found.push(format!("the shared value {name}"));
        }
    }
    Ok(found)
}

/// Returns whether a listing has any item. A page may be empty before the end.
async fn has_items<T>(
    page: impl AsyncFn(Option<String>) -> Result<Listing<T>, StoreFault>,
) -> Result<bool, StoreFault> {
    let mut cursor = None;
    loop {
        let Listing { items, next } = page(cursor).await?;
        if !items.is_empty() || next.is_none() {
            return Ok(!items.is_empty());
        }
        cursor = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_page_is_not_the_end_of_a_listing() {
        let pages = |last: Option<u8>| {
            async move |cursor: Option<String>| {
                Ok(match cursor {
                    None => Listing { items: Vec::new(), next: Some("last".to_owned()) },
                    Some(_) => Listing { items: last.into_iter().collect(), next: None },
                })
            }
        };
        assert!(has_items(pages(Some(1))).await.unwrap());
        assert!(!has_items(pages(None)).await.unwrap());
    }
}
