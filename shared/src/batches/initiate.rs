//! The initiator regroups the parts of a document by account into chunks, and starts to post them.
//!
//! Only the initiator that sets the phase has its chunks used: the id of its split and the digest of its manifest are
//! stored with the phase. A delayed initiator, or one that splits differently, therefore changes nothing.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use uuid::Uuid;

use super::blobs::{Blob, Blobs};
use super::chunks::{self, Chunk, ChunkEntry};
use super::document::PartEntry;
use super::items::{self};
use super::{BLOBS_AT_ONCE, BatchFault, Batches, load, messages};
use crate::domain::batch::{Batch, BatchKey, Item, Manifest, Phase, PhaseError};
use crate::ports::operations::metered;
use crate::ports::world::WorldExt as _;

/// Maximum size of the items regrouped together, in bytes before compression. A larger partition is regrouped in several
/// pieces, whose chunks are posted one after the other.
const PIECE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Number of pieces that are regrouped concurrently. Each needs about four times its size in memory.
const PIECES_AT_ONCE: usize = 2;

impl Batches {
    /// Splits a batch and sends its chunks. If it is already split, sends the uncounted chunks again. Does nothing if
    /// the batch is stopped. Can be repeated at any time.
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
                // Needed if there is no chunk because all items are invalid.
                self.complete_if_counted(&batch).await
            }
            Phase::Received | Phase::Splitting => Ok(()),
            Phase::Completed { .. } | Phase::Cancelled { .. } => Ok(self.records.close(key).await?),
        }
    }

    /// Splits a batch, unless it is cancelled or another initiator splits it first. Returns the current record.
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
            Err(PhaseError::Phase(_)) => Ok(None),
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
        // The next pieces are regrouped while chunks of earlier pieces are stored.
        let (batches, source, items_max) = (self.clone(), blobs.clone(), self.chunk_items_max);
        let regrouped = stream::iter(pieces(&parts)).map(move |piece| {
            let blobs = source.clone();
            batches.start(async move { piece.regroup(&blobs, items_max).await })
        });
        let mut regrouped = regrouped.buffered(PIECES_AT_ONCE);
        let mut entries: Vec<ChunkEntry> = Vec::new();
        while let Some(chunks) = regrouped.try_next().await? {
            let numbers = u32::try_from(entries.len()).unwrap_or(u32::MAX)..;
            let stores: Vec<_> =
                numbers.zip(chunks).map(|(number, chunk)| store(blobs, split, number, chunk)).collect();
            entries.extend(stream::iter(stores).buffered(BLOBS_AT_ONCE).try_collect::<Vec<_>>().await?);
        }
        Ok(entries)
    }

    /// Sends the batch to an initiator.
    ///
    /// # Errors
    /// [`BatchFault`]; the message may have been sent.
    pub async fn ask_initiator(&self, key: &BatchKey) -> Result<(), BatchFault> {
        let message = messages::Named::of(key.clone(), Vec::new());
        self.send(messages::split_queue(), &message).await
    }
}

/// Parts of one partition that are regrouped together.
struct Piece {
    parts: Vec<(u32, PartEntry)>,
    /// Whether its chunks are links of one chain, because other pieces contain the same accounts.
    is_chain: bool,
    /// Whether this is the first piece of its partition. Its first chunk starts the chain.
    is_first: bool,
}

/// A compressed chunk to be stored.
struct Compressed {
    /// As [`Chunk::is_link`](super::chunks::Chunk::is_link).
    is_link: bool,
    body: Vec<u8>,
}

impl Piece {
    async fn regroup(self, blobs: &Blobs, items_max: usize) -> Result<Vec<Compressed>, BatchFault> {
        let Self { parts, is_chain, is_first } = self;
        let mut items: Vec<Item> = Vec::new();
        for (number, part) in parts {
            items.append(&mut load(blobs, Blob::Part(number), part.digest()).await?);
        }
        let chunks = chunks::divide(items, items_max).into_iter().enumerate();
        let compress = |(index, chunk): (usize, Chunk)| {
            let is_next = is_chain && !(is_first && index == 0);
            Compressed { is_link: chunk.is_link || is_next, body: items::compress(&chunk.raw) }
        };
        Ok(chunks.map(compress).collect())
    }
}

async fn store(blobs: &Blobs, split: Uuid, number: u32, chunk: Compressed) -> Result<ChunkEntry, BatchFault> {
    let Compressed { is_link, body } = chunk;
    let digest = blobs.put(Blob::Chunk(split, number), &body).await?.0;
    Ok(ChunkEntry { digest, after: number.checked_sub(1).filter(|_| is_link) })
}

/// Groups the parts with valid items into pieces, partition by partition.
fn pieces(parts: &[PartEntry]) -> Vec<Piece> {
    let mut partitions: BTreeMap<u16, Vec<(u32, PartEntry)>> = BTreeMap::new();
    for (number, part) in (0..).zip(parts) {
        if let Some(partition) = part.partition {
            partitions.entry(partition).or_default().push((number, *part));
        }
    }
    let mut pieces = Vec::new();
    for partition in partitions.into_values() {
        let first = pieces.len();
        let mut size = 0_u64;
        for (number, part) in partition {
            size = size.saturating_add(part.raw_bytes.into());
            if pieces.len() == first || size > PIECE_BYTES_MAX {
                size = part.raw_bytes.into();
                pieces.push(Piece { parts: Vec::new(), is_chain: false, is_first: pieces.len() == first });
            }
            if let Some(piece) = pieces.last_mut() {
                piece.parts.push((number, part));
            }
        }
        let of_partition = pieces.get_mut(first..).unwrap_or_default();
        let is_chain = of_partition.len() > 1;
        of_partition.iter_mut().for_each(|piece| piece.is_chain = is_chain);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_partition_is_a_chain_of_pieces() {
        let part =
            |partition, megabytes: u32| PartEntry { partition, digest: [0; 32], raw_bytes: megabytes << 20 };
        let parts = [
            part(Some(2), 7),
            part(Some(1), 4),
            part(None, 8),
            part(Some(1), 4),
            part(Some(1), 1),
            part(Some(2), 1),
            part(Some(1), 8),
        ];
        let found: Vec<(Vec<u32>, bool, bool)> = pieces(&parts)
            .into_iter()
            .map(|it| (it.parts.iter().map(|part| part.0).collect(), it.is_chain, it.is_first))
            .collect();
        let expected = [
            (vec![1, 3], true, true),
            (vec![4], true, false),
            (vec![6], true, false),
            (vec![0, 5], false, true),
        ];
        assert_eq!(found, expected);
    }
}
