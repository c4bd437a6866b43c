//! Second half of the protocol: one batch changes the account, its transactions and the journal page, guarded by ETags.
//!
//! If the response to a commit is lost, a transaction row is read back, and the commit is recognized by its nonce. A
//! row in another state proves nothing, because the commit may still be applied. But it can be applied only while its
//! guards hold, so it is sent again. Once the guards fail, the commit was either applied (and the row has its nonce) or
//! never will be. An inserted row is final in the same write, so the nonce of a final row proves this too.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _};

use super::account_row;
use super::attempt::{RequestFault, Retries};
use super::batch::Batch;
use super::keys::{Key, partition};
use super::ledger::AzureLedger;
use super::page_row;
use super::transaction_row::{FinalRow, InsertedRow, TransactionRow};
use crate::domain::decision::{AccountCommit, Decided, Row, UnknownAccountCommit};
use crate::domain::ids::TransactionKey;
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::transaction::TransactionStatus;
use crate::ports::fault::{EVIDENCE, StoreFault};
use crate::ports::ledger::Committed;

const DOING: &str = "committing an account";

const CONCURRENT_READS_MAX: usize = 16;

impl AzureLedger {
    pub(super) async fn commit_account(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        check(commit);
        let batch = to_batch(commit);
        let mut retries = Retries::new(&self.world);
        loop {
            let failure = match self.table.send(&batch).await {
                Ok(revisions) => {
                    let revision = revisions.into_iter().nth(account_position(commit)).flatten();
                    return Ok(Committed::Done { revision });
                }
                Err(failure) => failure,
            };
            retries.record_failure(&failure);
            let guarded = [404, 409, 412].into_iter().any(|status| failure.has_status(status));
            if retries.is_unclear()
                && (guarded || failure.is_unclear())
                && self.was_written(commit, &mut retries).await?
            {
                return Ok(Committed::Done { revision: None });
            }
            if guarded {
                return self.refusal(commit, &failure, &retries).await;
            }
            if matches!(failure, RequestFault::Answered(_)) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, DOING));
            }
        }
    }

    /// Inserts rejections for an unknown account. The rows are final in the same atomic write, so the nonce in the
    /// first row proves that all rows were written.
    pub(super) async fn insert_rejections(
        &self,
        commit: &UnknownAccountCommit,
    ) -> Result<Committed, StoreFault> {
        assert!(commit.is_consistent(), "an inconsistent commit on the unknown account {}", commit.account);
        let UnknownAccountCommit { account, decided, nonce } = commit;
        let mut batch = Batch::new(partition(*account));
        for one in decided {
            batch.insert(&Key::transaction(one.key()), &InsertedRow::of(one, *nonce));
        }
        let mut retries = Retries::new(&self.world);
        loop {
            let Err(failure) = self.table.send(&batch).await else {
                return Ok(Committed::Done { revision: None });
            };
            retries.record_failure(&failure);
            let is_taken = failure.has_status(409);
            if retries.is_unclear() && (is_taken || failure.is_unclear()) {
                let first = decided.first().map(|one| Key::transaction(one.key()));
                let first = first.expect("a commit inserts a transaction");
                let found = self.read(&first, &mut retries, DOING).await?;
                let row = found.map(|found| TransactionRow::parse(&found, DOING)).transpose()?;
                if row.is_some_and(|row| row.was_decided_by(*nonce)) {
                    return Ok(Committed::Done { revision: None });
                }
            }
            if is_taken {
                let taken = self.existing(decided, &retries).await?;
                return Ok(Committed::Taken(taken));
            }
            if matches!(failure, RequestFault::Answered(_)) || !retries.wait_for_retry().await {
                return Err(retries.fault(failure, DOING));
            }
        }
    }

    /// Returns whether this commit was written. It is atomic, so one row proves it.
    async fn was_written(&self, commit: &AccountCommit, retries: &mut Retries) -> Result<bool, StoreFault> {
        let (first, _) = commit.outcomes().next().expect("a commit finishes a transaction");
        let Some(found) = self.read(&Key::transaction(first), retries, DOING).await? else {
            return Ok(false);
        };
        let row = TransactionRow::parse(&found, DOING)?;
        let ours = row.was_decided_by(commit.nonce);
        if ours {
            log_content_mismatch(commit, first, &row);
        }
        Ok(ours)
    }

    /// Returns which guard failed. The service reports the first row whose guard failed. This is a hint: it may cause
    /// an unnecessary read, but it never makes a transaction count as final or taken.
    async fn refusal(
        &self,
        commit: &AccountCommit,
        failure: &RequestFault,
        retries: &Retries,
    ) -> Result<Committed, StoreFault> {
        let named = failure.failed_row();
        if let Some(changed) = named.and_then(|row| commit.stored().get(row)) {
            return Ok(Committed::RowsChanged(vec![changed.key().clone()]));
        }
        let taken = self.taken(commit, failure, retries).await?;
        Ok(if taken.is_empty() { Committed::Stale } else { Committed::Taken(taken) })
    }

    /// Returns the taken keys of the rows to insert: only the one that the service reported if it is taken, otherwise all.
    async fn taken(
        &self,
        commit: &AccountCommit,
        failure: &RequestFault,
        retries: &Retries,
    ) -> Result<Vec<TransactionKey>, StoreFault> {
        if commit.inserted().is_empty() || !failure.has_status(409) {
            return Ok(Vec::new());
        }
        let before = commit.stored().len();
        if let Some(named) = failure.failed_row() {
            let Some(hinted) = commit.inserted().get(named.saturating_sub(before)) else {
                // The service reported the account or the page, which follow all transactions.
                return Ok(Vec::new());
            };
            let taken = self.existing(std::slice::from_ref(hinted), retries).await?;
            if !taken.is_empty() {
                return Ok(taken);
            }
        }
        self.existing(commit.inserted(), retries).await
    }

    async fn existing(
        &self,
        inserted: &[Decided],
        retries: &Retries,
    ) -> Result<Vec<TransactionKey>, StoreFault> {
        let reads = inserted.iter().map(|one| {
            let mut retries = retries.clone();
            async move {
                let found = self.read(&Key::transaction(one.key()), &mut retries, DOING).await?;
                Ok::<_, StoreFault>(found.map(|_| one.key().clone()))
            }
        });
        let reads: Vec<_> = reads.collect();
        let found: Vec<Option<TransactionKey>> =
            futures::stream::iter(reads).buffered(CONCURRENT_READS_MAX).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// Logs an error if kind, amount or currency in the row of a transaction differ from its entry on the journal page.
/// This contradiction requires an investigation by an operator.
fn log_content_mismatch(commit: &AccountCommit, key: &TransactionKey, row: &TransactionRow) {
    let mut entries = commit.page.entries.iter();
    let Some(entry) = entries.find(|e| e.partner == key.partner && e.message == key.message) else {
        return;
    };
    let committed =
        (entry.kind.code(), entry.amount.minor_units().to_string(), entry.amount.currency().code());
    let stored = row.money();
    let (kind, amount, currency) = &committed;
    if stored != (*kind, amount.as_str(), *currency) {
        tracing::error!(
            target: EVIDENCE,
            transaction = %Key::transaction(key),
            ?stored,
            ?committed,
            "The journal contradicts the row of the transaction"
        );
    }
}

/// Returns the position of the account row in the batch.
fn account_position(commit: &AccountCommit) -> usize {
    commit.decided.len()
}

/// Builds the batch. The service reports the first row whose guard fails, so the account follows the transactions. A
/// redelivered or repeated transaction is then recognized even if the account changed too.
fn to_batch(commit: &AccountCommit) -> Batch {
    let account = commit.account();
    let mut batch = Batch::new(partition(account));
    for decided in &commit.decided {
        let key = Key::transaction(decided.key());
        match &decided.pending.row {
            Row::Stored(revision) => {
                let row = FinalRow::of(&decided.outcome, decided.pending.delivered, commit.nonce);
                batch.merge(&key, &row, revision);
            }
            Row::Absent => batch.insert(&key, &InsertedRow::of(decided, commit.nonce)),
        }
    }
    batch.merge(&Key::account(account), &account_row::commit(&commit.after), &commit.guard);
    batch.insert(&Key::page(&commit.page), &page_row::write(&commit.page));
    batch
}

/// Panics if the commit violates its invariants, so that an inconsistent commit is never written.
fn check(commit: &AccountCommit) {
    let count = commit.outcomes().count();
    assert!((1..=PAGE_ENTRIES_MAX).contains(&count), "a commit of {count} transactions");
    let keys: BTreeSet<_> = commit.outcomes().map(|(key, _)| key).collect();
    assert!(keys.len() == count, "a commit contains a key twice");
    assert!(keys.iter().all(|key| key.account == commit.account()), "a commit contains another account");
    let posted =
        commit.outcomes().filter(|(_, outcome)| outcome.status() == TransactionStatus::Posted).count();
    assert!(posted == commit.numbers_used(), "the journal page does not match the posted transactions");
    assert!(commit.lists_rejections(), "the journal page does not list the decisions");
}
