//! Decides the outcome of accepted work: account state + work → new state + outcomes. The module is pure: the same
//! input always gives the same commit.

mod terms;
mod values;

use std::collections::BTreeSet;

pub use terms::{AccountDecision, ClosingError, NewTerms, TermsContext, change_terms, open};
pub use values::{Decided, Pending, Row, Submission, Work};

use super::account::{Account, Revision, Versioned};
use super::ids::{AccountKey, MessageId, Nonce, OrderNumber, PartnerId, TransactionKey};
use super::instruction::{Instruction, TransactionKind};
use super::journal::{self, Entry, JournalPage, PAGE_ENTRIES_MAX, Rejection};
use super::money::Balance;
use super::rejection::RejectReason;
use super::time::Timestamp;
use super::transaction::{Outcome, TransactionStatus};

/// The inputs of a decision besides the account and the work.
#[derive(Debug)]
pub struct DecisionContext<'a> {
    /// Identifies the commit.
    pub nonce: Nonce,
    /// The time of the decision.
    pub now: Timestamp,
    /// Reserved order numbers, at least one per transaction. Each rejected transaction leaves one of the last numbers unused.
    pub numbers: &'a [OrderNumber],
}

/// One atomic change of an account: applied completely, under its guards, or not at all.
///
/// Invariant: 1 to [`PAGE_ENTRIES_MAX`] transactions with distinct keys, those with rows first; the page contains all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountCommit {
    /// The revision that the account row must have at the commit.
    pub guard: Revision,
    /// The account after the commit.
    pub after: Account,
    /// The transactions that become final, those with rows first.
    pub decided: Vec<Decided>,
    /// The journal page of the decisions.
    pub page: JournalPage,
    /// Whether the commit requires that all accepted transactions of the account are final, except those in the dead
    /// letters. A ledger that can check this writes nothing otherwise.
    pub after_accepted: bool,
    /// Identifies this commit across its retries. Stored in every transaction row and in the page, but not in the
    /// account row, which the next commit overwrites.
    pub nonce: Nonce,
}

impl AccountCommit {
    /// Returns the key of the changed account.
    pub const fn account(&self) -> AccountKey {
        self.after.key
    }

    /// Returns each transaction with its outcome, in the order of the decision.
    pub fn outcomes(&self) -> impl Iterator<Item = (&TransactionKey, &Outcome)> {
        self.decided.iter().map(|decided| (decided.key(), &decided.outcome))
    }

    /// Returns the transactions that already have rows.
    pub fn stored(&self) -> &[Decided] {
        self.decided.split_at(self.stored_count()).0
    }

    /// Returns the transactions that the commit inserts with their outcome.
    pub fn inserted(&self) -> &[Decided] {
        self.decided.split_at(self.stored_count()).1
    }

    fn stored_count(&self) -> usize {
        self.decided.partition_point(|decided| decided.revision().is_some())
    }

    /// Returns whether the page has the version of the account and lists exactly the rejections of this commit.
    pub fn lists_rejections(&self) -> bool {
        let rejected = self.outcomes().filter(|(_, outcome)| outcome.reason().is_some());
        let keys = rejected.map(|(key, _)| (&key.partner, key.message));
        self.page.version == self.after.version && self.page.rejected_keys().eq(keys)
    }

    /// Returns the number of used order numbers, which are the first ones of the reserved numbers.
    pub const fn numbers_used(&self) -> usize {
        self.page.entries.len()
    }
}

/// The rejection of transactions of an account that does not exist. Either all of them are inserted or none.
///
/// Invariant: at least one and at most [`PAGE_ENTRIES_MAX`] rejections with distinct keys of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAccountCommit {
    /// The account.
    pub account: AccountKey,
    /// The transactions that are inserted with their rejection.
    pub decided: Vec<Decided>,
    /// Identifies this commit across its retries.
    pub nonce: Nonce,
}

impl UnknownAccountCommit {
    /// Returns whether the invariant holds.
    pub fn is_consistent(&self) -> bool {
        let keys: BTreeSet<&TransactionKey> = self.decided.iter().map(Decided::key).collect();
        let is_rejected = |decided: &Decided| {
            decided.revision().is_none() && decided.outcome.status() == TransactionStatus::Rejected
        };
        (1..=PAGE_ENTRIES_MAX).contains(&self.decided.len())
            && keys.len() == self.decided.len()
            && keys.iter().all(|key| key.account == self.account)
            && self.decided.iter().all(is_rejected)
    }
}

/// Decides pending transactions in order against the account state that was read.
///
/// # Panics
/// If there are no transactions, more than [`PAGE_ENTRIES_MAX`] or more than order numbers; if two have the same key; if one
/// belongs to another account; or if those with rows do not come first. No partner can cause this, only a bug of the caller.
pub fn decide(
    account: &Versioned<Account>,
    pending: Vec<Pending>,
    context: &DecisionContext<'_>,
) -> AccountCommit {
    assert!(pending.len() <= context.numbers.len(), "there is an order number for each transaction");
    let mut numbers = context.numbers.iter().copied();
    settle(account, pending, context, |before, instruction| match balance_after(before, instruction) {
        Ok(balance_after) => {
            Verdict::Post { balance_after, order_number: numbers.next().expect("as asserted") }
        }
        Err(reason) => Verdict::Reject(reason),
    })
}

