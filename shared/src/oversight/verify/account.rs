//! One reading of one account: its row, then its pages, then its transactions. Pure.
//!
//! The account row is the first thing that is read, and whatever lies behind the sequence that it names
//! was written later and is passed over. What lies before it never changes. So money may move all the
//! while.

use std::time::Duration;

use super::chain::Chain;
use super::finding::{Finding, FindingKind, Findings};
use super::sieve::{Sieve, Suspects, entry_of};
use crate::domain::account::Account;
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::domain::time::Timestamp;
use crate::domain::transaction::{Transaction, TransactionStatus};
use crate::ports::archive::{Readable, StoredPage};
use crate::ports::ledger::StoredTransaction;

/// A transaction that is accepted for longer than this is worth a look.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(15 * 60);
/// Transactions of an account marked as dead letters that are looked for; more are counted.
const MARKED_MAX: usize = 1000;

/// The row of an account as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountRow {
    /// It was never opened, or its row was removed.
    Missing,
    /// Its row cannot be read.
    Unreadable(String),
    /// Its row.
    Read(Box<Account>),
}

/// What is audited.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Which account.
    pub key: AccountKey,
    /// Its row.
    pub row: AccountRow,
    /// Whether the list of its user names it.
    pub listed: bool,
}

/// How it is looked at.
#[derive(Debug, Clone)]
pub struct Look {
    /// The same for all looks of one audit, and for no other audit.
    pub salt: Nonce,
    /// The time.
    pub now: Timestamp,
    /// The first counter of order numbers that nobody reserved, where it is known.
    pub unreserved_from: Option<u64>,
    /// What an earlier look could not match.
    pub suspects: Suspects,
}

/// Rows behind the end that the account names: written since it was read, or never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    /// The highest sequence of them.
    pub sequence: u64,
    /// The transaction that has it; `None` for a page.
    pub transaction: Option<TransactionKey>,
}

/// What was read of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Journal pages.
    pub pages: u64,
    /// Their entries.
    pub entries: u64,
    /// Transactions in every status.
    pub transactions: u64,
}

/// What one reading of an account gave.
#[derive(Debug)]
pub struct Report {
    /// What is wrong, and what is worth a look.
    pub findings: Vec<Finding>,
    /// What could not be matched; another look with it tells what that is.
    pub suspects: Suspects,
    /// Rows behind the end.
    pub beyond: Option<Beyond>,
    /// The highest counter of its order numbers.
    pub highest_number: Option<u64>,
    /// Accepted transactions that are marked as dead letters.
    pub marked: Vec<TransactionKey>,
    /// What was read.
    pub counts: Counts,
}

/// A reading under way. Tell it all pages, then [`Self::end_of_pages`], then all transactions.
pub struct AccountAudit {
    subject: Subject,
    look: Look,
    chain: Chain,
    sieve: Sieve,
    findings: Findings,
    /// The last sequence that counts.
    until: u64,
    beyond: Option<Beyond>,
    marked: Vec<TransactionKey>,
    overdue: u64,
    oldest: Option<Timestamp>,
    unknown_fingerprints: u64,
    counts: Counts,
}

impl AccountAudit {
    /// Begins a reading.
    pub fn new(subject: Subject, look: Look) -> Self {
        let account = match &subject.row {
            AccountRow::Read(account) => Some(&**account),
            AccountRow::Missing | AccountRow::Unreadable(_) => None,
        };
        Self {
            chain: Chain::new(subject.key, account, look.unreserved_from),
            sieve: Sieve::new(subject.key, look.salt, look.suspects.clone()),
            findings: Findings::default(),
            until: account.map_or(u64::MAX, |account| account.sequence),
            beyond: None,
            marked: Vec::new(),
            overdue: 0,
            oldest: None,
            unknown_fingerprints: 0,
            counts: Counts::default(),
            subject,
            look,
        }
    }

    /// Whether a page counts: it does not lie behind the end that the account names.
    pub fn counts_page(&self, page: &StoredPage) -> bool {
        page.first_sequence.is_none_or(|first| first <= self.until)
    }

    /// The next page, in the order of the store.
    pub fn page(&mut self, stored: &StoredPage) {
        if !self.counts_page(stored) {
            if let Some(first) = stored.first_sequence {
                let last = stored.page.as_ref().map_or(first, |page| page.last_sequence().max(first));
                self.go_beyond(last, None);
            }
            return;
        }
        self.chain.page(stored, &mut self.findings);
        self.counts.pages = self.counts.pages.saturating_add(1);
        let entries = stored.page.iter().flat_map(|page| &page.entries);
        // Of a page that goes on behind the end, what stands before it counts.
        for (entry, _) in entries.zip(stored.first_sequence.unwrap_or(0)..=self.until) {
            self.counts.entries = self.counts.entries.saturating_add(1);
            self.sieve.entry(entry, &mut self.findings);
        }
    }

