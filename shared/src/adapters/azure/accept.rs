//! First half of the protocol: inserts each transaction under its key, which makes the accept idempotent.
//!
//! A group is sent as one batch. If a key is taken, the whole batch fails. Then the taken rows are read back, and the
//! others are sent again in one batch. The service reports the index of the first row that it rejected. While few keys
//! are taken, following this hint costs two requests per taken key. After too many hints, or if a hint is wrong or
//! missing, all rows are read back. Hints only save requests; the result does not depend on them.
//!
//! If the response to an insert is lost, the row is read back and recognized by its nonce. A missing row proves
//! nothing, because the insert may still be applied. The insert is then sent again, and the key prevents a second row.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _};

use super::attempt::{RequestFault, Retries, UnexpectedResponse};
use super::batch::{BATCH_ROWS_MAX, Batch};
use super::keys::{Key, partition};
use super::ledger::AzureLedger;
use super::transaction_row::{AcceptedRow, TransactionRow};
use crate::domain::account::Revision;
use crate::domain::decision::Submission;
use crate::domain::ids::Nonce;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::AcceptOutcome;

const DOING: &str = "accepting transactions";

/// Maximum number of concurrent reads. Batches of up to this many rows are read back without following hints.
const CONCURRENT_READS_MAX: usize = 16;
/// Number of hints to follow before the number of taken keys is estimated.
const HINTS_FREE: usize = 2;
/// Maximum number of taken keys to find by hints, whose requests are sequential.
const HINTS_MAX: usize = 12;

/// Progress of a group: the known outcome of each transaction, in the order of the group.
struct Progress<'a> {
    group: &'a [Submission],
    nonce: Nonce,
    outcomes: Vec<Option<AcceptOutcome>>,
    hints: usize,
}

impl<'a> Progress<'a> {
    fn new(group: &'a [Submission], nonce: Nonce) -> Self {
        Self { group, nonce, outcomes: vec![None; group.len()], hints: 0 }
    }

    /// Returns the transactions that are not known to be stored, with their positions in the group.
    fn missing(&self) -> Vec<(usize, &'a Submission)> {
        let positions = self.group.iter().enumerate().zip(&self.outcomes);
        positions.filter(|(_, outcome)| outcome.is_none()).map(|(position, _)| position).collect()
    }

    fn set(&mut self, position: usize, outcome: AcceptOutcome) {
        if let Some(slot) = self.outcomes.get_mut(position) {
            *slot = Some(outcome);
        }
    }

    /// Returns the row to read back after a conflict at row `failed` of `count`, or `None` if all rows must be read.
    fn hinted_row(&mut self, count: usize, failed: Option<usize>) -> Option<usize> {
        let failed = failed.filter(|failed| *failed < count)?;
        self.hints = self.hints.saturating_add(1);
        // The rows before the hint are not taken. This ratio gives the expected number of taken rows after the hint.
        let (seen, ahead) = (failed.saturating_add(self.hints), count.saturating_sub(failed));
        let expected = self.hints.saturating_mul(ahead).checked_div(seen).unwrap_or(ahead);
        let few = self.hints <= HINTS_FREE || self.hints.saturating_add(expected) <= HINTS_MAX;
        (few && count > CONCURRENT_READS_MAX).then_some(failed)
    }
}

impl AzureLedger {
    pub(super) async fn accept_group(
        &self,
        group: &[Submission],
        nonce: Nonce,
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        check(group);
        let mut retries = Retries::new(&self.world);
        let mut progress = Progress::new(group, nonce);
        let mut before = usize::MAX;
        loop {
            let missing = progress.missing();
            // The service reported the rows as written or taken, but they are missing, so its responses are inconsistent.
            if missing.len() >= before && !retries.wait_for_retry().await {
                let source =
                    Box::new(UnexpectedResponse("a conflict over rows that do not exist".to_owned()));
                return Err(StoreFault::Unavailable { doing: DOING, source });
            }
            before = missing.len();
            match missing.as_slice() {
                [] => break,
                [(position, single)] => {
                    let outcome = self.insert_single(single, nonce, &mut retries).await?;
                    progress.set(*position, outcome);
                }
                missing @ [_, _, ..] => self.insert_batch(missing, &mut progress, &mut retries).await?,
            }
        }
        Ok(progress.outcomes.into_iter().flatten().collect())
    }

    async fn insert_single(
        &self,
        new: &Submission,
        nonce: Nonce,
        retries: &mut Retries,
    ) -> Result<AcceptOutcome, StoreFault> {
        let key = Key::transaction(&new.key);
        let row = AcceptedRow::of(new, nonce);
        loop {
            let failure = match self.table.insert(&key, &row).await {
                Ok(revision) => return Ok(inserted(revision)),
                Err(failure) => failure,
            };
            retries.record_failure(&failure);
            // If an earlier response was lost, this call itself may have inserted the row.
            if failure.is_unclear() || failure.has_status(409) {
                if let Some(outcome) = self.read_back(new, nonce, retries).await? {
                    return Ok(outcome);
                }
            } else if matches!(failure, RequestFault::Answered(_)) {
                return Err(retries.fault(failure, DOING));
            }
            if !retries.wait_for_retry().await {
                return Err(retries.fault(failure, DOING));
            }
        }
    }

