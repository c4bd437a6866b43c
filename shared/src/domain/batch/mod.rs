//! A batch: many instructions of one partner in one document. This module contains the record of a batch and its
//! transitions. Each transition is stored by compare-and-swap, so that it happens once, however many processes attempt it.
//!
//! ```text
//! received ──▶ splitting ──▶ posting ──▶ completed
//!     └────────────┴──▶ cancelled
//! ```
//!
//! The record contains the digests of all other stored data of the batch: the list of the document's parts, the
//! manifest, which lists the chunks, and the results of each chunk. Data that this batch did not write is therefore
//! never used for it, even if others can write to the payload store.

mod hindrance;
mod item;
mod tally;

use std::collections::BTreeMap;

use uuid::Uuid;

pub use self::hindrance::{Hindrance, HindranceReason};
pub use self::item::{Item, ItemOutcome, ItemResult};
pub use self::tally::{Flow, ItemStatus, OperationCounts, Tally, Totals};
use super::ids::{BatchId, PartnerId};
use super::time::Timestamp;

/// Largest number of items of a batch.
pub const ITEMS_MAX: u32 = 1_000_000;

/// Identifies a batch. Ids of different partners never conflict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchKey {
    /// The partner that sent it.
    pub partner: PartnerId,
    /// The partner's id of the batch.
    pub batch: BatchId,
}

impl std::fmt::Display for BatchKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.partner, self.batch)
    }
}

/// SHA-256 of stored data of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Digest({})", hex::encode(self.0))
    }
}

/// The treatment of documents with items that are invalid in form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnInvalid {
    /// The whole batch is refused.
    Refuse,
    /// The valid items are posted, and the results report the invalid ones.
    Skip,
}

impl OnInvalid {
    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Skip => "skip",
        }
    }

    /// Returns the policy with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Refuse, Self::Skip].into_iter().find(|it| it.code() == code)
    }
}

/// The received document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Identifies the stored parts. Each upload has its own id, so that concurrent uploads of a batch do not mix.
    pub upload: Uuid,
    /// The digest of the stored list of parts.
    pub parts: Digest,
    /// The digest of the items in order, independent of the format. Documents with the same digest are the same batch.
    pub content: Digest,
    /// The items that are valid in form.
    pub valid: Tally,
    /// Number of items that are invalid in form.
    pub invalid: u64,
}

impl Document {
    /// Returns the number of all items, valid or not.
    pub const fn items(&self) -> u64 {
        self.valid.count.saturating_add(self.invalid)
    }
}

/// The chunks into which an initiator split a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Identifies the stored chunks. Each initiator has its own id, so that chunks of concurrent initiators do not mix.
    pub split: Uuid,
    /// The digest of the stored list of chunks.
    pub digest: Digest,
    /// Number of chunks.
    pub chunks: u32,
}

/// The chunks of a manifest that have been counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The digest of the stored results of each counted chunk, by its number.
    pub outcomes: BTreeMap<u32, Digest>,
    /// The outcome of the items in these chunks.
    pub totals: Totals,
}

/// The phase of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The document is stored; no initiator has begun to split it.
    Received,
    /// An initiator splits the document into chunks.
    Splitting,
    /// The chunks of the manifest, and only these, are posted.
    Posting {
        /// The list of all chunks.
        manifest: Manifest,
        /// The chunks that have been counted.
        progress: Progress,
        /// The time when posting began.
        since: Timestamp,
    },
    /// Every item is final, and the results can be read.
    Completed {
        /// The outcome of all items.
        totals: Totals,
        /// The digest of the stored list of result pages.
        results: Digest,
        /// The time of the completion.
        at: Timestamp,
    },
    /// The partner cancelled the batch before any item was posted.
    Cancelled {
        /// The time of the cancellation.
        at: Timestamp,
    },
}

impl Phase {
    /// The codes of all phases.
    pub const CODES: [&str; 5] = ["received", "splitting", "posting", "completed", "cancelled"];

    /// Returns the stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Splitting => "splitting",
            Self::Posting { .. } => "posting",
            Self::Completed { .. } => "completed",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Returns whether no other phase can follow.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Received | Self::Splitting | Self::Posting { .. } => false,
            Self::Completed { .. } | Self::Cancelled { .. } => true,
        }
    }

    /// Returns the outcome of the items that have been counted.
    pub fn totals(&self) -> Totals {
        match self {
            Self::Received | Self::Splitting | Self::Cancelled { .. } => Totals::default(),
            Self::Posting { progress, .. } => progress.totals.clone(),
            Self::Completed { totals, .. } => totals.clone(),
        }
    }
}

/// The record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The partner and its id of the batch.
    pub key: BatchKey,
    /// The treatment of items that are invalid in form.
    pub on_invalid: OnInvalid,
    /// The received document.
    pub document: Document,
    /// The time when the document was stored.
    pub received_at: Timestamp,
    /// The current phase.
    pub phase: Phase,
    /// The current obstacle; removed by the next progress.
    pub hindrance: Option<Hindrance>,
    /// The storage operations of all steps so far. A repeated step counts once.
    pub operations: OperationCounts,
}

