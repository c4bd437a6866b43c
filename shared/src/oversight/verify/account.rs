//! The audit of one account in one pass: its row, then its pages, then its transactions. Performs no I/O.
//!
//! The account row is read first. Rows after its sequence were written later and are skipped; rows up to it never
//! change. Postings may therefore continue during the audit.

use std::time::Duration;

use super::chain::Chain;
use super::comparison::{Comparison, DifferingGroups, entry_of};
use super::decisions::Decisions;
use super::finding::{Finding, FindingKind, Findings};
use crate::domain::account::Account;
use crate::domain::anchor::Leaf;
use crate::domain::decision::Submission;
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::domain::journal::JournalPage;
use crate::domain::rejection::RejectReason;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{Outcome, TransactionStatus};
use crate::ports::archive::{Readable, StoredDecisionPage, StoredPage};
use crate::ports::ledger::StoredTransaction;

/// The age from which an accepted transaction is reported.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(15 * 60);
/// Maximum number of transactions per account that are looked up in the dead letters. The others are counted.
const MARKED_MAX: usize = 1000;

/// The row of an account, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountRow {
    /// The account was never opened, or its row was deleted.
    Missing,
    /// The row cannot be decoded, for this reason.
    Unreadable(String),
    /// The row was read.
    Read(Box<Account>),
}

/// The audited account.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The key of the account.
    pub key: AccountKey,
    /// Its row.
    pub row: AccountRow,
    /// Whether the list of its user contains the account.
    pub listed: bool,
    /// Its leaf in an anchor; `None` if it is not compared with an anchor.
    pub leaf: Option<Leaf>,
}

/// Parameters of one pass over an account.
#[derive(Debug, Clone)]
pub struct PassOptions {
    /// A nonce shared by all passes of one audit.
    pub salt: Nonce,
    /// The current time.
    pub now: Timestamp,
    /// The lowest counter of an order number that was not reserved, if known.
    pub unreserved_from: Option<u64>,
    /// The groups that differed in the previous pass.
    pub differing_groups: DifferingGroups,
}

/// Rows after the sequence of the account row. They were written after it was read, or are inconsistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterRows {
    /// The highest sequence of these rows.
    pub sequence: u64,
    /// The transaction with that sequence; `None` for a page.
    pub transaction: Option<TransactionKey>,
}

/// Numbers of rows read for an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Journal pages.
    pub pages: u64,
    /// Entries on these pages.
    pub entries: u64,
    /// Transactions in any status.
    pub transactions: u64,
}

/// Result of one pass over an account.
#[derive(Debug)]
pub struct Report {
    /// Inconsistencies and notices.
    pub findings: Vec<Finding>,
    /// The groups that differ. A further pass compares them entry by entry.
    pub differing_groups: DifferingGroups,
    /// Rows after the sequence of the account row.
    pub later_rows: Option<LaterRows>,
    /// The highest decision version after the version of the account row.
    pub later_version: Option<u64>,
    /// The highest counter of the order numbers of the account.
    pub highest_number: Option<u64>,
    /// Accepted transactions that are marked as dead letters.
    pub marked: Vec<TransactionKey>,
    /// The number of further ones.
    pub marked_more: u64,
    /// Numbers of rows read.
    pub counts: Counts,
}

/// One pass over an account. Call [`Self::page`] for all pages, then [`Self::end_of_pages`], then
/// [`Self::transaction`] for all transactions.
pub struct AccountAudit {
    subject: Subject,
    options: PassOptions,
    chain: Chain,
    comparison: Comparison,
    decisions: Decisions,
    findings: Findings,
    /// The last sequence that is audited.
    until: u64,
    later_rows: Option<LaterRows>,
    marked: Vec<TransactionKey>,
    marked_more: u64,
    /// Rejections because the account does not exist. These are the only rows that need no account.
    of_unknown_account: u64,
    overdue: u64,
    oldest: Option<Timestamp>,
    unknown_fingerprints: u64,
    counts: Counts,
    /// Whether the page that the leaf names was read.
    has_page_of_leaf: bool,
}

