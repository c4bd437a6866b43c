//! Decides the outcome of accepted work: account state + work → new state + outcomes. The module is pure: the
//! same input always gives the same commit.

mod terms;

use std::collections::BTreeSet;

pub use terms::{AccountDecision, ClosingWithBalance, NewTerms, TermsContext, change_terms, open};

use super::account::{Account, Revision, Versioned};
use super::ids::{AccountKey, MessageId, Nonce, OrderNumber, PartnerId, TransactionKey};
use super::instruction::{Instruction, TransactionKind};
use super::journal::{Decided, Entry, JournalPage, PAGE_ENTRIES_MAX, Rejection};
use super::money::Balance;
use super::origin::{Delivered, Origin, RequestId};
use super::rejection::RejectReason;
use super::time::Timestamp;
use super::transaction::{BatchLine, Outcome, TransactionStatus};

/// Accepted work that is not decided yet. It holds everything that posting needs, so that in the normal case the
/// worker does not read the transaction from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Identifies the transaction.
    pub key: TransactionKey,
    /// The instruction of the partner.
    pub instruction: Instruction,
    /// The time when it was accepted.
    pub accepted_at: Timestamp,
    /// The revision that the transaction row must have at the commit.
    pub revision: Revision,
    /// The request that brought it.
    pub origin: Origin,
    /// Its delivery by the queue; `None` until it is received.
    pub delivered: Option<Delivered>,
}

/// Work without a row: the commit that decides it also inserts its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWork {
    /// Identifies the transaction.
    pub key: TransactionKey,
    /// The instruction of the partner.
    pub instruction: Instruction,
    /// The time when the request arrived.
    pub accepted_at: Timestamp,
    /// The batch that it is from; `None` for a request of its own.
    pub batch_line: Option<BatchLine>,
    /// The request that brought it.
    pub origin: Origin,
}

/// The inputs of a decision besides the account and the work.
#[derive(Debug)]
pub struct DecisionContext<'a> {
    /// Identifies this commit.
    pub nonce: Nonce,
    /// The time of the decision.
    pub now: Timestamp,
    /// Reserved order numbers, one for each transaction; the last ones stay unused when
    /// transactions are rejected.
    pub numbers: &'a [OrderNumber],
}

/// The final outcome of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finalization {
    /// Identifies the transaction.
    pub key: TransactionKey,
    /// The revision that the transaction row must have at the commit.
    pub revision: Revision,
    /// The outcome.
    pub outcome: Outcome,
    /// The delivery of its work by the queue.
    pub delivered: Option<Delivered>,
}

/// A transaction that is final from its first write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insertion {
    /// Identifies the transaction. The commit requires that no row has this key: the insert is the idempotency check.
    pub key: TransactionKey,
    /// The instruction of the partner.
    pub instruction: Instruction,
    /// The time when the request arrived.
    pub accepted_at: Timestamp,
    /// The batch that it is from; `None` for a request of its own.
    pub batch_line: Option<BatchLine>,
    /// The id of the request that brought it.
    pub request_id: Option<RequestId>,
    /// The outcome.
    pub outcome: Outcome,
}

/// One atomic change of an account: applied completely, under its guards, or not at all.
///
/// Invariant: finalizations and insertions are together at least one and at most [`PAGE_ENTRIES_MAX`], with distinct
/// keys; the page contains all of them, the finalizations first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountCommit {
    /// The revision that the account row must have at the commit.
    pub guard: Revision,
    /// The account after the commit.
    pub after: Account,
    /// The accepted transactions that become final.
    pub finalizations: Vec<Finalization>,
    /// The transactions that are inserted with their outcome.
    pub insertions: Vec<Insertion>,
    /// The journal page of the decisions.
    pub page: JournalPage,
    /// Whether accepted transactions of the account come first: a ledger that can check it writes nothing while one
    /// is not final, unless it is in the dead letters.
    pub after_accepted: bool,
    /// Identifies this commit; unchanged when the commit is retried. Stored in every transaction row and in the
    /// page, but not in the account row, which the next commit overwrites.
    pub nonce: Nonce,
}

impl AccountCommit {
    /// Returns the account that is changed.
    pub const fn account(&self) -> AccountKey {
        self.after.key
    }

    /// Returns each transaction with its outcome, in the order of the decision.
    pub fn outcomes(&self) -> impl Iterator<Item = (&TransactionKey, &Outcome)> {
        let finalized = self.finalizations.iter().map(|item| (&item.key, &item.outcome));
        finalized.chain(self.insertions.iter().map(|item| (&item.key, &item.outcome)))
    }

