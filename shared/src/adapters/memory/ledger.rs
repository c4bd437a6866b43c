//! Accept and commit. Each revision is a number that is never reused for another state of any row.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::flaws::Flaw;
use super::log::first_key;
use super::{MemoryStore, Tables};
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::{AccountCommit, Decided, Row, Submission, UnknownAccountCommit};
use crate::domain::ids::{AccountKey, Nonce, TransactionKey};
use crate::domain::journal::{Entry, JournalPage, PAGE_ENTRIES_MAX};
use crate::domain::transaction::{Outcome, TransactionStatus};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{AcceptOutcome, Committed, JointSteps, Ledger, Marks, StoredTransaction};
use crate::ports::operations::{PriceKind, Service};

/// Maximum number of transactions in one accept.
const GROUP_MAX: usize = 100;

/// Maximum number of accounts in one joint step. It is small, so that tests need several steps.
const ACCOUNTS_MAX: usize = 3;

#[derive(Default)]
pub(super) struct Rows {
    pub(super) accounts: BTreeMap<AccountKey, Versioned<Account>>,
    pub(super) transactions: BTreeMap<TransactionKey, TransactionRow>,
    pub(super) pages: BTreeMap<(AccountKey, u64), JournalPage>,
    pub(super) decision_pages: BTreeMap<(AccountKey, u64), JournalPage>,
}

/// A transaction, with the nonces of the accept and the commit that wrote it.
pub(super) struct TransactionRow {
    pub(super) stored: StoredTransaction,
    accepted_by: Nonce,
    finalized_by: Option<Nonce>,
}

impl TransactionRow {
    pub(super) fn status(&self) -> TransactionStatus {
        self.stored.status()
    }

    /// Creates the row of a transaction from another store. Its nonce differs from the nonces of all commits of this store.
    pub(super) fn imported(stored: StoredTransaction, nonce: Nonce) -> Self {
        let finalized_by = stored.outcome.as_ref().map(|_| nonce);
        Self { stored, accepted_by: nonce, finalized_by }
    }
}

#[async_trait]
impl Ledger for MemoryStore {
    fn checks_order(&self) -> bool {
        self.checks_order
    }

    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        assert_group(group);
        self.count(Service::Table, "batch", PriceKind::TableBatch);
        Ok(self.step(|tables| group.iter().map(|new| accept_one(tables, (new, nonce), self.flaw)).collect()))
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        assert_commit(commit);
        self.count(Service::Table, "batch", PriceKind::TableBatch);
        Ok(self.step(|tables| match check_guards(tables, commit, self.flaw) {
            None if only_rejects_accepted(commit) && self.flaw == Some(Flaw::RejectionUnguarded) => {
                Committed::Done { revision: Some(reject(tables, commit)) }
            }
            None if self.checks_order && commit.after_accepted && has_accepted(tables, commit.account()) => {
                Committed::Early
            }
            None => Committed::Done { revision: Some(write(tables, commit)) },
            Some(refusal) => refusal,
        }))
    }

    async fn reject_unknown(&self, commit: &UnknownAccountCommit) -> Result<Committed, StoreFault> {
        assert!(commit.is_consistent(), "an inconsistent commit on the unknown account {}", commit.account);
        self.count(Service::Table, "batch", PriceKind::TableBatch);
        let UnknownAccountCommit { account: _, decided, nonce } = commit;
        Ok(self.step(|Tables { ledger, numbers, .. }| {
            let row = |decided: &Decided| ledger.transactions.get(decided.key());
            if decided.iter().all(|it| row(it).is_some_and(|row| row.finalized_by == Some(*nonce))) {
                return Committed::Done { revision: None };
            }
            let taken: Vec<_> =
                decided.iter().filter(|it| row(it).is_some()).map(|it| it.key().clone()).collect();
            if !taken.is_empty() && self.flaw != Some(Flaw::KeysUnguarded) {
                return Committed::Taken(taken);
            }
            decided.iter().for_each(|it| insert(ledger, numbers, it, *nonce));
            Committed::Done { revision: None }
        }))
    }

    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.ledger.accounts.get(&key).cloned()))
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.ledger.transactions.get(key).map(|row| row.stored.clone())))
    }

    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault> {
        self.count_row("merge");
        Ok(self.step(|Tables { ledger, numbers, .. }| {
            let row = ledger.transactions.get_mut(key)?;
            if row.status().is_final() || row.stored.revision != *revision {
                return None;
            }
            row.stored.marks = marks;
            row.stored.revision = numbers.revision();
            Some(row.stored.revision.clone())
        }))
    }

    async fn probe(&self) -> Result<(), StoreFault> {
        self.count_row("get");
        Ok(())
    }

    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        Some(self)
    }
}

