//! Half one of the protocol: each transaction is inserted under its key, and the insert is the
//! idempotency check.
//!
//! A group is one batch. A batch that meets a taken key fails as a whole: the taken rows are read back
//! and the others are sent as one batch again. The service names the first row that it stumbled over;
//! while few keys are taken, following that hint costs two requests for each. Where it leads on for too
//! long, or is wrong or missing, every row is read back: a hint saves requests and decides nothing.
//!
//! An insert whose answer was lost is read back as well and recognised by its nonce. Not finding it
//! proves nothing, because it may still land: then it is sent again, and the key keeps it from landing
//! twice.

use std::collections::BTreeSet;

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

/// Rows that are read back at the same time; as many rows are read rather than guessed at.
const READS_AT_ONCE: usize = 16;
/// Hints that are followed before they have to show that few keys are taken.
const HINTS_FREE: usize = 2;
/// Taken keys that are looked for by hints: their requests come one after the other.
const HINTS_MAX: usize = 12;

/// A group under way: what is known of each transaction, in the order of the group.
struct Progress<'a> {
    group: &'a [NewTransaction],
    outcomes: Vec<Option<AcceptOutcome>>,
    hints: usize,
}

impl<'a> Progress<'a> {
    fn new(group: &'a [NewTransaction]) -> Self {
        Self { group, outcomes: vec![None; group.len()], hints: 0 }
    }

    /// What is not known to be stored yet, with its place in the group.
    fn missing(&self) -> Vec<(usize, &'a NewTransaction)> {
        let places = self.group.iter().enumerate().zip(&self.outcomes);
        places.filter(|(_, outcome)| outcome.is_none()).map(|(place, _)| place).collect()
    }

    fn set(&mut self, place: usize, outcome: AcceptOutcome) {
        if let Some(slot) = self.outcomes.get_mut(place) {
            *slot = Some(outcome);
        }
    }

    /// The one row to read back after a conflict that the service saw at row `failed` of `count`;
    /// `None` when all have to be.
    fn suspect(&mut self, count: usize, failed: Option<usize>) -> Option<usize> {
        let failed = failed.filter(|failed| *failed < count)?;
        self.hints = self.hints.saturating_add(1);
        // The rows before the hint are free: as many taken ones as among them may come after it.
        let (seen, ahead) = (failed.saturating_add(self.hints), count.saturating_sub(failed));
        let expected = self.hints.saturating_mul(ahead).checked_div(seen).unwrap_or(ahead);
        let few = self.hints <= HINTS_FREE || self.hints.saturating_add(expected) <= HINTS_MAX;
        (few && count > READS_AT_ONCE).then_some(failed)
    }
}

impl AzureLedger {
    pub(super) async fn accept_group(
        &self,
        group: &[NewTransaction],
    ) -> Result<Vec<AcceptOutcome>, StoreFault> {
        check(group);
        let mut patience = Patience::new(&self.world);
        let mut progress = Progress::new(group);
        let mut before = usize::MAX;
        loop {
            let missing = progress.missing();
            // Written or taken rows that are not there: the store contradicts itself.
            if missing.len() >= before && !patience.again().await {
                let source = Box::new(Nonsense("a conflict over rows that are not there".to_owned()));
                return Err(StoreFault::Unavailable { doing: DOING, source });
            }
            before = missing.len();
            match missing.as_slice() {
                [] => break,
                [(place, single)] => {
                    let outcome = self.insert_single(single, &mut patience).await?;
                    progress.set(*place, outcome);
                }
                missing @ [_, _, ..] => self.insert_batch(missing, &mut progress, &mut patience).await?,
            }
        }
        Ok(progress.outcomes.into_iter().flatten().collect())
    }

    async fn insert_single(
        &self,
        new: &NewTransaction,
        patience: &mut Patience,
    ) -> Result<AcceptOutcome, StoreFault> {
        let key = Key::transaction(&new.key);
        let row = AcceptedRow::of(new);
        loop {
            let failure = match self.table.insert(&key, &row).await {
                Ok(revision) => return Ok(inserted(revision)),
                Err(failure) => failure,
            };
            patience.note(&failure);
            // A taken key may be taken by this very insert, if an earlier answer was lost.
            if failure.is_unclear() || failure.has_status(409) {
                if let Some(outcome) = self.read_back(new, patience).await? {
                    return Ok(outcome);
                }
            } else if matches!(failure, Failure::Answered(_)) {
                return Err(patience.fault(failure, DOING));
            }
            if !patience.again().await {
                return Err(patience.fault(failure, DOING));
            }
        }
    }

