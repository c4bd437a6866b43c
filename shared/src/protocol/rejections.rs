//! Reads the rejected transactions of an account in the order of their decisions, from the journal.
//!
//! Rejections are in two kinds of pages, which the store keeps apart: with the postings of the same decision, and in pages
//! without entries. Both are read to a version that both have reached, and merged by version, so that a later read finds
//! new rejections only behind those that were read before.

use crate::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};
use crate::domain::journal::JournalPage;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction};

/// Number of pages without entries, and of entries of the other pages, in one read.
const DECISION_PAGES_READ: usize = 100;
const ENTRIES_READ: usize = 1000;

const DOING: &str = "listing rejected transactions";

/// A place in the journal of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// The version of the page that comes next.
    version: u64,
    /// The number of rejections of that page that are before the place.
    offset: usize,
    /// The sequence of an entry of that page or of a later one, with no such page before it.
    sequence: u64,
}

impl Position {
    const START: Self = Self { version: 0, offset: 0, sequence: 1 };

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        let version = numbers.next()?.parse().ok()?;
        let offset = numbers.next()?.parse().ok()?;
        let sequence = numbers.next()?.parse().ok()?;
        numbers.next().is_none().then_some(Self { version, offset, sequence })
    }

    fn text(self) -> String {
        let Self { version, offset, sequence } = self;
        format!("{version}.{offset}.{sequence}")
    }
}

/// Returns rejected transactions of an account, of one partner or of all, in the order of their decisions; `None` when the
/// account does not exist. `cursor` is the `next` of the previous page. At most `limit`; a page can be short, or empty,
/// before the end. Rejections of a time when the journal contained only postings are not listed.
///
/// # Errors
/// [`StoreFault::ForeignCursor`] for a cursor of another listing; any other fault when the journal or a transaction cannot
/// be read.
pub async fn rejections(
    store: &Store,
    account: AccountKey,
    partner: Option<&PartnerId>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Option<Listing<StoredTransaction>>, StoreFault> {
    let position = cursor.map_or(Some(Position::START), Position::parse);
    let from = position.ok_or(StoreFault::ForeignCursor { doing: DOING })?;
    // Read first, so that the reads of the pages find every page up to this version.
    let Some(state) = store.ledger.account(account).await? else { return Ok(None) };
    let with_entries = store.log.pages(account, from.sequence, ENTRIES_READ).await?;
    let others = store.log.decision_pages(account, from.version, DECISION_PAGES_READ).await?;
    let pages = Pages { with_entries, others };
    let Rejections { mut found, end } = pages.rejections(from, state.value.version);
    found.retain(|rejection| partner.is_none_or(|partner| *partner == rejection.partner));
    let is_cut = found.len() > limit;
    found.truncate(limit);
    let next = if is_cut { found.last().map(|last| last.after) } else { end };
    let key = |Found { partner, message, .. }| TransactionKey { account, partner, message };
    let keys: Vec<TransactionKey> = found.into_iter().map(key).collect();
    let rows = store.ledger.transactions(&keys).await?;
    let items = rows.into_iter().zip(&keys).map(|(row, key)| {
        let missing = || format!("the journal contains a rejection of {key}, which is not stored");
        row.ok_or_else(|| StoreFault::Corrupt { doing: DOING, source: missing().into() })
    });
    let items = items.collect::<Result<_, _>>()?;
    Ok(Some(Listing { items, next: next.map(Position::text) }))
}

/// Pages of both kinds, each in order.
struct Pages {
    with_entries: Vec<JournalPage>,
    others: Vec<JournalPage>,
}

/// A rejection in a page.
struct Found {
    partner: PartnerId,
    message: MessageId,
    /// The place after it.
    after: Position,
}

/// Rejections in the order of their decisions.
struct Rejections {
    found: Vec<Found>,
    /// The place after the last version that was read; `None` at the end of the journal.
    end: Option<Position>,
}

impl Pages {
    /// Returns the rejections from a place on, given the version of the account before the pages were read.
    fn rejections(self, from: Position, current: u64) -> Rejections {
        let entries = self.with_entries.iter().flat_map(|page| &page.entries);
        let entries_read = entries.filter(|entry| entry.sequence >= from.sequence).count();
        let last = |pages: &[JournalPage]| pages.last().and_then(|page| page.version).unwrap_or_default();
        let mut reached = current;
        if entries_read >= ENTRIES_READ {
            reached = reached.min(last(&self.with_entries));
        }
        if self.others.len() >= DECISION_PAGES_READ {
            reached = reached.min(last(&self.others));
        }
        // Pages without a version are before all others.
        let passed = self.with_entries.iter().rev().find(|page| page.version.is_none_or(|it| it <= reached));
        let sequence = passed.map_or(from.sequence, |page| page.last_sequence().saturating_add(1));
        let end = if reached < from.version {
            Position { sequence, ..from }
        } else {
            Position { version: reached.saturating_add(1), offset: 0, sequence }
        };
        let mut pages: Vec<(u64, JournalPage)> = Vec::new();
        for page in self.with_entries.into_iter().chain(self.others) {
            let version = page.version.filter(|version| (from.version..=reached).contains(version));
            pages.extend(version.map(|version| (version, page)));
        }
        pages.sort_unstable_by_key(|(version, _)| *version);
        let found = pages.iter().flat_map(|(version, page)| {
            let read_before = if *version == from.version { from.offset } else { 0 };
            page.rejected_keys().zip(1..).skip(read_before).map(|((partner, message), offset)| {
                let after = Position { version: *version, offset, sequence: page.first_sequence };
                Found { partner: partner.clone(), message, after }
            })
        });
        Rejections { found: found.collect(), end: (reached < current).then_some(end) }
    }
}
