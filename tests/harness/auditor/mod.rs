//! An independent auditor for the end-to-end tests. It records every request and every response in plain maps, and compares
//! the records with the bank at the end of a test.
//!
//! The auditor checks the invariants of the bank without using its rules:
//!
//! 1. Each transaction is final once: either on the statement or among the rejected transactions.
//! 2. Every acknowledged transaction exists with the requested content, and no other transaction exists.
//! 3. A final response never changes.
//! 4. Sequences have no gaps, balances add up from zero, and the journal is one chain of hashes.
//! 5. Order numbers are unique over all accounts, and their check digits are right.
//! 6. No withdrawal exceeded the overdraft limit, and no withdrawal was rejected that the account could pay at that time.

mod statement;

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::testing::prelude::*;
use serde_json::Value;

use crate::client::{Answer, Client, Submission};
use crate::journal::whole_journal;
use statement::{RejectedTransaction, StatementLine};

/// Maximum number of printed findings.
const FINDINGS_PRINTED_MAX: usize = 20;
/// Page size of listings. It is small enough that long listings have several pages.
const LISTING_LIMIT: u32 = 250;

/// A submission with one id: its content and its responses.
#[derive(Debug)]
struct SubmissionRecord {
    kind: TransactionKind,
    cents: i64,
    /// Whether a response had status 200 or 202.
    acknowledged: bool,
    /// The first final response.
    final_answer: Option<Value>,
}

#[derive(Debug, Default)]
struct AccountRecord {
    overdraft_cents: i64,
    submissions: BTreeMap<MessageId, SubmissionRecord>,
}

/// Records and audits accounts in euro that a single partner uses.
#[derive(Debug, Default)]
pub struct Auditor {
    accounts: BTreeMap<AccountKey, AccountRecord>,
    contradictions: Vec<String>,
}

/// Totals of an audit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditTotals {
    /// Number of posted transactions.
    pub posted: usize,
    /// Number of rejected transactions.
    pub rejected: usize,
}

impl Auditor {
    /// Records an account and its overdraft limit.
    pub fn account(&mut self, account: AccountKey, overdraft_limit: &str) {
        let overdraft_cents = cents(overdraft_limit);
        drop(self.accounts.insert(account, AccountRecord { overdraft_cents, submissions: BTreeMap::new() }));
    }

    /// Records a submission before it is sent, because it may be posted even if no response arrives.
    pub fn sent(&mut self, account: AccountKey, id: MessageId, submission: &Submission) {
        let amount =
            submission.body.get("amount").and_then(Value::as_str).expect("a submission with an amount");
        let record = self.accounts.get_mut(&account).expect("a recorded account");
        let first = SubmissionRecord {
            kind: submission.kind,
            cents: cents(amount),
            acknowledged: false,
            final_answer: None,
        };
        let recorded = record.submissions.entry(id).or_insert(first);
        assert!(
            recorded.kind == submission.kind && recorded.cents == cents(amount),
            "the id {id} was used twice"
        );
    }

    /// Records a response to a submission. Only 200 and 202 are acknowledgements. Returns whether this is the first
    /// acknowledgement.
    pub fn answered(&mut self, account: AccountKey, id: MessageId, answer: &Answer) -> bool {
        if ![200, 202].contains(&answer.status) {
            return false;
        }
        let record = self.accounts.get_mut(&account).expect("a recorded account");
        let recorded = record.submissions.get_mut(&id).expect("a recorded submission");
        let first = !std::mem::replace(&mut recorded.acknowledged, true);
        if !answer.is_final() {
            // Responses of different processes may arrive in any order, but a final status never changes.
            return first;
        }
        match &recorded.final_answer {
            None => recorded.final_answer = Some(answer.body.clone()),
            Some(earlier) if *earlier == answer.body => {}
            Some(earlier) => {
                self.contradictions
                    .push(format!("transaction {id}: answered {earlier}, then {}", answer.body));
            }
        }
        first
    }

    /// Records that a submission was acknowledged as an item of a batch.
    pub fn acknowledged(&mut self, account: AccountKey, id: MessageId) {
        let record = self.accounts.get_mut(&account).expect("a recorded account");
        record.submissions.get_mut(&id).expect("a recorded submission").acknowledged = true;
    }

    /// Returns whether a final response to a submission was received. Later responses must be equal to it.
    pub fn has_final_answer(&self, account: AccountKey, id: MessageId) -> bool {
        let recorded = self.accounts.get(&account).and_then(|record| record.submissions.get(&id));
        recorded.is_some_and(|recorded| recorded.final_answer.is_some())
    }