#[async_trait]
impl JointSteps for MemoryStore {
    fn accounts_max(&self) -> usize {
        ACCOUNTS_MAX
    }

    async fn accounts(&self, keys: &[AccountKey]) -> Result<Vec<Option<Versioned<Account>>>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| keys.iter().map(|key| tables.ledger.accounts.get(key).cloned()).collect()))
    }

    async fn commit_all(&self, commits: &[AccountCommit]) -> Result<Vec<Committed>, StoreFault> {
        let mut done = Vec::new();
        for commit in commits {
            done.push(self.commit(commit).await?);
        }
        Ok(done)
    }
}

fn accept_one(
    Tables { ledger, numbers, .. }: &mut Tables,
    (new, nonce): (&Submission, Nonce),
    flaw: Option<Flaw>,
) -> AcceptOutcome {
    let replaces = flaw == Some(Flaw::InsertReplaces);
    if let Some(row) = ledger.transactions.get(&new.key).filter(|_| !replaces) {
        // This is a retry of the attempt that stored the row, whose response was lost.
        if row.accepted_by == nonce && !row.status().is_final() {
            return AcceptOutcome::Inserted { revision: row.stored.revision.clone(), enqueued: false };
        }
        return AcceptOutcome::Existing(Box::new(row.stored.clone()));
    }
    let revision = numbers.revision();
    let stored = StoredTransaction::inserted(new.clone(), revision.clone(), None);
    ledger
        .transactions
        .insert(new.key.clone(), TransactionRow { stored, accepted_by: nonce, finalized_by: None });
    AcceptOutcome::Inserted { revision, enqueued: false }
}

/// Returns why the commit must not be written, or `None` if all its guards hold.
fn check_guards(
    Tables { ledger, .. }: &Tables,
    commit: &AccountCommit,
    flaw: Option<Flaw>,
) -> Option<Committed> {
    let is_ours = |(key, _): (&TransactionKey, _)| {
        ledger.transactions.get(key).is_some_and(|row| row.finalized_by == Some(commit.nonce))
    };
    if commit.outcomes().all(is_ours) {
        // This commit was already written. The revision of the account may have changed since then.
        return Some(Committed::Done { revision: None });
    }
    let row = |decided: &Decided| ledger.transactions.get(decided.key());
    let is_final = |decided: &&Decided| row(decided).is_some_and(|row| row.status().is_final());
    let finals: Vec<TransactionKey> =
        commit.stored().iter().filter(is_final).map(|decided| decided.key().clone()).collect();
    let rows_unguarded = flaw == Some(Flaw::RowsUnguarded);
    if !finals.is_empty() && !rows_unguarded {
        return Some(Committed::RowsChanged(finals));
    }
    let taken: Vec<TransactionKey> = commit
        .inserted()
        .iter()
        .filter(|decided| row(decided).is_some())
        .map(|decided| decided.key().clone())
        .collect();
    if !taken.is_empty() && flaw != Some(Flaw::KeysUnguarded) {
        return Some(Committed::Taken(taken));
    }
    let account_holds =
        ledger.accounts.get(&commit.account()).is_some_and(|account| account.revision == commit.guard);
    let row_holds = |decided: &Decided| row(decided).map(|row| &row.stored.revision) == decided.revision();
    let account_unguarded = match flaw {
        Some(Flaw::AccountUnguarded) => true,
        Some(Flaw::RejectionUnguarded) => only_rejects_accepted(commit),
        Some(Flaw::InsertionUnguarded) => !commit.inserted().is_empty(),
        Some(Flaw::RowsUnguarded | Flaw::InsertReplaces | Flaw::KeysUnguarded) | None => false,
    };
    let holds =
        (account_holds || account_unguarded) && (rows_unguarded || commit.stored().iter().all(row_holds));
    (!holds).then_some(Committed::Stale)
}

fn only_rejects_accepted(commit: &AccountCommit) -> bool {
    commit.numbers_used() == 0 && commit.inserted().is_empty()
}

/// Returns whether the account has an accepted transaction that is not a dead letter.
fn has_accepted(Tables { ledger, .. }: &Tables, account: AccountKey) -> bool {
    let rows = ledger.transactions.range(first_key(account)..);
    let mut of_account = rows.take_while(|(key, _)| key.account == account);
    of_account.any(|(_, row)| !row.status().is_final() && !row.stored.marks.dead_letter)
}