/// A change that the phase of a batch does not allow. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PhaseError {
    /// The batch is in another phase.
    #[error("the batch is {0}")]
    Phase(&'static str),
    /// The manifest has no chunk with this number.
    #[error("the manifest has no chunk {0}")]
    NoSuchChunk(u32),
    /// Some chunks have not been counted.
    #[error("the outcome of {0} chunks is missing")]
    Missing(u32),
    /// The totals of the counted items differ from those of the document.
    #[error("the totals of the items are not those of the document")]
    Unbalanced,
}

impl Batch {
    /// Returns the id of the stop if the batch is stopped ([`Hindrance::stop`]).
    pub fn stop(&self) -> Option<Uuid> {
        self.hindrance.as_ref().and_then(|hindrance| hindrance.stop)
    }

    /// Creates the record of a batch whose document is stored.
    pub const fn received(
        key: BatchKey,
        on_invalid: OnInvalid,
        document: Document,
        received_at: Timestamp,
        operations: OperationCounts,
    ) -> Self {
        let (phase, hindrance) = (Phase::Received, None);
        Self { key, on_invalid, document, received_at, phase, hindrance, operations }
    }

    /// Begins to split the document. Splitting can begin again, because an earlier initiator may have ended.
    ///
    /// # Errors
    /// [`PhaseError`] in a later phase.
    pub fn split(self) -> Result<Self, PhaseError> {
        match self.phase {
            Phase::Received | Phase::Splitting => Ok(self.in_phase(Phase::Splitting)),
            Phase::Posting { .. } | Phase::Completed { .. } | Phase::Cancelled { .. } => self.refuse(),
        }
    }

    /// Begins to post the chunks of a manifest. From now on the batch cannot be cancelled.
    ///
    /// # Errors
    /// [`PhaseError`] if the batch is not being split, for example because another manifest is already being posted.
    pub fn post(
        mut self,
        manifest: Manifest,
        since: Timestamp,
        operations: &OperationCounts,
    ) -> Result<Self, PhaseError> {
        match self.phase {
            Phase::Splitting => {
                self.operations.merge(operations);
                Ok(self.in_phase(Phase::Posting { manifest, progress: Progress::default(), since }))
            }
            Phase::Received | Phase::Posting { .. } | Phase::Completed { .. } | Phase::Cancelled { .. } => {
                self.refuse()
            }
        }
    }

    /// Cancels a batch before its manifest is stored.
    ///
    /// # Errors
    /// [`PhaseError`] in a later phase.
    pub fn cancel(self, at: Timestamp) -> Result<Self, PhaseError> {
        match self.phase {
            Phase::Received | Phase::Splitting => Ok(self.in_phase(Phase::Cancelled { at })),
            Phase::Posting { .. } | Phase::Completed { .. } | Phase::Cancelled { .. } => self.refuse(),
        }
    }

    /// Adds the outcome of a chunk to the totals, once. Returns false and changes nothing if the chunk has been counted before.
    ///
    /// # Errors
    /// [`PhaseError`] if the batch is neither being posted nor completed, or its manifest has no such chunk.
    pub fn count(
        &mut self,
        chunk: u32,
        results: Digest,
        outcome: &Totals,
        operations: &OperationCounts,
    ) -> Result<bool, PhaseError> {
        let Phase::Posting { manifest, progress: Progress { outcomes, totals }, .. } = &mut self.phase else {
            return match self.phase {
                // A completed batch has counted every chunk.
                Phase::Completed { .. } => Ok(false),
                Phase::Received | Phase::Splitting | Phase::Posting { .. } | Phase::Cancelled { .. } => {
                    self.refuse()
                }
            };
        };
        if chunk >= manifest.chunks {
            return Err(PhaseError::NoSuchChunk(chunk));
        }
        if outcomes.contains_key(&chunk) {
            return Ok(false);
        }
        outcomes.insert(chunk, results);
        totals.add(outcome);
        self.operations.merge(operations);
        self.hindrance = None;
        Ok(true)
    }

    /// Completes a batch whose chunks have all been counted and whose results are stored.
    ///
    /// # Errors
    /// [`PhaseError`] if the batch is not being posted, a chunk is missing, or the totals differ from the document.
    pub fn complete(
        mut self,
        results: Digest,
        at: Timestamp,
        operations: &OperationCounts,
    ) -> Result<Self, PhaseError> {
        let Phase::Posting { manifest, progress: Progress { outcomes, totals }, .. } = &self.phase else {
            return self.refuse();
        };
        let counted = u32::try_from(outcomes.len()).unwrap_or(u32::MAX);
        match manifest.chunks.saturating_sub(counted) {
            0 if totals.sum() == self.document.valid => {
                let totals = totals.clone();
                self.operations.merge(operations);
                Ok(self.in_phase(Phase::Completed { totals, results, at }))
            }
            0 => Err(PhaseError::Unbalanced),
            missing => Err(PhaseError::Missing(missing)),
        }
    }

    fn in_phase(self, phase: Phase) -> Self {
        Self { phase, hindrance: None, ..self }
    }

    fn refuse<T>(&self) -> Result<T, PhaseError> {
        Err(PhaseError::Phase(self.phase.code()))
    }
}

#[cfg(test)]
mod tests;
