//! Reads the rows of one account for its audit, in one pass, or in up to three if the account seems inconsistent.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::account::{AccountAudit, AccountRow, Counts, LaterRows, PassOptions, Report, Subject};
use super::comparison::DifferingGroups;
use super::finding::{Finding, FindingKind, Severity};
use super::{MARKED_MAX, NumbersSeen, RetryingReader, Verifier};
use crate::domain::account::Account;
use crate::domain::anchor::Leaf;
use crate::domain::ids::AccountKey;
use crate::ports::Store;
use crate::ports::archive::{Readable, RowContent, StoredDecisionPage, StoredPage};
use crate::ports::fault::{StoreFault, causes};
use crate::ports::ledger::{Listing, StoredTransaction};

/// Maximum number of journal pages per request. A page has up to 98 entries.
const PAGES_LIMIT: usize = 100;
const TRANSACTIONS_LIMIT: usize = 1000;
/// Delays before the further passes, longer than a commit takes to become visible row by row.
const PASS_DELAYS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

async fn for_each_part<'a, T>(
    reader: &RetryingReader,
    list: impl Fn(Option<String>) -> BoxFuture<'a, Result<Listing<T>, StoreFault>> + Sync,
    mut each: impl FnMut(&[T]),
) -> Result<(), StoreFault> {
    let mut cursor: Option<String> = None;
    loop {
        let Listing { items, next } = reader.read(|| list(cursor.clone())).await?;
        each(&items);
        if next.is_none() {
            return Ok(());
        }
        cursor = next;
    }
}

/// Reads all pages with entries of an account.
pub(super) async fn for_each_page(
    reader: &RetryingReader,
    store: &Store,
    key: AccountKey,
    mut each: impl FnMut(&StoredPage),
) -> Result<(), StoreFault> {
    let list = |cursor: Option<String>| {
        async move { store.archive.stored_pages(key, cursor.as_deref(), PAGES_LIMIT).await }.boxed()
    };
    for_each_part(reader, list, |pages| pages.iter().for_each(&mut each)).await
}

/// Reads all pages without entries of an account.
pub(super) async fn for_each_decision_page(
    reader: &RetryingReader,
    store: &Store,
    key: AccountKey,
    mut each: impl FnMut(&StoredDecisionPage),
) -> Result<(), StoreFault> {
    let list = |cursor: Option<String>| {
        async move { store.archive.stored_decision_pages(key, cursor.as_deref(), PAGES_LIMIT).await }.boxed()
    };
    for_each_part(reader, list, |pages| pages.iter().for_each(&mut each)).await
}

/// Reads all transactions of an account, in parts.
pub(super) async fn for_each_transaction(
    reader: &RetryingReader,
    store: &Store,
    key: AccountKey,
    each: impl FnMut(&[Readable<StoredTransaction>]),
) -> Result<(), StoreFault> {
    let list = |cursor: Option<String>| {
        async move { store.archive.stored_transactions(key, cursor.as_deref(), TRANSACTIONS_LIMIT).await }
            .boxed()
    };
    for_each_part(reader, list, each).await
}

/// The first pass over an account, to which rows are added one by one.
pub struct FirstPass {
    key: AccountKey,
    listed: bool,
    leaf: Option<Leaf>,
    row: AccountRow,
    /// `None` until the account row is known.
    audit: Option<AccountAudit>,
    noted: Noted,
}

impl FirstPass {
    fn subject(&self) -> Subject {
        Subject { key: self.key, row: self.row.clone(), listed: self.listed, leaf: self.leaf }
    }

    /// Compares the account with a leaf of an anchor.
    pub(super) fn with(self, leaf: Option<Leaf>) -> Self {
        Self { leaf, ..self }
    }
}

/// Which rows of an account were already counted. Each row is counted once, whatever the number of passes.
#[derive(Default)]
struct Noted {
    /// The version of the last counted page without entries.
    decision_page: u64,
    /// The first sequence of the last counted page with entries.
    page: u64,
    /// Whether the transactions were counted.
    transactions: bool,
}