/// Writes a commit whose guards hold. Returns the new revision of the account.
fn write(Tables { ledger, numbers, .. }: &mut Tables, commit: &AccountCommit) -> Revision {
    let AccountCommit { guard: _, after, decided, page, after_accepted: _, nonce } = commit;
    insert_page(ledger, page);
    for one in decided {
        match one.pending.row {
            Row::Stored(_) => finalize(ledger, numbers, one, *nonce),
            Row::Absent => insert(ledger, numbers, one, *nonce),
        }
    }
    let revision = numbers.revision();
    ledger.accounts.insert(after.key, Versioned { value: after.clone(), revision: revision.clone() });
    revision
}

/// Inserts a page. Panics if the page exists.
pub(super) fn insert_page(ledger: &mut Rows, page: &JournalPage) {
    let (pages, number) = if page.entries.is_empty() {
        (&mut ledger.decision_pages, page.version)
    } else {
        (&mut ledger.pages, page.first_sequence)
    };
    let replaced = pages.insert((page.account, number), page.clone());
    assert!(replaced.is_none(), "the page {number} of {} exists already", page.account);
}

fn insert(ledger: &mut Rows, numbers: &mut super::UniqueNumbers, decided: &Decided, nonce: Nonce) {
    let (submission, outcome) = (decided.submission().clone(), Some(decided.outcome.clone()));
    let stored = StoredTransaction::inserted(submission, numbers.revision(), outcome);
    ledger.transactions.insert(
        decided.key().clone(),
        TransactionRow { stored, accepted_by: nonce, finalized_by: Some(nonce) },
    );
}

fn finalize(ledger: &mut Rows, numbers: &mut super::UniqueNumbers, decided: &Decided, nonce: Nonce) {
    let row = ledger.transactions.get_mut(decided.key());
    let row = row.expect("the row exists, because its guard holds");
    row.stored.outcome = Some(decided.outcome.clone());
    row.stored.delivered = decided.pending.delivered;
    row.stored.revision = numbers.revision();
    row.finalized_by = Some(nonce);
}

/// Writes a commit without its page and without checking the account. Implements [`Flaw::RejectionUnguarded`].
fn reject(Tables { ledger, numbers, .. }: &mut Tables, commit: &AccountCommit) -> Revision {
    commit.stored().iter().for_each(|decided| finalize(ledger, numbers, decided, commit.nonce));
    let revision = numbers.revision();
    if let Some(account) = ledger.accounts.get_mut(&commit.after.key) {
        account.value.version = account.value.version.saturating_add(1);
        account.revision = revision.clone();
    }
    revision
}

/// Asserts the preconditions of `accept`.
fn assert_group(group: &[Submission]) {
    assert!(group.len() <= GROUP_MAX, "{} transactions exceed the limit of one accept", group.len());
    let keys: BTreeSet<&TransactionKey> = group.iter().map(|new| &new.key).collect();
    assert!(keys.len() == group.len(), "a group contains a key twice");
    let accounts: BTreeSet<AccountKey> = group.iter().map(|new| new.key.account).collect();
    assert!(accounts.len() <= 1, "a group contains transactions of several accounts");
}

/// Asserts the invariants of a commit, so that a bug cannot reach the journal.
fn assert_commit(commit: &AccountCommit) {
    let AccountCommit { after, page, nonce, .. } = commit;
    let count = commit.outcomes().count();
    assert!((1..=PAGE_ENTRIES_MAX).contains(&count), "a commit has {count} transactions");
    let keys: BTreeSet<&TransactionKey> = commit.outcomes().map(|(key, _)| key).collect();
    assert!(keys.len() == count, "a commit contains a key twice");
    assert!(keys.iter().all(|key| key.account == after.key), "a commit contains another account");
    assert!(commit.lists_rejections(), "the page does not list the decisions");
    let posted: Vec<(&TransactionKey, u64)> = commit.outcomes().filter_map(posted_sequence).collect();
    if let Err(flaw) = page.check() {
        panic!("the page of a commit is invalid: {flaw}");
    }
    assert!(page.account == after.key && page.nonce == *nonce, "the page belongs to another commit");
    assert!(
        page.hash == after.head && page.last_sequence() == after.sequence,
        "the account does not match its page"
    );
    let same = |(entry, (key, sequence)): (&Entry, &(&TransactionKey, u64))| {
        entry.sequence == *sequence && entry.partner == key.partner && entry.message == key.message
    };
    assert!(
        page.entries.len() == posted.len() && page.entries.iter().zip(&posted).all(same),
        "the entries of the page differ from the posted transactions"
    );
}

fn posted_sequence<'a>((key, outcome): (&'a TransactionKey, &Outcome)) -> Option<(&'a TransactionKey, u64)> {
    match outcome {
        Outcome::Posted { sequence, .. } => Some((key, *sequence)),
        Outcome::Rejected { .. } => None,
    }
}
