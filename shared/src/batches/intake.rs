//! Receives documents, and reads, awaits and cancels batches.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::{BoxFuture, select};
use futures::stream::FuturesOrdered;

use super::blobs::{Blob, Blobs, digest_of};
use super::document::{Part, PartEntry, Summary};
use super::{BatchFault, Batches, items};
use crate::domain::account::Versioned;
use crate::domain::batch::{Batch, BatchKey, Digest, Document, Phase, PhaseError};
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::Swapped;
use crate::ports::world::WorldExt as _;

/// Number of parts of an upload that are compressed and stored concurrently, with at most 768 KiB of memory each.
const PARTS_AT_ONCE: usize = 4;

/// First and maximum delay between two reads of a batch that a client waits for.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_LONGEST: Duration = Duration::from_secs(2);

/// Result of submitting a batch.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// The batch is stored.
    New(Batch),
    /// A batch with this id and content exists. The parts of this upload are not used.
    Existing(Batch),
    /// A batch with this id but different content exists.
    KeyReused,
}

/// Result of cancelling a batch.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// The batch is cancelled, by this call or before.
    Done(Batch),
    /// The batch is posting or completed.
    TooLate(Batch),
    /// There is no batch with this id.
    Unknown,
}

/// The parts of a document that is being received. Parts are compressed and stored while later ones arrive.
pub struct Upload {
    /// Part of the names of the bodies.
    id: uuid::Uuid,
    batches: Batches,
    blobs: Blobs,
    started: u32,
    storing: FuturesOrdered<BoxFuture<'static, Result<PartEntry, StoreFault>>>,
    stored: Vec<PartEntry>,
    /// The list of the parts, once it may be stored.
    list: Option<(Blob, Digest)>,
}

impl Upload {
    /// Starts to store a part.
    ///
    /// # Errors
    /// [`StoreFault`] of this part or an earlier one. The upload must be abandoned.
    pub async fn put(&mut self, Part { partition, raw }: Part) -> Result<(), StoreFault> {
        if self.storing.len() >= PARTS_AT_ONCE {
            self.one_stored().await?;
        }
        let (blobs, number) = (self.blobs.clone(), self.started);
        self.started = number.saturating_add(1);
        self.storing.push_back(self.batches.start(async move {
            let raw_bytes = u32::try_from(raw.len()).unwrap_or(u32::MAX);
            let digest = blobs.put(Blob::Part(number), &items::compress(&raw)).await?.0;
            Ok(PartEntry { partition, digest, raw_bytes })
        }));
        Ok(())
    }

    /// Waits until the oldest pending part is stored. Returns `false` if no part is pending.
    async fn one_stored(&mut self) -> Result<bool, StoreFault> {
        let Some(entry) = self.storing.try_next().await? else { return Ok(false) };
        self.stored.push(entry);
        Ok(true)
    }

    /// Waits until all parts are stored, stores their list, and returns the document.
    ///
    /// # Errors
    /// [`StoreFault`]; the upload must be abandoned.
    pub async fn finish(&mut self, summary: Summary) -> Result<Document, StoreFault> {
        while self.one_stored().await? {}
        let list = items::encode(&self.stored);
        let parts = digest_of(&list);
        self.list = Some((Blob::Parts, parts));
        self.blobs.put(Blob::Parts, &list).await?;
        let Summary { content, valid, invalid } = summary;
        Ok(Document { upload: self.id, parts, content, valid, invalid })
    }

    /// Removes the parts, to which no batch refers. The sweep removes any that remain.
    pub async fn abandon(mut self) {
        while self.one_stored().await.unwrap_or(true) {}
        let parts = (0..).zip(&self.stored).map(|(number, part)| (Blob::Part(number), part.digest()));
        self.blobs.remove_all(parts.chain(self.list).collect()).await;
    }
}