    /// Sends the missing transactions as one batch, until it is written or the outcome of some transactions is known.
    async fn insert_batch(
        &self,
        missing: &[(usize, &Submission)],
        progress: &mut Progress<'_>,
        retries: &mut Retries,
    ) -> Result<(), StoreFault> {
        let batch = to_batch(missing, progress.nonce);
        let mut unclear = false;
        loop {
            let failure = match self.table.send_inserts(&batch).await {
                Ok(revisions) => {
                    if let Some(revisions) = revisions.into_iter().collect::<Option<Vec<Revision>>>() {
                        for ((position, _), revision) in missing.iter().zip(revisions) {
                            progress.set(*position, inserted(revision));
                        }
                        return Ok(());
                    }
                    // The response had no ETags, so they are read from the rows.
                    retries.record_write();
                    return self.read_all(missing, progress, retries).await;
                }
                Err(failure) => failure,
            };
            retries.record_failure(&failure);
            if failure.has_status(409) {
                // After a lost response, this call itself may have written the whole batch.
                let failed = failure.failed_row().filter(|_| !unclear);
                return self.read_taken(missing, failed, progress, retries).await;
            }
            if failure.is_unclear() {
                unclear = true;
                if self.was_batch_written(missing, progress.nonce, retries).await? {
                    return self.read_all(missing, progress, retries).await;
                }
            } else if matches!(failure, RequestFault::Answered(_)) {
                return Err(retries.fault(failure, DOING));
            }
            if !retries.wait_for_retry().await {
                return Err(retries.fault(failure, DOING));
            }
        }
    }

    /// Determines at least one taken key after a conflict.
    async fn read_taken(
        &self,
        missing: &[(usize, &Submission)],
        failed: Option<usize>,
        progress: &mut Progress<'_>,
        retries: &mut Retries,
    ) -> Result<(), StoreFault> {
        let hinted_row = progress.hinted_row(missing.len(), failed);
        let hinted_rows = hinted_row.and_then(|row| missing.get(row..=row));
        // If the hint is wrong, the hinted row does not exist, and all rows are read.
        for rows in hinted_rows.into_iter().chain([missing]) {
            if !retries.has_time() {
                let source = Box::new(UnexpectedResponse("repeated conflicts".to_owned()));
                return Err(StoreFault::Unavailable { doing: DOING, source });
            }
            self.read_all(rows, progress, retries).await?;
            if progress.missing().len() < missing.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads rows back, whether this call or another one wrote them.
    async fn read_all(
        &self,
        rows: &[(usize, &Submission)],
        progress: &mut Progress<'_>,
        retries: &Retries,
    ) -> Result<(), StoreFault> {
        let nonce = progress.nonce;
        let reads: Vec<_> =
            rows.iter()
                .map(|(position, new)| {
                    let mut retries = retries.clone();
                    async move {
                        Ok::<_, StoreFault>((*position, self.read_back(new, nonce, &mut retries).await?))
                    }
                })
                .collect();
        let mut reads = futures::stream::iter(reads).buffered(CONCURRENT_READS_MAX);
        while let Some((position, outcome)) = reads.try_next().await? {
            if let Some(outcome) = outcome {
                progress.set(position, outcome);
            }
        }
        Ok(())
    }

    /// Returns whether a batch without a response was written. Batches are atomic, so one row proves it.
    async fn was_batch_written(
        &self,
        missing: &[(usize, &Submission)],
        nonce: Nonce,
        retries: &mut Retries,
    ) -> Result<bool, StoreFault> {
        let Some((_, first)) = missing.first() else { return Ok(false) };
        let Some(found) = self.read(&Key::transaction(&first.key), retries, DOING).await? else {
            return Ok(false);
        };
        let row = TransactionRow::parse(&found, DOING)?;
        Ok(row.was_accepted_by(nonce))
    }

    /// Reads the row of a transaction back and returns its outcome, or `None` if the row does not exist.
    async fn read_back(
        &self,
        new: &Submission,
        nonce: Nonce,
        retries: &mut Retries,
    ) -> Result<Option<AcceptOutcome>, StoreFault> {
        let Some(found) = self.read(&Key::transaction(&new.key), retries, DOING).await? else {
            return Ok(None);
        };
        let row = TransactionRow::parse(&found, DOING)?;
        let stored = row.to_stored(&found, DOING)?;
        // A row of this call may have become final in the meantime. It is not reported as inserted, because a commit
        // with the revision of a final row would post the transaction twice.
        if row.was_accepted_by(nonce) && !stored.status().is_final() {
            return Ok(Some(inserted(stored.revision)));
        }
        Ok(Some(AcceptOutcome::Existing(Box::new(stored))))
    }
}

const fn inserted(revision: Revision) -> AcceptOutcome {
    AcceptOutcome::Inserted { revision, enqueued: false }
}

fn to_batch(missing: &[(usize, &Submission)], nonce: Nonce) -> Batch {
    let (_, first) = missing.first().expect("a batch has a transaction");
    let mut batch = Batch::new(partition(first.key.account));
    for (_, new) in missing {
        batch.insert(&Key::transaction(&new.key), &AcceptedRow::of(new, nonce));
    }
    batch
}

/// Panics if the caller violates the preconditions of `accept`.
fn check(group: &[Submission]) {
    assert!(group.len() <= BATCH_ROWS_MAX, "{} transactions in one group", group.len());
    let keys: BTreeSet<_> = group.iter().map(|new| &new.key).collect();
    assert!(keys.len() == group.len(), "a group contains a key twice");
    let accounts: BTreeSet<_> = group.iter().map(|new| new.key.account).collect();
    assert!(accounts.len() <= 1, "a group contains transactions of several accounts");
}
