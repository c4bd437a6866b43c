//! Audits the journal of one account page by page: sequences, balances and the hash chain.
//!
//! It computes the expected values itself and continues after damage. Later pages are audited independently, so that
//! one changed byte causes one or two findings, not thousands.

use super::finding::{Finding, FindingKind, Findings};
use crate::domain::account::Account;
use crate::domain::ids::AccountKey;
use crate::domain::instruction::TransactionKind;
use crate::domain::journal::{Entry, JournalPage, PAGE_ENTRIES_MAX, PageHash};
use crate::domain::money::{Balance, Currency};
use crate::ports::archive::StoredPage;
use crate::posting::order_numbers::FIRST_COUNTER;

/// Maximum number of withdrawals below the current limit that are kept until the audit knows whether that limit applied.
const OVERDRAWN_MAX: usize = 20;
/// Maximum number of gaps that are kept separately. Further gaps are merged.
const GAPS_MAX: usize = 1000;

pub(super) struct Chain {
    account: AccountKey,
    /// The currency of the account row, or of the first entry if the row cannot be read.
    currency: Option<Currency>,
    next: u64,
    /// Version and hash of the previous page; `None` after damage.
    previous: Option<(u64, PageHash)>,
    /// The current balance in minor units; `None` after damage.
    balance: Option<i64>,
    /// Whether the previous page was unreadable, which explains a gap.
    unread: bool,
    gaps: Vec<(u64, u64)>,
    /// The lowest balance within the current overdraft limit, if known.
    floor: Option<i64>,
    overdrawn: Vec<(u64, Balance)>,
    /// The lowest counter of an order number that was never reserved.
    unreserved_from: Option<u64>,
    pub(super) pages: u64,
    pub(super) highest_number: Option<u64>,
}

impl Chain {
    pub(super) fn new(key: AccountKey, account: Option<&Account>, unreserved_from: Option<u64>) -> Self {
        Self {
            account: key,
            currency: account.map(|account| account.currency),
            next: 1,
            previous: None,
            balance: Some(0),
            unread: false,
            gaps: Vec::new(),
            floor: account.and_then(|account| account.overdraft_limit.minor_units().checked_neg()),
            overdrawn: Vec::new(),
            unreserved_from,
            pages: 0,
            highest_number: None,
        }
    }