impl AccountAudit {
    /// Starts a pass.
    pub fn new(subject: Subject, options: PassOptions) -> Self {
        let account = match &subject.row {
            AccountRow::Read(account) => Some(&**account),
            AccountRow::Missing | AccountRow::Unreadable(_) => None,
        };
        Self {
            chain: Chain::new(subject.key, account, options.unreserved_from),
            comparison: Comparison::new(subject.key, options.salt, options.differing_groups.clone()),
            decisions: Decisions::new(subject.key, options.salt, account),
            findings: Findings::default(),
            until: account.map_or(u64::MAX, |account| account.sequence),
            later_rows: None,
            marked: Vec::new(),
            marked_more: 0,
            of_unknown_account: 0,
            overdue: 0,
            oldest: None,
            unknown_fingerprints: 0,
            counts: Counts::default(),
            has_page_of_leaf: false,
            subject,
            options,
        }
    }

    /// Returns whether a page is audited, because it does not start after the sequence of the account row.
    pub fn counts_page(&self, page: &StoredPage) -> bool {
        page.first_sequence.is_none_or(|first| first <= self.until)
    }

    /// Audits the next page, in store order.
    pub fn page(&mut self, stored: &StoredPage) {
        if !self.counts_page(stored) {
            if let Some(first) = stored.first_sequence {
                let last = stored.page.as_ref().map_or(first, |page| page.last_sequence().max(first));
                self.note_later_row(last, None);
            }
            return;
        }
        self.chain.page(stored, &mut self.findings);
        self.compare_with_leaf(&stored.page);
        match &stored.page {
            Ok(page) => self.decisions.page(page, &mut self.findings),
            Err(_) => self.decisions.note_damage(),
        }
        self.counts.pages = self.counts.pages.saturating_add(1);
        let entries = stored.page.iter().flat_map(|page| &page.entries);
        // Entries after the sequence of the account row are skipped.
        for (entry, _) in entries.zip(stored.first_sequence.unwrap_or(0)..=self.until) {
            self.counts.entries = self.counts.entries.saturating_add(1);
            self.comparison.entry(entry, &mut self.findings);
        }
    }

    /// Audits the next page without entries. Any order is accepted.
    pub fn decision_page(&mut self, stored: &StoredDecisionPage) {
        self.counts.pages = self.counts.pages.saturating_add(1);
        self.compare_with_leaf(&stored.page);
        self.decisions.decision_page(stored, &mut self.findings);
    }

    /// Ends the pages, and compares the journal with the account row.
    pub fn end_of_pages(&mut self) {
        match &self.subject.row {
            AccountRow::Read(account) => self.chain.end(account, &mut self.findings),
            // Transactions that were posted after the last page was read are skipped.
            AccountRow::Missing | AccountRow::Unreadable(_) => self.until = self.chain.last(),
        }
    }

    /// Audits the next transaction. Any order is accepted.
    pub fn transaction(&mut self, stored: &Readable<StoredTransaction>) {
        self.counts.transactions = self.counts.transactions.saturating_add(1);
        let stored = match stored {
            Ok(stored) => stored,
            Err(damaged) => {
                let finding = Finding::of(FindingKind::TransactionUnreadable, Some(self.subject.key));
                return self.findings.push(finding.finding(damaged));
            }
        };
        let Submission { key, instruction, .. } = &stored.submission;
        if !stored.fingerprint.has_known_rule() {
            self.unknown_fingerprints = self.unknown_fingerprints.saturating_add(1);
        } else if !instruction.matches(&stored.fingerprint) {
            let finding = Finding::of(FindingKind::Fingerprint, Some(self.subject.key));
            let found = instruction.fingerprint();
            let finding = finding.about(key).expecting(stored.fingerprint).finding(found);
            self.findings.push(finding);
        }
        match stored.status() {
            TransactionStatus::Posted => self.posted(stored),
            TransactionStatus::Rejected => {
                let reason = stored.outcome.as_ref().and_then(Outcome::reason);
                let is_unknown = reason == Some(RejectReason::AccountUnknown);
                self.of_unknown_account = self.of_unknown_account.saturating_add(is_unknown.into());
                self.comparison.not_posted(stored, &mut self.findings);
                self.decisions.rejected(stored);
            }
            TransactionStatus::Accepted => {
                self.comparison.not_posted(stored, &mut self.findings);
                self.accepted(stored);
            }
        }
    }