    /// All pages were told.
    pub fn end_of_pages(&mut self) {
        match &self.subject.row {
            AccountRow::Read(account) => self.chain.end(account, &mut self.findings),
            // What was posted since the last page was read is behind it, and passed over.
            AccountRow::Missing | AccountRow::Unreadable(_) => self.until = self.chain.last(),
        }
    }

    /// The next transaction, in any order.
    pub fn transaction(&mut self, stored: &Readable<StoredTransaction>) {
        self.counts.transactions = self.counts.transactions.saturating_add(1);
        let stored = match stored {
            Ok(stored) => stored,
            Err(damaged) => {
                let finding = Finding::of(FindingKind::TransactionUnreadable, Some(self.subject.key));
                return self.findings.push(finding.finding(damaged));
            }
        };
        let transaction = &stored.transaction;
        if !stored.fingerprint.has_known_rule() {
            self.unknown_fingerprints = self.unknown_fingerprints.saturating_add(1);
        } else if !transaction.instruction.matches(&stored.fingerprint) {
            let finding = Finding::of(FindingKind::Fingerprint, Some(self.subject.key));
            let found = transaction.instruction.fingerprint();
            let finding = finding.about(&transaction.key).expecting(stored.fingerprint).finding(found);
            self.findings.push(finding);
        }
        match transaction.status() {
            TransactionStatus::Posted => self.posted(transaction),
            TransactionStatus::Rejected => self.sieve.not_posted(transaction, &mut self.findings),
            TransactionStatus::Accepted => {
                self.sieve.not_posted(transaction, &mut self.findings);
                self.accepted(transaction, stored.marks.dead_letter);
            }
        }
    }

    /// All transactions were told.
    pub fn end(mut self) -> Report {
        self.about_the_row();
        let account = Some(self.subject.key);
        if self.overdue > 0 {
            let oldest = self.oldest.map(|at| format!(", the oldest since {at}")).unwrap_or_default();
            let finding = Finding::of(FindingKind::Overdue, account);
            self.findings.push(finding.finding(format!("{} of them{oldest}", self.overdue)));
        }
        if self.unknown_fingerprints > 0 {
            let finding = Finding::of(FindingKind::FingerprintUnknown, account);
            self.findings.push(finding.finding(format!("{} of them", self.unknown_fingerprints)));
        }
        let suspects = self.sieve.end(&mut self.findings);
        Report {
            findings: self.findings.into_told(self.subject.key),
            suspects,
            beyond: self.beyond,
            highest_number: self.chain.highest_number,
            marked: self.marked,
            counts: self.counts,
        }
    }

    fn posted(&mut self, transaction: &Transaction) {
        let Some(entry) = entry_of(transaction) else { return };
        if entry.sequence > self.until {
            return self.go_beyond(entry.sequence, Some(&transaction.key));
        }
        let in_a_gap = self.chain.is_in_a_gap(entry.sequence);
        self.sieve.posted(&entry, in_a_gap, &mut self.findings);
    }

    fn accepted(&mut self, transaction: &Transaction, dead_letter: bool) {
        if dead_letter {
            if self.marked.len() < MARKED_MAX {
                self.marked.push(transaction.key.clone());
            }
        } else if self.look.now.since(transaction.accepted_at) > OVERDUE_AFTER {
            self.overdue = self.overdue.saturating_add(1);
            let at = transaction.accepted_at;
            self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
        }
    }

    fn go_beyond(&mut self, sequence: u64, transaction: Option<&TransactionKey>) {
        if self.beyond.as_ref().is_none_or(|beyond| beyond.sequence < sequence) {
            self.beyond = Some(Beyond { sequence, transaction: transaction.cloned() });
        }
    }

    fn about_the_row(&mut self) {
        let finding = |kind| Finding::of(kind, Some(self.subject.key));
        let Counts { pages, entries: _, transactions } = self.counts;
        match &self.subject.row {
            AccountRow::Unreadable(cause) => {
                self.findings.push(finding(FindingKind::AccountUnreadable).finding(cause));
            }
            AccountRow::Missing if pages > 0 || transactions > 0 => {
                let found = format!("{pages} pages and {transactions} transactions");
                self.findings.push(finding(FindingKind::AccountMissing).finding(found));
            }
            AccountRow::Missing if self.subject.listed => {
                self.findings.push(finding(FindingKind::NeverOpened));
            }
            AccountRow::Read(_) if !self.subject.listed => {
                self.findings.push(finding(FindingKind::AccountUnlisted));
            }
            AccountRow::Missing | AccountRow::Read(_) => {}
        }
    }
}