    /// One batch of what is missing, until it is written or more is known of why it cannot be.
    async fn insert_batch(
        &self,
        missing: &[(usize, &NewTransaction)],
        progress: &mut Progress<'_>,
        patience: &mut Patience,
    ) -> Result<(), StoreFault> {
        let batch = to_batch(missing);
        let mut unclear = false;
        loop {
            let failure = match self.table.send_inserts(&batch).await {
                Ok(revisions) => {
                    if let Some(revisions) = revisions.into_iter().collect::<Option<Vec<Revision>>>() {
                        for ((place, _), revision) in missing.iter().zip(revisions) {
                            progress.set(*place, inserted(revision));
                        }
                        return Ok(());
                    }
                    // The service told no ETags; the rows know them.
                    patience.note_written();
                    return self.read_all(missing, progress, patience).await;
                }
                Err(failure) => failure,
            };
            patience.note(&failure);
            if failure.has_status(409) {
                // After an answer that was lost all of it may be one's own.
                let failed = failure.failed_row().filter(|_| !unclear);
                return self.read_taken(missing, failed, progress, patience).await;
            }
            if failure.is_unclear() {
                unclear = true;
                if self.has_landed(missing, patience).await? {
                    return self.read_all(missing, progress, patience).await;
                }
            } else if matches!(failure, Failure::Answered(_)) {
                return Err(patience.fault(failure, DOING));
            }
            if !patience.again().await {
                return Err(patience.fault(failure, DOING));
            }
        }
    }

    /// After a conflict: finds out which keys are taken, or at least one of them.
    async fn read_taken(
        &self,
        missing: &[(usize, &NewTransaction)],
        failed: Option<usize>,
        progress: &mut Progress<'_>,
        patience: &mut Patience,
    ) -> Result<(), StoreFault> {
        let suspect = progress.suspect(missing.len(), failed);
        let suspects = suspect.and_then(|row| missing.get(row..=row));
        // A wrong hint finds nothing; then all are read.
        for rows in suspects.into_iter().chain([missing]) {
            if !patience.has_time() {
                let source = Box::new(Nonsense("conflicts for too long".to_owned()));
                return Err(StoreFault::Unavailable { doing: DOING, source });
            }
            self.read_all(rows, progress, patience).await?;
            if progress.missing().len() < missing.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads rows back, whoever wrote them.
    async fn read_all(
        &self,
        rows: &[(usize, &NewTransaction)],
        progress: &mut Progress<'_>,
        patience: &Patience,
    ) -> Result<(), StoreFault> {
        let reads: Vec<_> = rows
            .iter()
            .map(|(place, new)| {
                let mut patience = patience.clone();
                async move { Ok::<_, StoreFault>((*place, self.read_back(new, &mut patience).await?)) }
            })
            .collect();
        let mut reads = futures::stream::iter(reads).buffered(READS_AT_ONCE);
        while let Some((place, outcome)) = reads.try_next().await? {
            if let Some(outcome) = outcome {
                progress.set(place, outcome);
            }
        }
        Ok(())
    }

    /// Whether a batch without an answer was written: it is written whole, so one row tells.
    async fn has_landed(
        &self,
        missing: &[(usize, &NewTransaction)],
        patience: &mut Patience,
    ) -> Result<bool, StoreFault> {
        let Some((_, first)) = missing.first() else { return Ok(false) };
        let Some(found) = self.read(&Key::transaction(&first.key), patience, DOING).await? else {
            return Ok(false);
        };
        let row = TransactionRow::parse(&found, DOING)?;
        Ok(row.was_accepted_by(first.nonce))
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

fn to_batch(missing: &[(usize, &NewTransaction)]) -> Batch {
    let (_, first) = missing.first().expect("a batch has a transaction");
    let mut batch = Batch::new(partition(first.key.account));
    for (_, new) in missing {
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
