//! Iterates over the rows of a range of users, account by account in key order. The rows of the ledger are merged with
//! the accounts in the lists of users. Each row is read once.

use std::collections::VecDeque;
use std::sync::Arc;

use super::RetryingReader;
use crate::domain::ids::AccountKey;
use crate::ports::archive::{Archive, Damaged, Readable, RowContent, StoredRow, UserRange};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;

pub(super) const NAMES_LIMIT: usize = 1000;
const ROWS_LIMIT: usize = 1000;

/// A step of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next account.
    Account {
        /// The account.
        key: AccountKey,
        /// Whether the list of its user contains the account.
        listed: bool,
    },
    /// The next row of this account.
    Row(RowContent),
    /// A row or list entry whose account cannot be decoded.
    Unreadable(Damaged),
}

/// A position in a walk, at which a later walk can continue, also in another process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The cursor of the row listing.
    pub cursor: Option<String>,
    /// The account of the last row before the cursor. More of its rows may follow.
    pub account: Option<AccountKey>,
}

/// Items of a listing that were read but not used yet.
struct Buffer<T> {
    waiting: VecDeque<Readable<T>>,
    cursor: Option<String>,
    ended: bool,
}

impl<T> Buffer<T> {
    const fn from(cursor: Option<String>) -> Self {
        Self { waiting: VecDeque::new(), cursor, ended: false }
    }

    fn needs_read(&self) -> bool {
        self.waiting.is_empty() && !self.ended
    }

    fn add(&mut self, listing: Listing<Readable<T>>) {
        self.waiting.extend(listing.items);
        self.ended = listing.next.is_none();
        self.cursor = listing.next;
    }

    fn first(&self) -> Option<&T> {
        self.waiting.front().and_then(|item| item.as_ref().ok())
    }

    /// Takes the next item if it is damaged.
    fn take_damaged(&mut self) -> Option<Damaged> {
        self.waiting.pop_front_if(|item| item.is_err()).and_then(Result::err)
    }
}

/// A walk over a range of users.
pub struct Walk {
    archive: Arc<dyn Archive>,
    reader: RetryingReader,
    range: UserRange,
    names: Buffer<AccountKey>,
    /// A continued walk only returns names after this one.
    names_after: Option<AccountKey>,
    rows: Buffer<StoredRow>,
    /// The account of the last step. At the start of a continued walk, the account of the last row before it.
    account: Option<AccountKey>,
    reads: u64,
}

impl Walk {
    pub(super) fn new(archive: Arc<dyn Archive>, reader: RetryingReader, range: UserRange) -> Self {
        let (names, rows) = (Buffer::from(None), Buffer::from(None));
        Self { archive, reader, range, names, names_after: None, rows, account: None, reads: 0 }
    }

    /// Creates a walk over the rest of the store. The first rows may belong to [`Place::account`], which no step names
    /// again.
    pub(super) fn continued(archive: Arc<dyn Archive>, reader: RetryingReader, place: Place) -> Self {
        let Place { cursor, account } = place;
        let rows = Buffer::from(cursor);
        Self { rows, account, names_after: account, ..Self::new(archive, reader, UserRange::ALL) }
    }

    /// Returns the place of the next read of rows, if all earlier rows were returned and more follow.
    pub fn place(&self) -> Option<Place> {
        let is_there = self.rows.needs_read() && self.rows.cursor.is_some();
        is_there.then(|| Place { cursor: self.rows.cursor.clone(), account: self.account })
    }

    pub(super) const fn range(&self) -> UserRange {
        self.range
    }

    /// Returns the number of reads so far.
    pub const fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns the account of the last step.
    pub const fn account(&self) -> Option<AccountKey> {
        self.account
    }

    /// Returns whether the next step needs a read.
    pub fn needs_read(&self) -> bool {
        self.names.needs_read() || self.rows.needs_read()
    }

    async fn fill(&mut self) -> Result<(), StoreFault> {
        let Self { archive, reader, range, names, names_after, rows, account: _, reads } = self;
        while rows.needs_read() {
            let cursor = rows.cursor.as_deref();
            rows.add(reader.read(|| archive.rows(*range, cursor, ROWS_LIMIT)).await?);
            *reads = reads.saturating_add(1);
        }
        while names.needs_read() {
            let cursor = names.cursor.as_deref();
            let from = names_after.map(|account| account.user).or(range.from);
            let range = UserRange { from, ..*range };
            let read = || archive.listed_accounts(range, cursor, NAMES_LIMIT);
            names.add(reader.read(read).await?);
            names
                .waiting
                .retain(|name| name.as_ref().map_or(true, |name| names_after.is_none_or(|it| *name > it)));
            *reads = reads.saturating_add(1);
        }
        Ok(())
    }

    /// Returns the next step; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Step>, StoreFault> {
        self.fill().await?;
        if let Some(damaged) = self.names.take_damaged().or_else(|| self.rows.take_damaged()) {
            return Ok(Some(Step::Unreadable(damaged)));
        }
        let row = self.rows.first().map(|row| row.account);
        if row.is_some() && row == self.account {
            let row = self.rows.waiting.pop_front().and_then(Result::ok);
            return Ok(row.map(|StoredRow { account: _, content }| Step::Row(content)));
        }
        let name = self.names.first().copied();
        let Some(key) = [name, row].into_iter().flatten().min() else { return Ok(None) };
        let listed = name == Some(key);
        if listed {
            self.names.waiting.pop_front();
        }
        self.account = Some(key);
        Ok(Some(Step::Account { key, listed }))
    }
}
