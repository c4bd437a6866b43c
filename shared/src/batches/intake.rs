//! Receives documents, and answers questions about batches.

use std::time::Duration;

use super::blobs::{Blob, Blobs};
use super::document::Part;
use super::{BatchFault, Batches};
use crate::domain::account::Versioned;
use crate::domain::batch::{Batch, BatchKey, Digest, NotAllowed, Phase};
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::Swapped;
use crate::ports::world::WorldExt as _;

/// Delays between two reads of a batch that a client waits for.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_LONGEST: Duration = Duration::from_secs(2);

/// Result of submitting a batch.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// The batch is stored.
    New(Batch),
    /// A batch with this id and this content exists. The parts of this upload are not used.
    Existing(Batch),
    /// A batch with this id and another content exists.
    KeyReused,
}

/// Result of cancelling a batch.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// The batch is cancelled, now or before.
    Done(Batch),
    /// The batch is posting or completed.
    TooLate(Batch),
    /// There is no batch with this id.
    Unknown,
}

/// The parts of a document that is arriving.
pub struct Upload {
    /// Names the parts.
    pub id: uuid::Uuid,
    blobs: Blobs,
    stored: Vec<(Blob, Digest)>,
}

impl Upload {
    /// Stores a part.
    ///
    /// # Errors
    /// [`StoreFault`]; the upload has to be abandoned.
    pub async fn put(&mut self, part: &Part) -> Result<(), StoreFault> {
        let digest = self.blobs.put(part.blob, &part.body).await?;
        self.stored.push((part.blob, digest));
        Ok(())
    }

    /// Removes the parts, which no batch refers to. What remains is swept.
    pub async fn abandon(self) {
        self.blobs.remove_all(self.stored).await;
    }
}

impl Batches {
    /// Starts the upload of a document.
    pub fn upload(&self, key: &BatchKey) -> Upload {
        let id = self.world.uuid();
        Upload { id, blobs: Blobs::new(std::sync::Arc::clone(&self.payloads), key, id), stored: Vec::new() }
    }

    /// Inserts the record of a batch whose parts are stored, and asks an initiator to split it. With the same content,
    /// a repetition has no effect.
    ///
    /// # Errors
    /// [`BatchFault`]: the batch may exist, and may be posted. A repetition is safe.
    pub async fn submit(&self, batch: Batch) -> Result<Submitted, BatchFault> {
        // First: a batch that is not in this list could be forgotten.
        self.records.open(&batch.key, self.world.now()).await?;
        let not_known = match self.records.save(&batch, None).await {
            Ok(Swapped::Done(_)) => None,
            // Also if the request was repeated on its way: then the first one may have inserted the record.
            Ok(Swapped::Conflict) => Some(BatchFault::Contended),
            Err(fault) if fault.is_transient() => Some(fault.into()),
            Err(fault) => return Err(fault.into()),
        };
        let inserted = match not_known {
            None => true,
            // If there is no record, it may still be inserted.
            Some(fault) => {
                let found = self.records.find(&batch.key).await?.ok_or(fault)?;
                found.value.document.upload == batch.document.upload
            }
        };
        if inserted {
            self.ask_initiator(&batch.key).await?;
            return Ok(Submitted::New(batch));
        }
        self.repeat(&batch).await
    }

    /// Compares a repeated document with the batch that exists.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn repeat(&self, batch: &Batch) -> Result<Submitted, BatchFault> {
        let Some(existing) = self.records.find(&batch.key).await? else {
            return Err(BatchFault::Contended);
        };
        self.same_or_reused(batch, existing).await
    }

    async fn same_or_reused(
        &self,
        batch: &Batch,
        Versioned { value: existing, .. }: Versioned<Batch>,
    ) -> Result<Submitted, BatchFault> {
        match existing.phase {
            // The process that received it may have ended before it asked.
            Phase::Received => self.ask_initiator(&batch.key).await?,
            Phase::Splitting | Phase::Posting { .. } if existing.hindrance.is_some() => {
                self.ask_initiator(&batch.key).await?;
            }
            Phase::Splitting | Phase::Posting { .. } => {}
            Phase::Completed { .. } | Phase::Cancelled { .. } => self.records.close(&batch.key).await?,
        }
        let is_same = existing.document.content == batch.document.content;
        Ok(if is_same { Submitted::Existing(existing) } else { Submitted::KeyReused })
    }

    /// Reads a batch. If a time to wait is given, waits for the end of the batch at most that long.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn find(&self, key: &BatchKey, wait: Option<Duration>) -> Result<Option<Batch>, StoreFault> {
        let until = self.world.uptime().saturating_add(wait.unwrap_or_default());
        let mut delay = WAIT_FIRST;
        loop {
            let Some(found) = self.records.find(key).await? else { return Ok(None) };
            let left = until.saturating_sub(self.world.uptime());
            if found.value.phase.is_final() || left.is_zero() {
                return Ok(Some(found.value));
            }
            self.world.sleep(delay.min(left)).await;
            delay = delay.saturating_mul(2).min(WAIT_LONGEST);
        }
    }

    /// Cancels a batch of which nothing is posted.
    ///
    /// # Errors
    /// [`BatchFault`]: it may be cancelled.
    pub async fn cancel(&self, key: &BatchKey) -> Result<Cancelled, BatchFault> {
        let now = self.world.now();
        let cancel = |batch: Batch| match batch.cancel(now) {
            Ok(cancelled) => Ok(Some(cancelled)),
            Err(NotAllowed::Phase(_)) => Ok(None),
            Err(other) => Err(other),
        };
        let Some(batch) = self.change(key, cancel).await? else { return Ok(Cancelled::Unknown) };
        match batch.phase {
            Phase::Cancelled { .. } => {
                self.records.close(key).await?;
                Ok(Cancelled::Done(batch))
            }
            Phase::Received | Phase::Splitting | Phase::Posting { .. } | Phase::Completed { .. } => {
                Ok(Cancelled::TooLate(batch))
            }
        }
    }
}