    /// Sends a submission, and records it with its response.
    pub async fn submit(
        &mut self,
        client: &Client,
        account: AccountKey,
        id: MessageId,
        submission: &Submission,
    ) -> Answer {
        self.sent(account, id, submission);
        let answer = client.submit(account, id, submission).await;
        self.answered(account, id, &answer);
        answer
    }

    /// Returns the recorded accounts, ordered by key.
    pub fn accounts(&self) -> Vec<AccountKey> {
        self.accounts.keys().copied().collect()
    }

    /// Compares the records with the bank. All transactions must be final.
    ///
    /// # Panics
    /// When the records differ from the bank, with the findings.
    pub async fn audit(&self, client: &Client, store: &Store) -> AuditTotals {
        let (totals, mut findings) = self.compare(client, store).await;
        let count = findings.len();
        findings.truncate(FINDINGS_PRINTED_MAX);
        assert!(count == 0, "the auditor has {count} findings:\n{}", findings.join("\n"));
        totals
    }

    /// Compares the records with the bank. Returns the totals and the findings.
    pub async fn compare(&self, client: &Client, store: &Store) -> (AuditTotals, Vec<String>) {
        let mut totals = AuditTotals::default();
        let mut findings = self.contradictions.clone();
        let mut numbers = BTreeSet::new();
        for (account, record) in &self.accounts {
            let snapshot = AccountSnapshot::read(client, store, *account).await;
            snapshot.check(record, &mut numbers, &mut findings);
            totals.posted = totals.posted.saturating_add(snapshot.lines.len());
            totals.rejected = totals.rejected.saturating_add(snapshot.rejections.len());
        }
        (totals, findings)
    }
}

/// The state of one account, read from the bank.
struct AccountSnapshot {
    account: AccountKey,
    balance: i64,
    lines: Vec<StatementLine>,
    rejections: Vec<RejectedTransaction>,
    open: usize,
    pages: Vec<JournalPage>,
    head: PageHash,
}

impl AccountSnapshot {
    async fn read(client: &Client, store: &Store, account: AccountKey) -> Self {
        let statement = client.listing(account, None, LISTING_LIMIT).await;
        let rejected = client.listing(account, Some("rejected"), LISTING_LIMIT).await;
        let open = client.listing(account, Some("accepted"), LISTING_LIMIT).await.len();
        let balance = cents(&client.balance(account).await);
        let lines: Vec<StatementLine> = statement.iter().map(StatementLine::read).collect();
        let pages = whole_journal(store, account).await;
        let stored = store.ledger.account(account).await.expect("the account can be read");
        let head = stored.expect("the account exists").value.head;
        let rejections = rejected.iter().map(RejectedTransaction::read).collect();
        Self { account, balance, lines, rejections, open, pages, head }
    }

    fn check(&self, record: &AccountRecord, numbers: &mut BTreeSet<OrderNumber>, findings: &mut Vec<String>) {
        let mut report = |finding: String| findings.push(format!("account {}: {finding}", self.account));
        if self.open > 0 {
            report(format!("{} transactions are not final", self.open));
        }
        self.check_submissions(record, &mut report);
        self.check_sums(record, &mut report);
        self.check_rejections(record, &mut report);
        self.check_chain(&mut report);
        for line in &self.lines {
            if !numbers.insert(line.order_number) {
                report(format!("order number {} was issued twice", line.order_number));
            }
        }
    }

    /// Checks invariants 1, 2 and 3.
    fn check_submissions(&self, record: &AccountRecord, report: &mut impl FnMut(String)) {
        let mut seen = BTreeSet::new();
        let lines = self.lines.iter().map(|line| (line.id, line.kind, line.cents, &line.body));
        let rejections = self
            .rejections
            .iter()
            .map(|rejected| (rejected.id, rejected.kind, rejected.cents, &rejected.body));
        for (id, kind, cents, body) in lines.chain(rejections) {
            if !seen.insert(id) {
                report(format!("transaction {id} is final more than once"));
            }
            match record.submissions.get(&id) {
                None => report(format!("transaction {id} was never submitted")),
                Some(recorded) if (recorded.kind, recorded.cents) != (kind, cents) => {
                    report(format!("transaction {id} is {kind:?} {cents}, submitted was {recorded:?}"));
                }
                Some(SubmissionRecord { final_answer: Some(earlier), .. }) if earlier != body => {
                    report(format!("transaction {id} was answered as {earlier} and is {body}"));
                }
                Some(_) => {}
            }
        }
        for (id, recorded) in &record.submissions {
            if recorded.acknowledged && !seen.contains(id) {
                report(format!("transaction {id} was acknowledged and does not exist"));
            }
        }
    }

