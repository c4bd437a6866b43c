//! Audits the chain of all decisions of one account. Pages may be read in any order.
//!
//! Each page contains its version and the hash of the previous page. For every page, the salted own hash is added to a
//! sum, and the salted previous hash is subtracted. In an unbroken chain they cancel out, except for the last hash and
//! the hash before the first page. In the same way, the rejections in the chain cancel out against the rejections in
//! the log. Memory is therefore constant, however long the chain is.

use super::finding::{Finding, FindingKind, Findings};
use crate::domain::account::{Account, AccountStatus, Holder};
use crate::domain::ids::{AccountKey, Nonce};
use crate::domain::journal::{Decided, JournalPage, PageHash, Rejection};
use crate::domain::money::OverdraftLimit;
use crate::domain::rejection::RejectReason;
use crate::domain::transaction::Outcome;
use crate::ports::archive::StoredDecisionPage;
use crate::ports::ledger::StoredTransaction;

/// The state of the audit after the rows read so far.
pub(super) struct Decisions {
    key: AccountKey,
    salt: Nonce,
    /// The account, if its row can be read. Decisions are audited up to its version.
    account: Option<Account>,
    links: u128,
    pages: u64,
    is_damaged: bool,
    /// The account terms in the last page that changed them, with its version.
    terms: Option<(u64, AccountStatus, OverdraftLimit)>,
    /// The holder in the last page that changed it, with its version.
    holder: Option<(u64, Option<Holder>)>,
    rejections: u128,
    chained: u64,
    logged: u64,
    unchained: u64,
    /// The highest row version after the version of the account.
    later: Option<u64>,
}

impl Decisions {
    pub(super) fn new(key: AccountKey, salt: Nonce, account: Option<&Account>) -> Self {
        Self {
            key,
            salt,
            account: account.cloned(),
            links: 0,
            pages: 0,
            is_damaged: false,
            terms: None,
            holder: None,
            rejections: 0,
            chained: 0,
            logged: 0,
            unchained: 0,
            later: None,
        }
    }

    /// Returns the highest version of rows that were written after the account was read.
    pub(super) const fn later(&self) -> Option<u64> {
        self.later
    }

    pub(super) fn decision_page(&mut self, stored: &StoredDecisionPage, findings: &mut Findings) {
        let finding = |kind| Finding::of(kind, Some(self.key));
        match (stored.version, &stored.page) {
            (Some(version), Ok(page)) if version == page.version => {
                if let Err(flaw) = page.check() {
                    findings
                        .push(finding(FindingKind::PageHash).finding(format!("version {version}: {flaw}")));
                }
                if !page.entries.is_empty() {
                    findings.push(finding(FindingKind::PageSize).expecting("no entries").finding("entries"));
                }
                self.page(page, findings);
            }
            (version, page) => {
                self.is_damaged = true;
                let other = || "the key of its row is not its version".to_owned();
                let cause = page.as_ref().map_or_else(ToString::to_string, |_| other());
                let place = version.map_or(String::new(), |version| format!("version {version}: "));
                findings.push(finding(FindingKind::PageUnreadable).finding(format!("{place}{cause}")));
            }
        }
    }

    /// Records that a page with entries is unreadable, so that links and rejections are incomplete.
    pub(super) const fn note_damage(&mut self) {
        self.is_damaged = true;
    }

    /// Audits the links of the next page, and its decisions other than entries.
    pub(super) fn page(&mut self, page: &JournalPage, findings: &mut Findings) {
        let version = page.version;
        if self.is_later(version) {
            return;
        }
        self.pages = self.pages.saturating_add(1);
        let before = version.saturating_sub(1);
        let (end, start) =
            (page.hash.salted(version, self.salt), page.previous_hash.salted(before, self.salt));
        self.links = self.links.wrapping_add(end).wrapping_sub(start);
        for decided in &page.decided {
            self.decided(version, decided, findings);
        }
    }

