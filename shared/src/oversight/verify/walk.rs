//! Iterates over all accounts of a store: those in the lists of the users and those with a row in the ledger, merged in
//! the order of their keys.

use std::collections::VecDeque;
use std::sync::Arc;

use super::RetryingReader;
use crate::domain::ids::AccountKey;
use crate::ports::archive::{Archive, Damaged, Readable};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;

/// Maximum number of accounts per request.
pub(super) const LIMIT: usize = 1000;

/// An item of the iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// An account, and whether the list of its user contains it.
    Account { key: AccountKey, listed: bool },
    /// A name that cannot be read.
    Unreadable(Damaged),
}

/// The two listings.
#[derive(Debug, Clone, Copy)]
enum Source {
    Listed,
    Ledger,
}

/// One of the listings, with the items that were read.
struct Side {
    source: Source,
    waiting: VecDeque<Readable<AccountKey>>,
    cursor: Option<String>,
    ended: bool,
}

impl Side {
    const fn new(source: Source) -> Self {
        Self { source, waiting: VecDeque::new(), cursor: None, ended: false }
    }

    /// Reads the next page if no item is buffered.
    async fn fill(&mut self, archive: &dyn Archive, reader: &RetryingReader) -> Result<(), StoreFault> {
        while self.waiting.is_empty() && !self.ended {
            let (cursor, source) = (self.cursor.as_deref(), self.source);
            let listing: Listing<Readable<AccountKey>> = reader
                .read(async || match source {
                    Source::Listed => archive.listed_accounts(cursor, LIMIT).await,
                    Source::Ledger => archive.ledger_accounts(cursor, LIMIT).await,
                })
                .await?;
            self.waiting.extend(listing.items);
            self.ended = listing.next.is_none();
            self.cursor = listing.next;
        }
        Ok(())
    }

    fn next_key(&self) -> Option<AccountKey> {
        self.waiting.front().and_then(|item| item.as_ref().ok()).copied()
    }

    /// Takes the next item if it is a name that cannot be read.
    fn take_damaged(&mut self) -> Option<Damaged> {
        self.waiting.pop_front_if(|item| item.is_err()).and_then(Result::err)
    }
}

/// The iterator over all accounts.
pub(super) struct Walk {
    archive: Arc<dyn Archive>,
    reader: RetryingReader,
    listed: Side,
    ledger: Side,
}

impl Walk {
    pub(super) const fn new(archive: Arc<dyn Archive>, reader: RetryingReader) -> Self {
        Self { archive, reader, listed: Side::new(Source::Listed), ledger: Side::new(Source::Ledger) }
    }

    /// Returns the next item; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Step>, StoreFault> {
        let Self { archive, reader, listed, ledger } = self;
        listed.fill(&**archive, reader).await?;
        ledger.fill(&**archive, reader).await?;
        if let Some(damaged) = listed.take_damaged().or_else(|| ledger.take_damaged()) {
            return Ok(Some(Step::Unreadable(damaged)));
        }
        let (one, other) = (listed.next_key(), ledger.next_key());
        let Some(key) = [one, other].into_iter().flatten().min() else { return Ok(None) };
        for side in [&mut *listed, &mut *ledger] {
            side.waiting.pop_front_if(|item| *item == Ok(key));
        }
        Ok(Some(Step::Account { key, listed: one == Some(key) }))
    }
}
