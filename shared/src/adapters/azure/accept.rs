//! Half one of the protocol: each transaction is inserted under its key, and the insert is the
//! idempotency check.
//!
//! A group is one batch. A batch that meets a taken key fails as a whole without saying which, so it
//! is cut in two until the taken keys stand alone; those are read back. An insert whose answer was
//! lost is read back as well and recognised by its nonce. Not finding it proves nothing, because it
//! may still land: then it is sent again, and the key keeps it from landing twice.

use std::collections::BTreeSet;

use futures::future::{BoxFuture, FutureExt as _};
use futures::{StreamExt as _, TryStreamExt as _};

use super::attempt::{Failure, Nonsense, Patience};
use super::batch::{BATCH_ROWS_MAX, Batch};
use super::keys::{Key, partition};
use super::ledger::AzureLedger;
use super::transaction_row::{AcceptedRow, TransactionRow};
use crate::domain::account::Revision;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{AcceptOutcome, NewTransaction};

const DOING: &str = "accepting transactions";

/// Groups up to this size are cut in two one half after the other, larger ones both halves at once:
/// soon enough, and never more than a few connections for one caller.
const ONE_AFTER_THE_OTHER_MAX: usize = 12;
/// Rows that are read back at the same time.
const READS_AT_ONCE: usize = 8;

impl AzureLedger {
    pub(super) async fn accept_group(
        &self,
        group: &[NewTransaction],
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        check(group);
        self.insert_group(group, Patience::new(&self.world)).await
    }

