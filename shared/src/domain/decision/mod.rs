//! The one place that decides what becomes of accepted work: account state + work → new state +
//! outcomes. Pure: the same input gives the same commit, whoever computes it.

use std::collections::BTreeSet;

use super::account::{Account, AccountStatus, Revision, Versioned};
use super::ids::{AccountKey, MessageId, Nonce, OrderNumber, PartnerId, TransactionKey};
use super::instruction::{Instruction, TransactionKind};
use super::journal::{Entry, JournalPage, PAGE_ENTRIES_MAX};
use super::money::Balance;
use super::rejection::RejectReason;
use super::time::Timestamp;
use super::transaction::Outcome;

/// Accepted work that waits for a decision: everything that posting needs, so that the worker
/// reads nothing on the happy path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Which transaction.
    pub key: TransactionKey,
    /// What the partner asked for.
    pub instruction: Instruction,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The state of its row that the commit must find.
    pub revision: Revision,
}

/// What a decision needs besides the account and the work.
#[derive(Debug)]
pub struct DecisionContext<'a> {
    /// Marks this commit.
    pub nonce: Nonce,
    /// The time of the decision.
    pub now: Timestamp,
    /// Reserved order numbers, one for each piece of work; those that were not needed are left
    /// over at the end.
    pub numbers: &'a [OrderNumber],
}

/// One transaction that becomes final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finalization {
    /// Which transaction.
    pub key: TransactionKey,
    /// The state of its row that the commit must find.
    pub revision: Revision,
    /// What became of it.
    pub outcome: Outcome,
}

/// One atomic change of an account: written whole, under its guards, or not at all.
///
/// Invariant: at most [`PAGE_ENTRIES_MAX`] finalizations, each key once; the page has exactly the
/// posted ones and is absent when there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountCommit {
    /// The state of the account row that the commit must find.
    pub guard: Revision,
    /// The account afterwards.
    pub after: Account,
    /// The transactions that become final.
    pub finalizations: Vec<Finalization>,
    /// The journal page of the posted ones.
    pub page: Option<JournalPage>,
    /// Marks this commit, unchanged across its retries. Stored in every transaction row and in the
    /// page, never in the account row, which the next commit overwrites.
    pub nonce: Nonce,
}

impl AccountCommit {
    /// The account that it changes.
    pub const fn account(&self) -> AccountKey {
        self.after.key
    }

    /// How many of the reserved order numbers it uses: the first ones.
    pub fn numbers_used(&self) -> usize {
        self.page.as_ref().map_or(0, |page| page.entries.len())
    }
}

/// Work that no commit can be made of: a mistake of the caller, never of the partner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecidable {
    /// A commit has to change something.
    #[error("there is no work to decide")]
    Empty,
    /// More than one commit can hold.
    #[error("{0} transactions are more than one commit holds ({PAGE_ENTRIES_MAX})")]
    TooMany(usize),
    /// The same transaction twice in one batch would post twice.
    #[error("transaction {0} stands twice in one batch")]
    RepeatedKey(TransactionKey),
    /// Work of another account.
    #[error("transaction {0} is not of the account {1}")]
    OtherAccount(TransactionKey, AccountKey),
    /// Fewer order numbers than work.
    #[error("{numbers} order numbers are too few for {work} transactions")]
    TooFewNumbers {
        /// Numbers that were given.
        numbers: usize,
        /// Transactions that may need one.
        work: usize,
    },
}

/// Decides work in its order against the account as it was read.
///
/// # Errors
/// [`Undecidable`] where no sound commit can be made; nothing is decided then.
pub fn decide(
    account: &Versioned<Account>,
    work: &[Work],
    context: &DecisionContext<'_>,
) -> Result<AccountCommit, Undecidable> {
    if context.numbers.len() < work.len() {
        return Err(Undecidable::TooFewNumbers { numbers: context.numbers.len(), work: work.len() });
    }
    let mut numbers = context.numbers.iter().copied();
    settle(account, work, context, |before, item| match balance_after(before, item) {
        Ok(balance_after) => Verdict::Post {
            balance_after,
            order_number: numbers.next().expect("there is a number for each piece of work"),
        },
        Err(reason) => Verdict::Reject(reason),
    })
}

/// Rejects work with the reason `discarded`, as a person decided about its dead letter.
///
/// # Errors
/// As [`decide`].
pub fn discard(
    account: &Versioned<Account>,
    work: &[Work],
    context: &DecisionContext<'_>,
) -> Result<AccountCommit, Undecidable> {
    settle(account, work, context, |_, _| Verdict::Reject(RejectReason::Discarded))
}

/// The rules of the bank, in the order of their precedence.
fn balance_after(account: &Account, work: &Work) -> Result<Balance, RejectReason> {
    let Instruction { kind, amount, details: _ } = &work.instruction;
    if account.status == AccountStatus::Closed {
        return Err(RejectReason::AccountClosed);
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
    work: &[Work],
    context: &DecisionContext<'_>,
    mut judge: impl FnMut(&Account, &Work) -> Verdict,
) -> Result<AccountCommit, Undecidable> {
    check(account.value.key, work)?;
    let mut after = account.value.clone();
    let mut entries = Vec::new();
    let mut finalizations = Vec::with_capacity(work.len());
    for item in work {
        let outcome = match judge(&after, item) {
            Verdict::Reject(reason) => Outcome::Rejected { reason, rejected_at: context.now },
            Verdict::Post { balance_after, order_number } => {
                after.sequence = next(after.sequence);
                after.balance = balance_after;
                entries.push(entry(item, after.sequence, order_number, balance_after, context.now));
                let (sequence, posted_at) = (after.sequence, context.now);
                Outcome::Posted { order_number, sequence, balance_after, posted_at }
            }
        };
        let Work { key, revision, instruction: _, accepted_at: _ } = item.clone();
        finalizations.push(Finalization { key, revision, outcome });
    }
    let page = (!entries.is_empty())
        .then(|| JournalPage::seal(after.key, entries, account.value.head, context.nonce));
    if let Some(page) = &page {
        after.head = page.hash;
    }
    after.version = next(after.version);
    Ok(AccountCommit { guard: account.revision.clone(), after, finalizations, page, nonce: context.nonce })
}

fn check(account: AccountKey, work: &[Work]) -> Result<(), Undecidable> {
    if work.is_empty() {
        return Err(Undecidable::Empty);
    }
    if work.len() > PAGE_ENTRIES_MAX {
        return Err(Undecidable::TooMany(work.len()));
    }
    let mut seen: BTreeSet<(&PartnerId, MessageId)> = BTreeSet::new();
    for item in work {
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
    item: &Work,
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

fn next(counter: u64) -> u64 {
    counter.checked_add(1).expect("no account has 2^64 entries or versions")
}

#[cfg(test)]
mod tests;