impl Verifier<'_> {
    /// Starts the first pass over an account.
    pub fn begin(&self, key: AccountKey, listed: bool) -> FirstPass {
        FirstPass { key, listed, leaf: None, row: AccountRow::Missing, audit: None, noted: Noted::default() }
    }

    /// Adds the next row of the account.
    pub fn add(&self, pass: &mut FirstPass, content: &RowContent) {
        if let RowContent::Account(account) = content {
            pass.row = match &**account {
                Ok(account) => AccountRow::Read(Box::new(account.clone())),
                Err(damaged) => AccountRow::Unreadable(damaged.to_string()),
            };
            return;
        }
        let mut audit = pass.audit.take().unwrap_or_else(|| self.audit_of(pass.subject()));
        match content {
            RowContent::Account(_) => {}
            RowContent::DecisionPage(page) => {
                self.note_decision_page(page, &mut pass.noted);
                audit.decision_page(page);
            }
            RowContent::Page(page) => {
                if audit.counts_page(page) {
                    self.note_page(page, &mut pass.noted);
                }
                audit.page(page);
            }
            RowContent::Transaction(stored) => {
                if !std::mem::replace(&mut pass.noted.transactions, true) {
                    audit.end_of_pages();
                }
                audit.transaction(stored);
                self.note_batch_row(stored);
            }
        }
        pass.audit = Some(audit);
    }

    /// Ends the first pass after the last row. Makes further passes if the account seems inconsistent, and then reports
    /// the findings. Returns `false` if the account does not exist.
    ///
    /// # Errors
    /// [`StoreFault`] when the account cannot be read again.
    pub async fn conclude(&self, mut pass: FirstPass) -> Result<bool, StoreFault> {
        let mut audit = pass.audit.take().unwrap_or_else(|| self.audit_of(pass.subject()));
        if !std::mem::replace(&mut pass.noted.transactions, true) {
            audit.end_of_pages();
        }
        self.conclude_from(pass.subject(), audit.end(), pass.noted).await
    }

    /// Checks a row independently of the rows before it.
    pub fn check_alone(&self, account: AccountKey, content: &RowContent) {
        let finding = |kind| Finding::of(kind, Some(account));
        let found = match content {
            RowContent::Account(read) => read
                .as_ref()
                .as_ref()
                .err()
                .map(|damaged| finding(FindingKind::AccountUnreadable).finding(damaged)),
            RowContent::Page(StoredPage { page: Err(damaged), .. })
            | RowContent::DecisionPage(StoredDecisionPage { page: Err(damaged), .. }) => {
                Some(finding(FindingKind::PageUnreadable).finding(damaged))
            }
            RowContent::Page(StoredPage { page: Ok(page), .. })
            | RowContent::DecisionPage(StoredDecisionPage { page: Ok(page), .. }) => page
                .check()
                .err()
                .map(|flaw| finding(FindingKind::PageHash).at(page.first_sequence).finding(flaw)),
            RowContent::Transaction(read) => read
                .as_ref()
                .as_ref()
                .err()
                .map(|damaged| finding(FindingKind::TransactionUnreadable).finding(damaged)),
        };
        found.iter().for_each(|finding| self.report(finding));
    }

    fn audit_of(&self, subject: Subject) -> AccountAudit {
        let (salt, now) = (self.salt, self.world.now());
        let differing_groups = DifferingGroups::default();
        AccountAudit::new(subject, PassOptions { salt, now, unreserved_from: None, differing_groups })
    }

    /// Audits an account and reports its findings. Returns `false` if the account does not exist.
    pub(super) async fn audit(
        &self,
        key: AccountKey,
        listed: bool,
        leaf: Option<Leaf>,
    ) -> Result<bool, StoreFault> {
        let subject = Subject { key, row: self.read_row(key).await?, listed, leaf };
        let mut noted = Noted::default();
        let report = self.make_pass(&subject, None, DifferingGroups::default(), &mut noted).await?;
        self.conclude_from(subject, report, noted).await
    }

    async fn conclude_from(
        &self,
        mut subject: Subject,
        mut report: Report,
        mut noted: Noted,
    ) -> Result<bool, StoreFault> {
        self.note_transactions(report.counts);
        let counts = report.counts;
        for pause in PASS_DELAYS {
            if !self.is_suspicious(&report).await? {
                break;
            }
            self.world.sleep(pause).await;
            subject = self.read_again(subject).await?;
            self.read_register(false).await?;
            let unreserved_from = self.shared.lock().unreserved_from;
            report = self.make_pass(&subject, unreserved_from, report.differing_groups, &mut noted).await?;
        }
        let is_there = subject.listed
            || counts.pages > 0
            || counts.transactions > 0
            || subject.row != AccountRow::Missing;
        for finding in report.findings.iter().chain(unexplained(&subject, &report).as_ref()) {
            self.report(finding);
        }
        if let Some(finding) = self.check_later_rows(&subject, report.later_rows).await? {
            self.report(&finding);
        }
        if let Some(finding) = self.check_later_version(&subject, report.later_version).await? {
            self.report(&finding);
        }
        let mut shared = self.shared.lock();
        shared.marked_more = shared.marked_more.saturating_add(report.marked_more);
        for marked in report.marked {
            if shared.marked.len() < MARKED_MAX {
                shared.marked.push(marked);
            } else {
                shared.marked_more = shared.marked_more.saturating_add(1);
            }
        }
        let totals = &mut shared.totals;
        totals.accounts = totals.accounts.saturating_add(u64::from(is_there));
        drop(shared);
        self.progress();
        Ok(is_there)
    }

    /// Returns whether a further pass is needed before findings are reported.
    async fn is_suspicious(&self, report: &Report) -> Result<bool, StoreFault> {
        let is_wrong = |finding: &Finding| {
            finding.kind.severity() == Severity::Finding || finding.kind == FindingKind::NeverOpened
        };
        if report.findings.iter().any(is_wrong) || !report.differing_groups.is_empty() {
            return Ok(true);
        }
        // Ranges are reserved continuously. If a number is above the known ranges, the register is read again.
        let Some(highest) = report.highest_number else { return Ok(false) };
        let is_reserved = |end: Option<u64>| end.is_none_or(|end| highest < end);
        let known = self.shared.lock().unreserved_from;
        if is_reserved(known) {
            return Ok(false);
        }
        self.read_register(false).await?;
        let known = self.shared.lock().unreserved_from;
        Ok(!is_reserved(known))
    }

    /// Makes one pass up to the account state in `subject`: pages, then transactions.
    async fn make_pass(
        &self,
        subject: &Subject,
        unreserved_from: Option<u64>,
        differing_groups: DifferingGroups,
        noted: &mut Noted,
    ) -> Result<Report, StoreFault> {
        let options =
            PassOptions { salt: self.salt, now: self.world.now(), unreserved_from, differing_groups };
        let mut audit = AccountAudit::new(subject.clone(), options);
        for_each_decision_page(&self.reader, self.store, subject.key, |page| {
            self.note_decision_page(page, noted);
            audit.decision_page(page);
        })
        .await?;
        for_each_page(&self.reader, self.store, subject.key, |page| {
            if audit.counts_page(page) {
                self.note_page(page, noted);
            }
            audit.page(page);
        })
        .await?;
        audit.end_of_pages();
        let is_first = !std::mem::replace(&mut noted.transactions, true);
        for_each_transaction(&self.reader, self.store, subject.key, |items| {
            for stored in items {
                audit.transaction(stored);
                if is_first {
                    self.note_batch_row(stored);
                }
            }
            self.progress();
        })
        .await?;
        Ok(audit.end())
    }

    /// Counts a page without entries in the first pass that reads it.
    fn note_decision_page(&self, page: &StoredDecisionPage, noted: &mut Noted) {
        let Some(version) = page.version.filter(|version| *version > noted.decision_page) else { return };
        noted.decision_page = version;
        let totals = &mut self.shared.lock().totals;
        totals.pages = totals.pages.saturating_add(1);
    }

    /// Counts a page and its order numbers in the first pass that reads it.
    fn note_page(&self, page: &StoredPage, noted: &mut Noted) {
        let Some(first) = page.first_sequence.filter(|first| *first > noted.page) else { return };
        noted.page = first;
        let mut shared = self.shared.lock();
        shared.totals.pages = shared.totals.pages.saturating_add(1);
        for entry in page.page.iter().flat_map(|page| &page.entries) {
            shared.totals.entries = shared.totals.entries.saturating_add(1);
            if let Some(numbers) = &mut shared.numbers {
                numbers.add(entry.order_number);
            }
        }
    }

    fn note_transactions(&self, counts: Counts) {
        let totals = &mut self.shared.lock().totals;
        totals.transactions = totals.transactions.saturating_add(counts.transactions);
    }

    fn progress(&self) {
        let mut shared = self.shared.lock();
        shared.totals.order_numbers = shared.numbers.as_ref().map_or(0, NumbersSeen::len);
        let totals = shared.totals;
        drop(shared);
        self.watcher.progressed(&totals);
    }

    pub(super) async fn read_row(&self, key: AccountKey) -> Result<AccountRow, StoreFault> {
        match self.reader.read(|| self.store.ledger.account(key)).await {
            Ok(Some(found)) => Ok(AccountRow::Read(Box::new(found.value))),
            Ok(None) => Ok(AccountRow::Missing),
            Err(fault @ StoreFault::Corrupt { .. }) => Ok(AccountRow::Unreadable(causes(&fault))),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the subject of a further pass. A row that was read stays the reference: the rows up to its sequence
    /// exist, and had time to become visible. A missing or unreadable row is read again.
    async fn read_again(&self, subject: Subject) -> Result<Subject, StoreFault> {
        let Subject { key, row, listed, leaf } = subject;
        let listed = listed || self.reader.read(|| self.store.archive.is_listed(key)).await?;
        let row = match row {
            AccountRow::Read(account) => AccountRow::Read(account),
            AccountRow::Missing | AccountRow::Unreadable(_) => self.read_row(key).await?,
        };
        Ok(Subject { key, row, listed, leaf })
    }

    /// Checks that rows after the sequence of the account row belong to a later account state, which must be visible by
    /// now.
    async fn check_later_rows(
        &self,
        subject: &Subject,
        later_rows: Option<LaterRows>,
    ) -> Result<Option<Finding>, StoreFault> {
        let Some(LaterRows { sequence, transaction }) = later_rows else { return Ok(None) };
        let Some(ends_at) = self.ends_before(subject, sequence, |account| account.sequence).await? else {
            return Ok(None);
        };
        let finding = Finding::of(FindingKind::BeyondTheEnd, Some(subject.key)).at(sequence);
        let finding = transaction.iter().fold(finding, Finding::about);
        Ok(Some(
            finding.expecting(format!("nothing after entry {ends_at}")).finding(format!("entry {sequence}")),
        ))
    }

    /// Like [`Self::check_later_rows`], for the version of the account row.
    async fn check_later_version(
        &self,
        subject: &Subject,
        later_version: Option<u64>,
    ) -> Result<Option<Finding>, StoreFault> {
        let Some(version) = later_version else { return Ok(None) };
        let Some(ends_at) = self.ends_before(subject, version, |account| account.version).await? else {
            return Ok(None);
        };
        let finding = Finding::of(FindingKind::BeyondTheEnd, Some(subject.key));
        let finding = finding.expecting(format!("nothing after version {ends_at}"));
        Ok(Some(finding.finding(format!("version {version}"))))
    }

    /// Returns the current number in the account row if it stays below `wanted`.
    async fn ends_before(
        &self,
        subject: &Subject,
        wanted: u64,
        number: impl Fn(&Account) -> u64,
    ) -> Result<Option<u64>, StoreFault> {
        let AccountRow::Read(_) = &subject.row else { return Ok(None) };
        let mut ends_at = 0;
        for pause in [Duration::ZERO].into_iter().chain(PASS_DELAYS) {
            self.world.sleep(pause).await;
            if let AccountRow::Read(account) = self.read_row(subject.key).await? {
                ends_at = number(&account);
                if ends_at >= wanted {
                    return Ok(None);
                }
            }
        }
        Ok(Some(ends_at))
    }
}

/// Returns a finding for differing sums that no other finding explains.
fn unexplained(subject: &Subject, report: &Report) -> Option<Finding> {
    let is_explained = report.findings.iter().any(|finding| finding.kind.severity() == Severity::Finding);
    let finding = Finding::of(FindingKind::ContentDiffers, Some(subject.key));
    (!report.differing_groups.is_empty() && !is_explained)
        .then(|| finding.finding("the sums of journal and log differ"))
}