    /// Returns whether the page has the version of the account and lists the rejections.
    pub fn lists_rejections(&self) -> bool {
        let rejected = self.outcomes().filter(|(_, outcome)| outcome.reason().is_some());
        let keys = rejected.map(|(key, _)| (&key.partner, key.message));
        self.page.version == self.after.version && self.page.rejected_keys().eq(keys)
    }

    /// Returns how many of the reserved order numbers are used; these are the first ones.
    pub const fn numbers_used(&self) -> usize {
        self.page.entries.len()
    }
}

/// The rejection of transactions of an account that does not exist: all of them are inserted, or none.
///
/// Invariant: at least one and at most [`PAGE_ENTRIES_MAX`] rejections with distinct keys of the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAccountCommit {
    /// The account.
    pub account: AccountKey,
    /// The transactions that are inserted with their rejection.
    pub insertions: Vec<Insertion>,
    /// As in [`AccountCommit::nonce`].
    pub nonce: Nonce,
}

impl UnknownAccountCommit {
    /// Returns whether the invariant holds.
    pub fn is_consistent(&self) -> bool {
        let keys: BTreeSet<&TransactionKey> =
            self.insertions.iter().map(|insertion| &insertion.key).collect();
        let is_rejected = |insertion: &Insertion| insertion.outcome.status() == TransactionStatus::Rejected;
        (1..=PAGE_ENTRIES_MAX).contains(&self.insertions.len())
            && keys.len() == self.insertions.len()
            && keys.iter().all(|key| key.account == self.account)
            && self.insertions.iter().all(is_rejected)
    }
}

/// Work that cannot be committed: a mistake of the caller, never of the partner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecidable {
    /// There is no work; a commit has to change something.
    #[error("there is no work to decide")]
    Empty,
    /// More work than one commit can hold.
    #[error("{0} transactions are more than one commit holds ({PAGE_ENTRIES_MAX})")]
    TooMany(usize),
    /// One transaction occurs twice in a batch; it would be posted twice.
    #[error("transaction {0} occurs twice in one batch")]
    RepeatedKey(TransactionKey),
    /// The work is of another account.
    #[error("transaction {0} is not of the account {1}")]
    OtherAccount(TransactionKey, AccountKey),
    /// There are fewer order numbers than transactions.
    #[error("{numbers} order numbers are too few for {work} transactions")]
    TooFewNumbers {
        /// The number of order numbers.
        numbers: usize,
        /// The number of transactions that may need one.
        work: usize,
    },
}

/// Decides accepted work in order, against the account state that was read.
///
/// # Errors
/// [`Undecidable`] when no valid commit is possible; then nothing is decided.
pub fn decide(
    account: &Versioned<Account>,
    work: &[Work],
    context: &DecisionContext<'_>,
) -> Result<AccountCommit, Undecidable> {
    decide_with_new(account, work, &[], context)
}

/// Decides accepted work and then new work, each in order, for one commit.
///
/// # Errors
/// As [`decide`].
pub fn decide_with_new(
    account: &Versioned<Account>,
    accepted: &[Work],
    new: &[NewWork],
    context: &DecisionContext<'_>,
) -> Result<AccountCommit, Undecidable> {
    let work = accepted.len().saturating_add(new.len());
    if context.numbers.len() < work {
        return Err(Undecidable::TooFewNumbers { numbers: context.numbers.len(), work });
    }
    let mut numbers = context.numbers.iter().copied();
    settle(account, accepted, new, context, |before, instruction| match balance_after(before, instruction) {
        Ok(balance_after) => Verdict::Post {
            balance_after,
            order_number: numbers.next().expect("there is a number for each piece of work"),
        },
        Err(reason) => Verdict::Reject(reason),
    })
}

/// Rejects work with the reason `discarded`, after an operator discarded its dead letter.
///
/// # Errors
/// As [`decide`].
pub fn discard(
    account: &Versioned<Account>,
    work: &[Work],
    context: &DecisionContext<'_>,
) -> Result<AccountCommit, Undecidable> {
    settle(account, work, &[], context, |_, _| Verdict::Reject(RejectReason::Discarded))
}

/// Rejects new work of an account that does not exist.
pub fn reject_unknown(
    account: AccountKey,
    new: &[NewWork],
    (nonce, rejected_at): (Nonce, Timestamp),
) -> UnknownAccountCommit {
    let outcome = Outcome::Rejected { reason: RejectReason::AccountUnknown, rejected_at, version: None };
    let insertions = new.iter().cloned().map(|work| insertion(work, outcome.clone()));
    UnknownAccountCommit { account, insertions: insertions.collect(), nonce }
}