    /// Checks invariants 4 (sums) and 6 (limits).
    fn check_sums(&self, record: &AccountRecord, report: &mut impl FnMut(String)) {
        let mut running: i64 = 0;
        for (line, sequence) in self.lines.iter().zip(1_u64..) {
            running = line.apply_to(running);
            if line.sequence != sequence {
                report(format!("entry {} is at position {sequence}", line.sequence));
            }
            if line.balance_after != running {
                report(format!(
                    "after entry {sequence} the balance is {}, not {running}",
                    line.balance_after
                ));
            }
            if line.kind == TransactionKind::Withdrawal && overdrawn(running, record) {
                report(format!("entry {sequence} overdraws the account to {running}"));
            }
        }
        if self.balance != running {
            report(format!("the balance is {}, the entries give {running}", self.balance));
        }
    }

    /// Checks invariant 6. A rejection was decided between two entries, or at the time of one, so at least one of the balances
    /// around that time must be too low.
    fn check_rejections(&self, record: &AccountRecord, report: &mut impl FnMut(String)) {
        for rejected in self.rejections.iter().filter(|rejected| rejected.reason == "insufficient_funds") {
            let before = std::iter::once((0, i64::MIN));
            let states = before.chain(self.lines.iter().map(|line| (line.balance_after, line.posted_at_ms)));
            let ends = self.lines.iter().map(|line| line.posted_at_ms).chain(std::iter::once(i64::MAX));
            let mut around = states
                .zip(ends)
                .filter(|((_, from), until)| (*from..=*until).contains(&rejected.rejected_at_ms))
                .map(|((balance, _), _)| balance);
            let after = |balance: i64| balance.checked_sub(rejected.cents).expect("small sums");
            if !around.any(|balance| overdrawn(after(balance), record)) {
                report(format!("withdrawal {} was rejected, but could be paid", rejected.id));
            }
        }
    }

    /// Checks the hash chain of invariant 4, which is read directly from the store.
    fn check_chain(&self, report: &mut impl FnMut(String)) {
        let mut previous = PageHash::GENESIS;
        let mut entries = 0;
        for page in &self.pages {
            if let Err(flaw) = page.check() {
                report(flaw.to_string());
            }
            if page.account != self.account || page.previous_hash != previous {
                report(format!("the page from {} does not continue the chain", page.first_sequence));
            }
            previous = page.hash;
            for entry in &page.entries {
                let line = self.lines.get(entries);
                if line.is_none_or(|line| !line.is(entry)) {
                    report(format!("the statement has {line:?} where the journal has {entry:?}"));
                }
                entries = entries.saturating_add(1);
            }
        }
        self.check_rejections_of_pages(report);
        if entries != self.lines.len() {
            report(format!("the journal has {entries} entries, the statement {}", self.lines.len()));
        }
        if previous != self.head {
            report("the account does not reference the last page of its journal".to_owned());
        }
    }

    /// Checks that the journal contains every rejection exactly once (invariant 4).
    fn check_rejections_of_pages(&self, report: &mut impl FnMut(String)) {
        let mut listed: BTreeSet<MessageId> = self.rejections.iter().map(|rejected| rejected.id).collect();
        for (_, id) in self.pages.iter().flat_map(JournalPage::rejected_keys) {
            if !listed.remove(&id) {
                report(format!("the journal has a rejection of {id}, which is not listed or rejected twice"));
            }
        }
        if let Some(id) = listed.first() {
            report(format!("the rejection of {id} is not in the journal"));
        }
    }
}

fn overdrawn(balance: i64, record: &AccountRecord) -> bool {
    balance.checked_add(record.overdraft_cents).expect("small sums") < 0
}

/// Converts an amount in euro to cents, without the code under test.
pub fn cents(amount: &str) -> i64 {
    let (whole, decimals) = amount.split_once('.').unwrap_or((amount, ""));
    assert!(decimals.len() <= 2, "{amount} is not in euro");
    let digits = format!("{whole}{decimals:0<2}");
    digits.parse().unwrap_or_else(|_| panic!("{amount} is not an amount"))
}

#[cfg(test)]
mod tests;