    pub(super) const fn last(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Returns whether the entry with this sequence may be on a missing or unreadable page.
    pub(super) fn is_in_a_gap(&self, sequence: u64) -> bool {
        self.gaps.iter().any(|(from, to)| (*from..=*to).contains(&sequence))
    }

    /// Audits the next page, in store order.
    pub(super) fn page(&mut self, stored: &StoredPage, findings: &mut Findings) {
        match (stored.first_sequence, &stored.page) {
            (Some(first), Ok(page)) => self.readable(first, page, findings),
            (first, page) => {
                let cause = page
                    .as_ref()
                    .map_or_else(ToString::to_string, |_| "the key of its row has no sequence".to_owned());
                let finding = self.finding(FindingKind::PageUnreadable).finding(cause);
                findings.push(first.map_or(finding.clone(), |first| finding.at(first)));
                if let Some(first) = first {
                    self.start_page(first, findings);
                }
                (self.unread, self.previous, self.balance) = (true, None, None);
            }
        }
    }

    /// Compares the journal with the account row. Called after the last page.
    pub(super) fn end(&mut self, account: &Account, findings: &mut Findings) {
        let last = self.last();
        if last < account.sequence {
            self.gap(account.sequence, findings);
        } else if last > account.sequence {
            let finding = self.finding(FindingKind::AccountSequence);
            findings.push(finding.expecting(last).finding(account.sequence));
        } else {
            if let Some(balance) = self.balance.filter(|sum| *sum != account.balance.minor_units()) {
                let finding = self.finding(FindingKind::AccountBalance);
                let (sum, found) = (i128::from(balance), i128::from(account.balance.minor_units()));
                let money = |minor_units| money(minor_units, account.currency);
                findings.push(finding.expecting(money(sum)).finding(money(found)));
            }
        }
        if account.version == self.pages.saturating_add(1) {
            // After the opening, only pages with entries changed the account, so the limit never changed.
            let limit = account.overdraft_limit;
            for (sequence, balance) in std::mem::take(&mut self.overdrawn) {
                let finding = self.finding(FindingKind::Overdrawn).at(sequence);
                findings.push(finding.expecting(format!("at least -{limit}")).finding(balance));
            }
        }
    }

    fn readable(&mut self, first: u64, page: &JournalPage, findings: &mut Findings) {
        self.pages = self.pages.saturating_add(1);
        self.start_page(first, findings);
        let follows = |(version, _): &(u64, PageHash)| page.directly_follows(*version);
        if let Some((_, hash)) = self.previous.filter(follows)
            && hash != page.previous_hash
        {
            let finding = self.finding(FindingKind::ChainBroken).at(first);
            findings.push(finding.expecting(hash).finding(page.previous_hash));
        }
        let content = page.content_hash();
        if content != page.hash {
            let finding = self.finding(FindingKind::PageHash).at(first);
            findings.push(finding.expecting(page.hash).finding(content));
        }
        let count = page.count();
        if page.entries.is_empty() || count > PAGE_ENTRIES_MAX {
            let finding = self.finding(FindingKind::PageSize).at(first);
            findings.push(finding.expecting(format!("1 to {PAGE_ENTRIES_MAX}")).finding(count));
        }
        for (entry, position) in page.entries.iter().zip(first..) {
            self.entry(entry, position, findings);
            self.next = position.saturating_add(1);
        }
        self.previous = Some((page.version, page.hash));
    }

    /// Checks that the next page starts at the expected sequence.
    fn start_page(&mut self, first: u64, findings: &mut Findings) {
        if first > self.next {
            self.gap(first.saturating_sub(1), findings);
            (self.previous, self.balance) = (None, None);
        } else if first < self.next {
            let finding = self.finding(FindingKind::PagesOverlap).at(first);
            findings.push(finding.expecting(self.next).finding(first));
            (self.previous, self.balance) = (None, None);
        }
        (self.unread, self.next) = (false, first);
    }

    /// Records that the entries from the next expected one up to `to` were not read.
    fn gap(&mut self, to: u64, findings: &mut Findings) {
        if !self.unread {
            let finding = self.finding(FindingKind::EntriesMissing).at(self.next);
            let missing = if self.next == to {
                format!("entry {to}")
            } else {
                format!("entries {} to {to}", self.next)
            };
            findings.push(finding.expecting(missing).finding("nothing"));
        }
        let are_many = self.gaps.len() >= GAPS_MAX;
        match self.gaps.last_mut().filter(|_| are_many) {
            Some(last) => last.1 = to,
            None => self.gaps.push((self.next, to)),
        }
    }

    fn entry(&mut self, entry: &Entry, position: u64, findings: &mut Findings) {
        if entry.sequence != position {
            let finding = self.finding(FindingKind::EntrySequence).at(position);
            findings.push(finding.expecting(position).finding(entry.sequence));
        }
        let currency = *self.currency.get_or_insert(entry.amount.currency());
        let after = entry.balance_after.minor_units();
        if entry.amount.currency() != currency || entry.balance_after.currency() != currency {
            let finding = self.finding(FindingKind::EntryCurrency).at(position);
            let found = format!("{} and {}", entry.amount.currency(), entry.balance_after.currency());
            findings.push(finding.expecting(currency).finding(found));
            self.balance = None;
        } else {
            let amount = i128::from(entry.amount.minor_units());
            let sum = self.balance.map(|before| match entry.kind {
                TransactionKind::Deposit => i128::from(before).saturating_add(amount),
                TransactionKind::Withdrawal => i128::from(before).saturating_sub(amount),
            });
            if let Some(sum) = sum.filter(|sum| *sum != i128::from(after)) {
                let finding = self.finding(FindingKind::EntryBalance).at(position);
                let found = money(i128::from(after), currency);
                findings.push(finding.expecting(money(sum, currency)).finding(found));
            }
            self.balance = Some(after);
        }
        let too_low = self.floor.is_some_and(|floor| after < floor);
        if entry.kind == TransactionKind::Withdrawal && too_low && self.overdrawn.len() < OVERDRAWN_MAX {
            self.overdrawn.push((position, entry.balance_after));
        }
        self.number(entry, position, findings);
    }

    fn number(&mut self, entry: &Entry, position: u64, findings: &mut Findings) {
        let counter = entry.order_number.counter();
        self.highest_number = self.highest_number.max(Some(counter));
        let end = self.unreserved_from;
        if counter < FIRST_COUNTER || end.is_some_and(|end| counter >= end) {
            let finding = self.finding(FindingKind::OrderNumberUnreserved).at(position);
            let expected = match end {
                Some(end) => format!("a counter from {FIRST_COUNTER} to below {end}"),
                None => format!("a counter from {FIRST_COUNTER}"),
            };
            findings.push(finding.expecting(expected).finding(format!("{} ({counter})", entry.order_number)));
        }
    }

    const fn finding(&self, kind: FindingKind) -> Finding {
        Finding::of(kind, Some(self.account))
    }
}

/// Formats an amount with its currency, or in minor units if it exceeds the range of a balance.
fn money(minor_units: i128, currency: Currency) -> String {
    let balance = i64::try_from(minor_units).ok().and_then(|units| Balance::try_new(units, currency));
    balance.map_or_else(
        || format!("{minor_units} minor units of {currency}"),
        |balance| format!("{balance} {currency}"),
    )
}
