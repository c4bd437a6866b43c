//! The initiator: regroups the parts of a document by account into chunks, and begins to post them.
//!
//! The chunks of an initiator are used only if it is the one that sets the phase: the names of its chunks and the
//! digest of its manifest are stored with it. An initiator that was paused, or that splits differently, changes
//! nothing.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use uuid::Uuid;

use super::blobs::{Blob, Blobs};
use super::chunks::{self, Chunk, ChunkEntry, Chunker};
use super::document::PartEntry;
use super::items::{self, Item};
use super::{BLOBS_AT_ONCE, BatchFault, Batches, load, messages};
use crate::domain::batch::{Batch, BatchKey, Manifest, NotAllowed, Phase};
use crate::ports::operations::metered;
use crate::ports::world::WorldExt as _;

/// Size of the items that are regrouped together, in bytes before compression. Larger lanes are regrouped in several
/// pieces, and their chunks are posted one after the other.
const PIECE_BYTES_MAX: u64 = 8 * 1024 * 1024;

impl Batches {
    /// Splits a batch and sends its chunks, or sends those again that are not counted, unless the batch is stopped: can
    /// be repeated at any time.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn initiate(&self, key: &BatchKey) -> Result<(), BatchFault> {
        let begin = |batch: Batch| match batch.phase {
            Phase::Received if batch.stop().is_none() => batch.split().map(Some),
            Phase::Received => Ok(None),
            Phase::Splitting | Phase::Posting { .. } | Phase::Completed { .. } | Phase::Cancelled { .. } => {
                Ok(None)
            }
        };
        let Some(mut batch) = self.change(key, begin).await? else { return Ok(()) };
        if batch.stop().is_some() {
            return Ok(());
        }
        if batch.phase == Phase::Splitting {
            batch = match self.split(&batch).await {
                Ok(Some(after)) => after,
                Ok(None) => return Ok(()),
                Err(BatchFault::Lost(blob)) => {
                    return self.lost_unless(key, blob, |batch| batch.phase.is_final()).await;
                }
                Err(fault) => return Err(fault),
            };
        }
        match &batch.phase {
            Phase::Posting { manifest, progress, .. } => {
                let chunks = self.manifests.read(&batch, manifest).await?;
                self.send_ready(key, &chunks, progress, |_| true).await?;
                // Also if there is no chunk: all items are invalid.
                self.complete_if_counted(&batch).await
            }
            Phase::Received | Phase::Splitting => Ok(()),
            Phase::Completed { .. } | Phase::Cancelled { .. } => Ok(self.records.close(key).await?),
        }
    }

    /// Splits a batch, unless it is cancelled or split by another initiator first. Returns its current record.
    async fn split(&self, batch: &Batch) -> Result<Option<Batch>, BatchFault> {
        let _memory = self.memory.acquire().await;
        let (blobs, split) = (self.blobs(batch), self.world.uuid());
        let (chunks, operations) = metered(self.store_chunks(batch, &blobs, split)).await;
        let chunks = chunks?;
        let digest = blobs.put(Blob::Manifest(split), &items::encode(&chunks)).await?;
        let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        let (manifest, now) = (Manifest { split, digest, chunks: count }, self.world.now());
        let post = |batch: Batch| match batch.post(manifest.clone(), now, &operations) {
            Ok(posting) => Ok(Some(posting)),
            Err(NotAllowed::Phase(_)) => Ok(None),
            Err(other) => Err(other),
        };
        let current = self.change(&batch.key, post).await?;
        let is_used = current.as_ref().is_some_and(|batch| match &batch.phase {
            Phase::Posting { manifest, .. } => manifest.split == split,
            Phase::Received | Phase::Splitting | Phase::Completed { .. } | Phase::Cancelled { .. } => false,
        });
        if !is_used {
            blobs.remove_all(chunks::bodies(split, &chunks).collect()).await;
        }
        Ok(current)
    }

    async fn store_chunks(
        &self,
        batch: &Batch,
        blobs: &Blobs,
        split: Uuid,
    ) -> Result<Vec<ChunkEntry>, BatchFault> {
        let parts: Vec<PartEntry> = load(blobs, Blob::Parts, batch.document.parts).await?;
        let mut lanes: BTreeMap<u16, Vec<(u32, PartEntry)>> = BTreeMap::new();
        for (number, part) in (0..).zip(parts) {
            if let Some(lane) = part.lane {
                lanes.entry(lane).or_default().push((number, part));
            }
        }
        let mut entries = Vec::new();
        for parts in lanes.into_values() {
            let bytes = parts.iter().fold(0, |all: u64, (_, part)| all.saturating_add(part.raw_bytes.into()));
            let next = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            let mut chunker = Chunker::new(next, bytes > PIECE_BYTES_MAX, self.chunk_items_max);
            let (mut items, mut size): (Vec<Item>, u64) = (Vec::new(), 0);
            let mut parts = parts.into_iter().peekable();
            while let Some((number, part)) = parts.next() {
                items.append(&mut load(blobs, Blob::Part(number), part.digest()).await?);
                size = size.saturating_add(part.raw_bytes.into());
                let more = parts.peek().map(|(_, next)| size.saturating_add(next.raw_bytes.into()));
                if more.is_none_or(|more| more > PIECE_BYTES_MAX) {
                    let chunks = chunker.add(std::mem::take(&mut items));
                    size = 0;
                    let stores = chunks.iter().map(|chunk| store(blobs, split, chunk));
                    let stored = stream::iter(stores.collect::<Vec<_>>()).buffered(BLOBS_AT_ONCE);
                    entries.extend(stored.try_collect::<Vec<ChunkEntry>>().await?);
                }
            }
        }
        Ok(entries)
    }

    /// Asks an initiator to work on a batch.
    ///
    /// # Errors
    /// [`BatchFault`]; it may have been asked.
    pub async fn ask_initiator(&self, key: &BatchKey) -> Result<(), BatchFault> {
        let message = messages::Named::of(key.clone(), Vec::new());
        self.send(messages::split_queue(), &message).await
    }
}

async fn store(blobs: &Blobs, split: Uuid, chunk: &Chunk) -> Result<ChunkEntry, BatchFault> {
    let digest = blobs.put(Blob::Chunk(split, chunk.number), &items::compress(&chunk.raw)).await?;
    Ok(ChunkEntry { digest: digest.0, after: chunk.after })
}