/// Rejects work with the reason `discarded`, after an operator discarded its dead letter.
///
/// # Panics
/// As [`decide`], except that no order numbers are needed.
pub fn discard(
    account: &Versioned<Account>,
    pending: Vec<Pending>,
    context: &DecisionContext<'_>,
) -> AccountCommit {
    settle(account, pending, context, |_, _| Verdict::Reject(RejectReason::Discarded))
}

/// Rejects submissions to an account that does not exist.
pub fn reject_unknown(
    account: AccountKey,
    submissions: Vec<Submission>,
    (nonce, rejected_at): (Nonce, Timestamp),
) -> UnknownAccountCommit {
    let outcome = Outcome::Rejected { reason: RejectReason::AccountUnknown, rejected_at, version: None };
    let reject = |submission| Decided { pending: Pending::from(submission), outcome: outcome.clone() };
    UnknownAccountCommit { account, decided: submissions.into_iter().map(reject).collect(), nonce }
}

/// Applies the rules of the bank, in order of precedence.
fn balance_after(account: &Account, instruction: &Instruction) -> Result<Balance, RejectReason> {
    let Instruction { kind, amount, details: _ } = instruction;
    if let Some(reason) = account.status.rejects() {
        return Err(reason);
    }
    if amount.currency() != account.currency {
        return Err(RejectReason::CurrencyMismatch);
    }
    match kind {
        TransactionKind::Deposit => account.balance.credited(*amount).ok_or(RejectReason::AmountOutOfRange),
        TransactionKind::Withdrawal => {
            let after = account.balance.debited(*amount).ok_or(RejectReason::AmountOutOfRange)?;
            let lowest =
                account.overdraft_limit.minor_units().checked_neg().ok_or(RejectReason::AmountOutOfRange)?;
            if after.minor_units() < lowest { Err(RejectReason::InsufficientFunds) } else { Ok(after) }
        }
    }
}

enum Verdict {
    Post { balance_after: Balance, order_number: OrderNumber },
    Reject(RejectReason),
}

fn settle(
    account: &Versioned<Account>,
    pending: Vec<Pending>,
    context: &DecisionContext<'_>,
    mut judge: impl FnMut(&Account, &Instruction) -> Verdict,
) -> AccountCommit {
    check(account.value.key, &pending);
    let before = &account.value;
    let mut after = Account { version: next(before.version), ..before.clone() };
    let (mut entries, mut other) = (Vec::new(), Vec::new());
    let mut decided = Vec::with_capacity(pending.len());
    for one in pending {
        let submission = &one.submission;
        let outcome = match judge(&after, &submission.instruction) {
            Verdict::Reject(reason) => {
                other.push(journal::Decided::Rejected(rejection(submission, reason, context.now)));
                Outcome::Rejected { reason, rejected_at: context.now, version: Some(after.version) }
            }
            Verdict::Post { balance_after, order_number } => {
                after.sequence = next(after.sequence);
                after.balance = balance_after;
                entries.push(entry(submission, after.sequence, order_number, balance_after, context.now));
                let (sequence, posted_at) = (after.sequence, context.now);
                Outcome::Posted { order_number, sequence, balance_after, posted_at }
            }
        };
        decided.push(Decided { pending: one, outcome });
    }
    let page = JournalPage::seal(&after, entries, other, (before.head, context.nonce));
    after.head = page.hash;
    let (guard, nonce) = (account.revision.clone(), context.nonce);
    AccountCommit { guard, after, decided, page, after_accepted: false, nonce }
}

fn check(account: AccountKey, pending: &[Pending]) {
    assert!(!pending.is_empty(), "a commit changes something");
    assert!(pending.len() <= PAGE_ENTRIES_MAX, "a commit holds at most {PAGE_ENTRIES_MAX} transactions");
    assert!(pending.is_sorted_by_key(|one| !one.is_stored()), "transactions with rows are decided first");
    let mut seen: BTreeSet<(&PartnerId, MessageId)> = BTreeSet::new();
    for one in pending {
        let key = one.key();
        assert_eq!(key.account, account, "all are of one account");
        assert!(seen.insert((&key.partner, key.message)), "transaction {key} would be posted twice");
    }
}

fn entry(
    submission: &Submission,
    sequence: u64,
    order_number: OrderNumber,
    balance_after: Balance,
    posted_at: Timestamp,
) -> Entry {
    let Submission { key, instruction, accepted_at, origin: _, batch_line: _ } = submission;
    Entry {
        sequence,
        partner: key.partner.clone(),
        message: key.message,
        kind: instruction.kind,
        amount: instruction.amount,
        details: instruction.details.clone(),
        order_number,
        balance_after,
        accepted_at: *accepted_at,
        posted_at,
    }
}

fn rejection(submission: &Submission, reason: RejectReason, rejected_at: Timestamp) -> Rejection {
    let Submission { key, instruction, accepted_at, origin: _, batch_line: _ } = submission;
    Rejection {
        partner: key.partner.clone(),
        message: key.message,
        fingerprint: instruction.fingerprint(),
        accepted_at: *accepted_at,
        reason,
        rejected_at,
    }
}

fn next(counter: u64) -> u64 {
    counter.checked_add(1).expect("no account has 2^64 entries or versions")
}

#[cfg(test)]
mod tests;