fn insertion(work: NewWork, outcome: Outcome) -> Insertion {
    let NewWork { key, instruction, accepted_at, batch_line, origin } = work;
    Insertion { key, instruction, accepted_at, batch_line, request_id: origin.request_id, outcome }
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

/// One transaction to decide, with or without a row.
struct Item<'a> {
    key: &'a TransactionKey,
    instruction: &'a Instruction,
    accepted_at: Timestamp,
}

fn settle(
    account: &Versioned<Account>,
    accepted: &[Work],
    new: &[NewWork],
    context: &DecisionContext<'_>,
    mut judge: impl FnMut(&Account, &Instruction) -> Verdict,
) -> Result<AccountCommit, Undecidable> {
    let items = accepted.iter().map(|Work { key, instruction, accepted_at, .. }| Item {
        key,
        instruction,
        accepted_at: *accepted_at,
    });
    let items: Vec<Item<'_>> = items
        .chain(new.iter().map(|NewWork { key, instruction, accepted_at, .. }| Item {
            key,
            instruction,
            accepted_at: *accepted_at,
        }))
        .collect();
    check(account.value.key, &items)?;
    let before = &account.value;
    let mut after = Account { version: next(before.version), ..before.clone() };
    let (mut entries, mut decided) = (Vec::new(), Vec::new());
    let mut outcomes = Vec::with_capacity(items.len());
    for item in &items {
        outcomes.push(match judge(&after, item.instruction) {
            Verdict::Reject(reason) => {
                decided.push(Decided::Rejected(rejection(item, reason, context.now)));
                Outcome::Rejected { reason, rejected_at: context.now, version: Some(after.version) }
            }
            Verdict::Post { balance_after, order_number } => {
                after.sequence = next(after.sequence);
                after.balance = balance_after;
                entries.push(entry(item, after.sequence, order_number, balance_after, context.now));
                let (sequence, posted_at) = (after.sequence, context.now);
                Outcome::Posted { order_number, sequence, balance_after, posted_at }
            }
        });
    }
    let page = JournalPage::seal(&after, entries, decided, (before.head, context.nonce));
    after.head = page.hash;
    let mut outcomes = outcomes.into_iter();
    let finalizations = accepted.iter().zip(outcomes.by_ref()).map(|(work, outcome)| Finalization {
        key: work.key.clone(),
        revision: work.revision.clone(),
        outcome,
        delivered: work.delivered,
    });
    let finalizations = finalizations.collect();
    let insertions = new.iter().cloned().zip(outcomes).map(|(work, outcome)| insertion(work, outcome));
    Ok(AccountCommit {
        guard: account.revision.clone(),
        after,
        finalizations,
        insertions: insertions.collect(),
        page,
        after_accepted: false,
        nonce: context.nonce,
    })
}

fn check(account: AccountKey, items: &[Item<'_>]) -> Result<(), Undecidable> {
    if items.is_empty() {
        return Err(Undecidable::Empty);
    }
    if items.len() > PAGE_ENTRIES_MAX {
        return Err(Undecidable::TooMany(items.len()));
    }
    let mut seen: BTreeSet<(&PartnerId, MessageId)> = BTreeSet::new();
    for item in items {
        if item.key.account != account {
            return Err(Undecidable::OtherAccount(item.key.clone(), account));
        }
        if !seen.insert((&item.key.partner, item.key.message)) {
            return Err(Undecidable::RepeatedKey(item.key.clone()));
        }
    }
    Ok(())
}

fn entry(
    item: &Item<'_>,
    sequence: u64,
    order_number: OrderNumber,
    balance_after: Balance,
    posted_at: Timestamp,
) -> Entry {
    Entry {
        sequence,
        partner: item.key.partner.clone(),
        message: item.key.message,
        kind: item.instruction.kind,
        amount: item.instruction.amount,
        details: item.instruction.details.clone(),
        order_number,
        balance_after,
        accepted_at: item.accepted_at,
        posted_at,
    }
}

fn rejection(item: &Item<'_>, reason: RejectReason, rejected_at: Timestamp) -> Rejection {
    Rejection {
        partner: item.key.partner.clone(),
        message: item.key.message,
        fingerprint: item.instruction.fingerprint(),
        accepted_at: item.accepted_at,
        reason,
        rejected_at,
    }
}

fn next(counter: u64) -> u64 {
    counter.checked_add(1).expect("no account has 2^64 entries or versions")
}

#[cfg(test)]
mod tests;
