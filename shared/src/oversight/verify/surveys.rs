//! Reads of a whole store that are not audits.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;

use super::reading::{for_each_decision_page, for_each_page};
use super::walk::Walk;
use super::{RetryingReader, for_each_range, for_each_row, walk};
use crate::domain::ids::{AccountKey, OrderNumber};
use crate::domain::journal::JournalPage;
use crate::domain::transaction::Outcome;
use crate::ports::Store;
use crate::ports::archive::{Readable, RowContent, UserRange};
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Number of ranges read concurrently for the highest order number.
const RANGES_AT_ONCE: usize = 8;

/// Returns the highest order number in pages and transactions; `None` if nothing was posted.
///
/// # Errors
/// [`StoreFault`] when the ledger cannot be read completely. Damaged rows are skipped: the numbers of a damaged page
/// are also in its transactions.
pub async fn highest_order_number(
    store: &Store,
    world: &Arc<dyn World>,
) -> Result<Option<OrderNumber>, StoreFault> {
    let reader = RetryingReader::new(world);
    let highest = Mutex::new(None);
    let note = |number: OrderNumber| {
        let mut highest = highest.lock();
        *highest = (*highest).max(Some(number));
    };
    let read = for_each_range(store, &reader, RANGES_AT_ONCE, async |walk| {
        for_each_row(walk, |_, content| match content {
            RowContent::Account(_) | RowContent::DecisionPage(_) => {}
            RowContent::Page(page) => {
                page.page.iter().flat_map(|page| &page.entries).for_each(|entry| note(entry.order_number));
            }
            RowContent::Transaction(stored) => {
                let outcome = stored.iter().filter_map(|stored| stored.outcome.as_ref());
                outcome.filter_map(Outcome::order_number).for_each(note);
            }
        })
        .await
    });
    read.await?;
    Ok(highest.into_inner())
}

/// Counts the accounts in the lists of all users, as the total for the progress of an audit.
///
/// # Errors
/// [`StoreFault`] when the lists cannot be read.
pub async fn count_accounts(store: &Store, world: &Arc<dyn World>) -> Result<u64, StoreFault> {
    let reader = RetryingReader::new(world);
    let (mut count, mut cursor) = (0_u64, None::<String>);
    loop {
        let read = || store.archive.listed_accounts(UserRange::ALL, cursor.as_deref(), walk::NAMES_LIMIT);
        let listing = reader.read(read).await?;
        count = count.saturating_add(u64::try_from(listing.items.len()).unwrap_or(u64::MAX));
        match listing.next {
            Some(next) => cursor = Some(next),
            None => return Ok(count),
        }
    }
}

/// Returns a walk over all rows of a store.
pub fn walk_over(store: &Store, world: &Arc<dyn World>) -> Walk {
    Walk::new(Arc::clone(&store.archive), RetryingReader::new(world), UserRange::ALL)
}

/// Returns the pages of an account with these versions in order, or the first damaged page anywhere in its journal.
///
/// # Errors
/// [`StoreFault`] when the journal cannot be read completely.
pub async fn pages_of_versions(
    store: &Store,
    world: &Arc<dyn World>,
    account: AccountKey,
    versions: RangeInclusive<u64>,
) -> Result<Readable<Vec<JournalPage>>, StoreFault> {
    let (reader, mut pages, mut damage) = (RetryingReader::new(world), Vec::new(), None);
    let mut add = |page: &Readable<JournalPage>| match page {
        Ok(page) if versions.contains(&page.version) => pages.push(page.clone()),
        Ok(_) => {}
        Err(damaged) => damage = damage.take().or_else(|| Some(damaged.clone())),
    };
    for_each_page(&reader, store, account, |stored| add(&stored.page)).await?;
    for_each_decision_page(&reader, store, account, |stored| add(&stored.page)).await?;
    pages.sort_by_key(|page| page.version);
    Ok(damage.map_or(Ok(pages), Err))
}