    fn insert_group<'a>(
        &'a self,
        group: &'a [NewTransaction],
        patience: Patience,
    ) -> BoxFuture<'a, Result<Vec<AcceptOutcome>, StoreFault>> {
        async move {
            match group {
                [] => Ok(Vec::new()),
                [single] => self.insert_single(single, patience).await.map(|outcome| vec![outcome]),
                [_, _, ..] => self.insert_batch(group, patience).await,
            }
        }
        .boxed()
    }

    async fn insert_single(
        &self,
        new: &NewTransaction,
        mut patience: Patience,
    ) -> Result<AcceptOutcome, StoreFault> {
        let key = Key::transaction(&new.key);
        let row = AcceptedRow::of(new);
        loop {
            let failure = match self.table.insert(&key, &row).await {
                Ok(revision) => return Ok(inserted(revision)),
                Err(failure) => failure,
            };
            // A taken key may be taken by this very insert, if an earlier answer was lost.
            if failure.is_unclear() || failure.has_status(409) {
                if let Some(outcome) = self.read_back(new, &mut patience).await? {
                    return Ok(outcome);
                }
            } else if matches!(failure, Failure::Answered(_)) {
                return Err(failure.into_fault(DOING));
            }
            if !patience.again().await {
                return Err(failure.into_fault(DOING));
            }
        }
    }

    async fn insert_batch(
        &self,
        group: &[NewTransaction],
        mut patience: Patience,
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        let batch = to_batch(group);
        let mut unclear = false;
        loop {
            let failure = match self.table.send_inserts(&batch).await {
                Ok(revisions) => return self.inserted_all(group, revisions, patience).await,
                Err(failure) => failure,
            };
            if failure.has_status(409) {
                return if unclear {
                    self.sort_out(group, patience).await
                } else {
                    self.cut_in_two(group, patience).await
                };
            }
            if failure.is_unclear() {
                unclear = true;
                if self.has_landed(group, &mut patience).await? {
                    return self.sort_out(group, patience).await;
                }
            } else if matches!(failure, Failure::Answered(_)) {
                return Err(failure.into_fault(DOING));
            }
            if !patience.again().await {
                return Err(failure.into_fault(DOING));
            }
        }
    }

    /// The outcomes of a batch that was written.
    async fn inserted_all(
        &self,
        group: &[NewTransaction],
        revisions: Vec<Option<Revision>>,
        patience: Patience,
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        if let Some(revisions) = revisions.into_iter().collect::<Option<Vec<Revision>>>() {
            return Ok(revisions.into_iter().map(inserted).collect());
        }
        // The service told no ETags; the rows know them.
        self.sort_out(group, patience).await
    }

    async fn cut_in_two(
        &self,
        group: &[NewTransaction],
        patience: Patience,
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        let (left, right) = group.split_at(group.len().div_ceil(2));
        let left = self.insert_group(left, patience.clone());
        let right = self.insert_group(right, patience);
        let (mut outcomes, others) = if group.len() > ONE_AFTER_THE_OTHER_MAX {
            futures::try_join!(left, right)?
        } else {
            (left.await?, right.await?)
        };
        outcomes.extend(others);
        Ok(outcomes)
    }

    /// Whether a batch without an answer was written: it is written whole, so one row tells.
    async fn has_landed(
        &self,
        group: &[NewTransaction],
        patience: &mut Patience,
    ) -> Result<bool, StoreFault> {
        let Some(first) = group.first() else { return Ok(false) };
        let Some(found) = self.read(&Key::transaction(&first.key), patience, DOING).await? else {
            return Ok(false);
        };
        let row = TransactionRow::parse(&found, DOING)?;
        Ok(row.was_accepted_by(first.nonce))
    }

    /// Reads back every row of a group that is written at least in part, by whomever, and inserts
    /// what is missing.
    async fn sort_out(
        &self,
        group: &[NewTransaction],
        patience: Patience,
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        let reads: Vec<_> = group
            .iter()
            .map(|new| {
                let mut patience = patience.clone();
                async move { self.read_back(new, &mut patience).await }
            })
            .collect();
        let mut outcomes: Vec<Option<AcceptOutcome>> =
            futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        let missing: Vec<NewTransaction> = group
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| outcome.is_none())
            .map(|(new, _)| new.clone())
            .collect();
        if missing.len() == group.len() {
            // What was refused as taken is not there: the store contradicts itself.
            let source = Box::new(Nonsense("a conflict over rows that are not there".to_owned()));
            return Err(StoreFault::Unavailable { doing: DOING, source });
        }
        let mut rest = self.insert_group(&missing, patience).await?.into_iter();
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_none()) {
            *outcome = rest.next();
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.expect("each row has its outcome")).collect())
    }

    /// What stands under the key; `None` when nothing does.
    async fn read_back(
        &self,
        new: &NewTransaction,
        patience: &mut Patience,
    ) -> Result<Option<AcceptOutcome>, StoreFault> {
        let Some(found) = self.read(&Key::transaction(&new.key), patience, DOING).await? else {
            return Ok(None);
        };
        let row = TransactionRow::parse(&found, DOING)?;
        let stored = row.to_stored(&found, DOING)?;
        // One's own row that somebody finished meanwhile is no work any more: a commit under the
        // revision of a final row would post it twice.
        if row.was_accepted_by(new.nonce) && !stored.transaction.status().is_final() {
            return Ok(Some(inserted(stored.revision)));
        }
        Ok(Some(AcceptOutcome::Existing(Box::new(stored))))
    }
}

const fn inserted(revision: Revision) -> AcceptOutcome {
    AcceptOutcome::Inserted { revision, enqueued: false }
}

fn to_batch(group: &[NewTransaction]) -> Batch {
    let account = group.first().expect("a batch has a transaction").key.account;
    let mut batch = Batch::new(partition(account));
    for new in group {
        batch.insert(&Key::transaction(&new.key), &AcceptedRow::of(new));
    }
    batch
}

/// Panics when the caller broke the contract of accept.
fn check(group: &[NewTransaction]) {
    assert!(group.len() <= BATCH_ROWS_MAX, "{} transactions in one group", group.len());
    let keys: BTreeSet<_> = group.iter().map(|new| &new.key).collect();
    assert!(keys.len() == group.len(), "a key stands twice in one group");
    let accounts: BTreeSet<_> = group.iter().map(|new| new.key.account).collect();
    assert!(accounts.len() <= 1, "a group is of one account");
}