    fn decided(&mut self, version: u64, decided: &Decided, findings: &mut Findings) {
        let mut note_terms = |status, limit| {
            if self.terms.is_none_or(|(known, ..)| known < version) {
                self.terms = Some((version, status, limit));
            }
        };
        let mut note_holder = |holder: &Option<Holder>| {
            if self.holder.as_ref().is_none_or(|(known, _)| *known < version) {
                self.holder = Some((version, holder.clone()));
            }
        };
        match decided {
            Decided::Rejected(rejection) => {
                self.rejections = self.rejections.wrapping_add(rejection.salted(version, self.salt));
                self.chained = self.chained.saturating_add(1);
            }
            Decided::TermsChanged { status, overdraft_limit, holder, changed_at: _ } => {
                note_terms(*status, *overdraft_limit);
                if holder.is_some() {
                    note_holder(holder);
                }
            }
            Decided::Opened { currency, overdraft_limit, holder, opened_at } => {
                note_terms(AccountStatus::Open, *overdraft_limit);
                note_holder(holder);
                let Some(account) = &self.account else { return };
                let as_opened = (account.currency, account.opened_at);
                if as_opened != (*currency, *opened_at) || version != 1 {
                    let finding = Finding::of(FindingKind::AccountTerms, Some(self.key));
                    findings.push(finding.finding("currency or time of opening"));
                }
            }
        }
    }

    /// Adds a rejected transaction of the log.
    pub(super) fn rejected(&mut self, stored: &StoredTransaction) {
        let Some(Outcome::Rejected { reason, rejected_at, version }) = stored.outcome else { return };
        let Some(version) = version else {
            // While the account does not exist, transactions are rejected without a page.
            let is_missing = reason != RejectReason::AccountUnknown;
            self.unchained = self.unchained.saturating_add(u64::from(is_missing));
            return;
        };
        if self.is_later(version) {
            return;
        }
        let rejection = Rejection {
            partner: stored.submission.key.partner.clone(),
            message: stored.submission.key.message,
            fingerprint: stored.fingerprint,
            accepted_at: stored.submission.accepted_at,
            reason,
            rejected_at,
        };
        self.rejections = self.rejections.wrapping_sub(rejection.salted(version, self.salt));
        self.logged = self.logged.saturating_add(1);
    }

    fn is_later(&mut self, version: u64) -> bool {
        let is_later = self.account.as_ref().is_some_and(|account| version > account.version);
        if is_later {
            self.later = self.later.max(Some(version));
        }
        is_later
    }

    /// Audits the chain. Called after the last row.
    pub(super) fn end(&self, findings: &mut Findings) {
        let finding = |kind| Finding::of(kind, Some(self.key));
        let Some(account) = &self.account else { return };
        if self.is_damaged {
            // The damaged page was reported already.
            return;
        }
        // Version 1 is the opening of the account.
        if account.version != self.pages || account.version == 0 {
            let expected = format!("one page for each version from 1 to {}", account.version);
            let finding = finding(FindingKind::DecisionsMissing).expecting(expected);
            findings.push(finding.finding(format!("{} pages", self.pages)));
        } else {
            let end = account.head.salted(account.version, self.salt);
            let start = PageHash::GENESIS.salted(0, self.salt);
            if self.links != end.wrapping_sub(start) {
                let found = format!("from version 1 to {}", account.version);
                findings.push(finding(FindingKind::DecisionsBroken).finding(found));
            }
        }
        if self.rejections != 0 || self.chained != self.logged {
            let finding = finding(FindingKind::RejectionsDiffer);
            let expected = format!("the {} rejections of the journal", self.chained);
            findings.push(finding.expecting(expected).finding(format!("{} in the log", self.logged)));
        }
        if self.unchained > 0 {
            let found = format!("{} transactions", self.unchained);
            findings.push(finding(FindingKind::RejectionUnchained).finding(found));
        }
        let terms = self.terms.map(|(_, status, limit)| (status, limit));
        let current = (account.status, account.overdraft_limit);
        if terms.is_some_and(|terms| terms != current) {
            let text = |(status, limit): (AccountStatus, OverdraftLimit)| {
                format!("{} with an overdraft limit of {limit}", status.code())
            };
            let expected = terms.map(text).unwrap_or_default();
            let finding = finding(FindingKind::AccountTerms).expecting(expected);
            findings.push(finding.finding(text(current)));
        }
        if self.holder.as_ref().is_some_and(|(_, holder)| *holder != account.holder) {
            // Findings contain no names.
            findings.push(finding(FindingKind::AccountTerms).finding("another holder"));
        }
    }
}
