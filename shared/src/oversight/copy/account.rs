//! The copy of one account as of the version in its row. Pure.
//!
//! The row is read first, so all rows of its version are read after it. What was decided after that version is left out: pages;
//! and transactions, which are copied as accepted, as they were before, so that acknowledged work is not lost. Those of a
//! batch were inserted with their outcome; they are left out, and the batch posts them again.

use crate::domain::account::Account;
use crate::domain::ids::AccountKey;
use crate::domain::journal::{JournalPage, PageHash};
use crate::domain::transaction::{Outcome, Transaction};
use crate::ports::import::AccountRows;
use crate::ports::ledger::{Marks, StoredTransaction};

/// The place of a page in the chain.
#[derive(Debug, Clone, Copy)]
struct Link {
    version: Option<u64>,
    first_sequence: u64,
    previous: PageHash,
    hash: PageHash,
}

/// The end of a journal.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    version: u64,
    sequence: u64,
}

impl End {
    fn of(account: Option<&Account>) -> Self {
        account.map_or(Self::default(), |account| Self { version: account.version, sequence: account.sequence })
    }

    fn contains_page(self, page: &JournalPage) -> bool {
        page.version.map_or(page.last_sequence() <= self.sequence, |version| version <= self.version)
    }

    fn contains_outcome(self, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Posted { sequence, .. } => *sequence <= self.sequence,
            Outcome::Rejected { version, .. } => version.is_none_or(|version| version <= self.version),
        }
    }
}

/// An account that is being copied.
#[derive(Debug)]
pub(super) struct AccountCopy {
    /// The row, if it is among the rows that are read.
    row: Option<Account>,
    /// The end of the journal in the copy.
    end: End,
    /// The end of the journal that the target has already, with the head. Its pages are not read again.
    known: (End, PageHash),
    links: Vec<Link>,
    rows: AccountRows,
    /// Whether a page or transaction was added.
    counted: (u64, u64),
}

impl AccountCopy {
    /// Begins the copy of an account. `in_target` is the row in the target if only changes are read.
    pub(super) fn begin(key: AccountKey, row: Option<Account>, in_target: Option<&Account>) -> Self {
        let known_head = in_target.map_or(PageHash::GENESIS, |account| account.head);
        Self {
            end: End::of(row.as_ref().or(in_target)),
            known: (End::of(in_target), known_head),
            row,
            links: Vec::new(),
            rows: AccountRows::of(key),
            counted: (0, 0),
        }
    }

    /// Returns the account.
    pub(super) const fn key(&self) -> AccountKey {
        self.rows.key
    }

    /// Adds a page.
    pub(super) fn add_page(&mut self, page: &JournalPage) {
        if !self.end.contains_page(page) || self.known.0.contains_page(page) {
            return;
        }
        let JournalPage { version, first_sequence, previous_hash: previous, hash, .. } = *page;
        self.links.push(Link { version, first_sequence, previous, hash });
        self.rows.pages.push(page.clone());
        self.counted.0 = self.counted.0.saturating_add(1);
    }

    /// Adds a transaction.
    pub(super) fn add_transaction(&mut self, stored: &StoredTransaction) {
        let Some(stored) = self.as_of_end(stored) else { return };
        self.rows.transactions.push(stored);
        self.counted.1 = self.counted.1.saturating_add(1);
    }

    /// Returns a transaction as it was at the end of the journal; `None` if it did not exist.
    fn as_of_end(&self, stored: &StoredTransaction) -> Option<StoredTransaction> {
        let is_later =
            stored.transaction.outcome.as_ref().is_some_and(|outcome| !self.end.contains_outcome(outcome));
        if !is_later {
            return Some(stored.clone());
        }
        let accepted = || StoredTransaction {
            transaction: Transaction { outcome: None, ..stored.transaction.clone() },
            marks: Marks::default(),
            ..stored.clone()
        };
        stored.batch_line.is_none().then(accepted)
    }

    /// Takes the rows that were added so far, without the row of the account.
    pub(super) fn take_rows(&mut self) -> AccountRows {
        let none = AccountRows::of(self.rows.key);
        std::mem::replace(&mut self.rows, none)
    }

    /// Returns the number of pages and transactions.
    pub(super) const fn counts(&self) -> (u64, u64) {
        self.counted
    }

    /// Returns the remaining rows with the row of the account, and whether the pages lead to its head.
    pub(super) fn end(mut self) -> (AccountRows, bool) {
        let is_sound = self.leads_to_head();
        self.rows.account = self.row;
        (self.rows, is_sound)
    }

    fn leads_to_head(&mut self) -> bool {
        let Some(row) = &self.row else { return true };
        self.links.sort_by_key(|link| (link.version.unwrap_or(0), link.first_sequence));
        let mut head = self.known.1;
        for link in &self.links {
            if link.previous != head {
                return false;
            }
            head = link.hash;
        }
        head == row.head
    }
}
