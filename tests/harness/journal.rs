//! Reads the whole journal of an account directly from the store.

use postonce_shared::testing::prelude::*;

/// Returns the pages of an account in the order of their decisions.
///
/// # Panics
/// When the pages cannot be read.
pub async fn whole_journal(store: &Store, account: AccountKey) -> Vec<JournalPage> {
    let mut pages = store.log.pages(account, 1, usize::MAX).await.expect("the journal can be read");
    let mut cursor: Option<String> = None;
    loop {
        let read = store.archive.stored_decision_pages(account, cursor.as_deref(), 1000).await;
        let read = read.expect("the pages without entries can be read");
        pages.extend(read.items.into_iter().map(|stored| stored.page.expect("each page can be read")));
        cursor = read.next;
        if cursor.is_none() {
            break;
        }
    }
    pages.sort_by_key(|page| page.version);
    pages
}
