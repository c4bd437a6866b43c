//! Lists the rejected transactions of an account from the journal, in the order of their decisions.
//!
//! The store keeps two kinds of pages apart: pages with entries, which can contain rejections of the same commit, and
//! pages without entries. Both kinds are read up to a version that both reads have reached, and merged by version. A
//! later read therefore finds new rejections only behind those already returned.

use crate::domain::ids::{AccountKey, MessageId, PartnerId, TransactionKey};
use crate::domain::journal::JournalPage;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Listing, StoredTransaction};

/// Number of pages without entries in one read.
const DECISION_PAGES_READ: usize = 100;
/// Number of entries of the other pages in one read. An entry can take kilobytes.
const ENTRIES_READ: usize = 200;

const DOING: &str = "listing rejected transactions";

/// A position in the rejections of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// The version of the next page.
    version: u64,
    /// The number of rejections in that page that are before the position.
    offset: usize,
    /// No entry of that page or of a later one has a lower sequence.
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

/// Returns rejected transactions of an account, of one partner or of all, in the order of their decisions; `None` when
/// the account does not exist. `cursor` is the `next` of the previous page. A page has at most `limit` items, and can
/// have fewer or none before the end.
///
/// # Errors
/// [`StoreFault::ForeignCursor`] if the text is not a cursor. The cursor of another account is not detected and gives
/// arbitrary results. Another fault if the journal or a transaction cannot be read.
pub async fn rejections(
    store: &Store,
    account: AccountKey,
    partner: Option<&PartnerId>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Option<Listing<StoredTransaction>>, StoreFault> {
    let position = cursor.map_or(Some(Position::START), Position::parse);
    let from = position.ok_or(StoreFault::ForeignCursor { doing: DOING })?;
    // Read before the pages, so that these include every page up to this version.
    let Some(state) = store.ledger.account(account).await? else { return Ok(None) };
    let with_entries = Pages::of(&store.log.pages(account, from.sequence, ENTRIES_READ).await?, from);
    let others =
        Pages::of(&store.log.decision_pages(account, from.version, DECISION_PAGES_READ).await?, from);
    let Rejections { mut found, end } = merge(with_entries, others, from, state.value.version);
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

/// The relevant content of the pages of one kind, in order.
struct Pages {
    pages: Vec<Page>,
    /// Number of entries from the position on.
    entries: usize,
}

/// The relevant content of a page.
struct Page {
    version: u64,
    first_sequence: u64,
    last_sequence: u64,
    rejected: Vec<(PartnerId, MessageId)>,
}

impl Pages {
    fn of(pages: &[JournalPage], from: Position) -> Self {
        let entries = pages.iter().flat_map(|page| &page.entries);
        let entries = entries.filter(|entry| entry.sequence >= from.sequence).count();
        let of_page = |page: &JournalPage| Page {
            version: page.version,
            first_sequence: page.first_sequence,
            last_sequence: page.last_sequence(),
            rejected: page.rejected_keys().map(|(partner, message)| (partner.clone(), message)).collect(),
        };
        Self { pages: pages.iter().map(of_page).collect(), entries }
    }

    fn last_version(&self) -> u64 {
        self.pages.last().map(|page| page.version).unwrap_or_default()
    }
}

/// A rejection in a page.
struct Found {
    partner: PartnerId,
    message: MessageId,
    /// The position after it.
    after: Position,
}

/// Rejections in the order of their decisions.
struct Rejections {
    found: Vec<Found>,
    /// The position after the last version that was read; `None` at the end of the journal.
    end: Option<Position>,
}

/// Merges the rejections from a position on. `current` is the version of the account, read before the pages.
fn merge(with_entries: Pages, others: Pages, from: Position, current: u64) -> Rejections {
    let mut reached = current;
    if with_entries.entries >= ENTRIES_READ {
        reached = reached.min(with_entries.last_version());
    }
    if others.pages.len() >= DECISION_PAGES_READ {
        reached = reached.min(others.last_version());
    }
    let passed = with_entries.pages.iter().rev().find(|page| page.version <= reached);
    let sequence = passed.map_or(from.sequence, |page| page.last_sequence.saturating_add(1));
    let end = if reached < from.version {
        Position { sequence, ..from }
    } else {
        Position { version: reached.saturating_add(1), offset: 0, sequence }
    };
    let pages = with_entries.pages.into_iter().chain(others.pages);
    let mut pages: Vec<Page> =
        pages.filter(|page| (from.version..=reached).contains(&page.version)).collect();
    pages.sort_unstable_by_key(|page| page.version);
    let found = pages.into_iter().flat_map(|Page { version, first_sequence, rejected, .. }| {
        let read_before = if version == from.version { from.offset } else { 0 };
        rejected.into_iter().zip(1..).skip(read_before).map(move |((partner, message), offset)| {
            let after = Position { version, offset, sequence: first_sequence };
            Found { partner, message, after }
        })
    });
    Rejections { found: found.collect(), end: (reached < current).then_some(end) }
}