    /// Ends the pass after the last transaction, and returns its result.
    pub fn end(mut self) -> Report {
        self.about_the_row();
        self.about_the_leaf();
        self.decisions.end(&mut self.findings);
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
        let differing_groups = self.comparison.end(&mut self.findings);
        Report {
            findings: self.findings.into_listed(self.subject.key),
            differing_groups,
            later_rows: self.later_rows,
            later_version: self.decisions.later(),
            highest_number: self.chain.highest_number,
            marked: self.marked,
            marked_more: self.marked_more,
            counts: self.counts,
        }
    }

    fn posted(&mut self, stored: &StoredTransaction) {
        let Some(entry) = entry_of(stored) else { return };
        if entry.sequence > self.until {
            return self.note_later_row(entry.sequence, Some(&stored.submission.key));
        }
        let in_a_gap = self.chain.is_in_a_gap(entry.sequence);
        self.comparison.posted(&entry, in_a_gap, &mut self.findings);
    }

    fn accepted(&mut self, stored: &StoredTransaction) {
        let Submission { key, accepted_at: at, .. } = &stored.submission;
        if stored.marks.dead_letter {
            if self.marked.len() < MARKED_MAX {
                self.marked.push(key.clone());
            } else {
                self.marked_more = self.marked_more.saturating_add(1);
            }
        } else if self.options.now.since(*at) > OVERDUE_AFTER {
            self.overdue = self.overdue.saturating_add(1);
            self.oldest = Some(self.oldest.map_or(*at, |oldest| oldest.min(*at)));
        }
    }

    fn note_later_row(&mut self, sequence: u64, transaction: Option<&TransactionKey>) {
        if self.later_rows.as_ref().is_none_or(|later_rows| later_rows.sequence < sequence) {
            self.later_rows = Some(LaterRows { sequence, transaction: transaction.cloned() });
        }
    }

    /// Notes whether this is the page that the leaf names. All pages before it are chained to it by hashes, which the
    /// audit of the chain compares with their contents.
    fn compare_with_leaf(&mut self, page: &Readable<JournalPage>) {
        if let (Some(leaf), Ok(page)) = (&self.subject.leaf, page)
            && page.hash == leaf.head
            && page.content_hash() == leaf.head
            && page.version == leaf.version
        {
            self.has_page_of_leaf = true;
        }
    }

    fn about_the_leaf(&mut self) {
        let Some(Leaf { account, version, head }) = self.subject.leaf else { return };
        let gone_back = |found: String| {
            let finding = Finding::of(FindingKind::AnchoredAccount, Some(account));
            Some(
                finding
                    .expecting(format!("version {version} with the head {head}, or a later one"))
                    .finding(found),
            )
        };
        let finding = match &self.subject.row {
            AccountRow::Missing => gone_back("no account".to_owned()),
            AccountRow::Read(row)
                if row.version < version
                    || (row.version == version && row.head != head && self.has_page_of_leaf) =>
            {
                gone_back(format!("version {} with the head {}", row.version, row.head))
            }
            AccountRow::Read(_) | AccountRow::Unreadable(_) => None,
        };
        finding.into_iter().for_each(|finding| self.findings.push(finding));
        if !self.has_page_of_leaf {
            let finding = Finding::of(FindingKind::AnchoredDecisions, Some(account));
            self.findings.push(finding.expecting(format!("the page {head}")).finding("nothing"));
        }
    }

    fn about_the_row(&mut self) {
        let finding = |kind| Finding::of(kind, Some(self.subject.key));
        let Counts { pages, entries: _, transactions } = self.counts;
        match &self.subject.row {
            AccountRow::Unreadable(cause) => {
                self.findings.push(finding(FindingKind::AccountUnreadable).finding(cause));
            }
            AccountRow::Missing if pages > 0 || transactions > self.of_unknown_account => {
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