impl Batches {
    /// Starts the upload of a document.
    pub fn upload(&self, key: &BatchKey) -> Upload {
        let id = self.world.uuid();
        Upload {
            id,
            batches: self.clone(),
            blobs: Blobs::new(Arc::clone(&self.payloads), key, id),
            started: 0,
            storing: FuturesOrdered::new(),
            stored: Vec::new(),
            list: None,
        }
    }

    /// Inserts the record of a batch whose parts are stored, and sends the batch to an initiator. Repeating the call
    /// with the same content has no further effect.
    ///
    /// # Errors
    /// [`BatchFault`]; the batch may exist, and may be posted. A repetition is safe.
    pub async fn submit(&self, batch: Batch) -> Result<Submitted, BatchFault> {
        // Done first, because a batch that is missing in this list could be forgotten.
        self.records.open(&batch.key, self.world.now()).await?;
        self.standing.check("storing a batch")?;
        let not_known = match self.records.save(&batch, None).await {
            Ok(Swapped::Done(_)) => None,
            // May also follow a repetition of this request in transit: the first copy may have inserted the record.
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
        self.repeat(&batch.key, batch.document.content).await
    }

    /// Compares a repeated document with the existing batch.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn repeat(&self, key: &BatchKey, content: Digest) -> Result<Submitted, BatchFault> {
        let Some(Versioned { value: existing, .. }) = self.records.find(key).await? else {
            return Err(BatchFault::Contended);
        };
        match existing.phase {
            // The process that received the batch may have crashed before it sent this message.
            Phase::Received => self.ask_initiator(key).await?,
            Phase::Splitting | Phase::Posting { .. } if existing.hindrance.is_some() => {
                self.ask_initiator(key).await?;
            }
            Phase::Splitting | Phase::Posting { .. } => {}
            Phase::Completed { .. } | Phase::Cancelled { .. } => self.records.close(key).await?,
        }
        let is_same = existing.document.content == content;
        Ok(if is_same { Submitted::Existing(existing) } else { Submitted::KeyReused })
    }

    /// Reads a batch. With a wait time, waits at most that long for the batch to end, or until the process drains. An
    /// end recorded by this process is noticed immediately.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn find(&self, key: &BatchKey, wait: Option<Duration>) -> Result<Option<Batch>, StoreFault> {
        let until = self.world.uptime().saturating_add(wait.unwrap_or_default());
        let completions = self.poster.completions();
        let mut delay = WAIT_FIRST;
        loop {
            // Registered before the read, because the batch can end right after it.
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let Some(found) = self.records.find(key).await? else { return Ok(None) };
            let left = until.saturating_sub(self.world.uptime());
            if found.value.phase.is_final() || left.is_zero() || completions.waits_are_over() {
                return Ok(Some(found.value));
            }
            let over = std::pin::pin!(completions.until_waits_are_over());
            select(ended, select(over, self.world.sleep(delay.min(left)))).await;
            delay = delay.saturating_mul(2).min(WAIT_LONGEST);
        }
    }

    /// Cancels a batch of which nothing is posted yet.
    ///
    /// # Errors
    /// [`BatchFault`]; the batch may have been cancelled.
    pub async fn cancel(&self, key: &BatchKey) -> Result<Cancelled, BatchFault> {
        let now = self.world.now();
        let cancel = |batch: Batch| match batch.cancel(now) {
            Ok(cancelled) => Ok(Some(cancelled)),
            Err(PhaseError::Phase(_)) => Ok(None),
            Err(other) => Err(other),
        };
        let Some(batch) = self.change(key, cancel).await? else { return Ok(Cancelled::Unknown) };
        match batch.phase {
            Phase::Cancelled { .. } => {
                self.ended.notify_waiters();
                self.records.close(key).await?;
                Ok(Cancelled::Done(batch))
            }
            Phase::Received | Phase::Splitting | Phase::Posting { .. } | Phase::Completed { .. } => {
                Ok(Cancelled::TooLate(batch))
            }
        }
    }
}
