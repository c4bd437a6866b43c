//! The processing worker posts the chunks listed in the manifest of the batch, and reports their outcomes.

use std::collections::BTreeMap;

use super::blobs::Blob;
use super::items::{self};
use super::messages::{self, ChunkOutcome, Named};
use super::{BatchFault, Batches, load};
use crate::domain::account::Versioned;
use crate::domain::batch::{Batch, BatchKey, Item, Manifest, OperationCounts, Phase, Totals};
use crate::ports::operations::metered;
use crate::posting::PostFault;

impl Batches {
    /// Posts chunks of a batch. Skips chunks that are counted already or must wait for another chunk, and all chunks if
    /// the batch is stopped. Can be repeated at any time. If the gate is held meanwhile, the current and the remaining
    /// chunks are sent again as one message, which waits in its queue.
    ///
    /// # Errors
    /// [`BatchFault`]; some of the items may be posted.
    pub async fn process(&self, Named { key, chunks, ends_stop: _ }: &Named) -> Result<(), BatchFault> {
        for (done, chunk) in chunks.iter().enumerate() {
            let processed = match self.poster.may_post() {
                // The record is read again for each chunk, because another worker may have posted it meanwhile.
                true => self.process_chunk(key, *chunk).await,
                false => Err(PostFault::GateHeld.into()),
            };
            match processed {
                Err(BatchFault::Post(PostFault::GateHeld)) => {
                    let left = chunks.get(done..).unwrap_or_default().to_vec();
                    let queue = messages::post_queue(*chunk, self.queue_count);
                    return self.send(queue, &Named::of(key.clone(), left)).await;
                }
                Err(BatchFault::Lost(blob)) => {
                    self.lost_unless(key, blob, |batch| is_counted(batch, *chunk)).await?;
                }
                result => result?,
            }
        }
        Ok(())
    }

    async fn process_chunk(&self, key: &BatchKey, chunk: u32) -> Result<(), BatchFault> {
        let Some(Versioned { value: batch, .. }) = self.records.find(key).await? else { return Ok(()) };
        let Phase::Posting { manifest, .. } = &batch.phase else { return Ok(()) };
        let entries = self.manifests.read(&batch, manifest).await?;
        let Some(entry) = usize::try_from(chunk).ok().and_then(|at| entries.get(at)) else { return Ok(()) };
        let may_be_posted = entry.after.is_none_or(|after| is_counted(&batch, after));
        if is_counted(&batch, chunk) || !may_be_posted || batch.stop().is_some() {
            return Ok(());
        }
        let posting = metered(async {
            let blob = Blob::Chunk(manifest.split, chunk);
            let items = load(&self.blobs(&batch), blob, entry.digest()).await?;
            self.post_chunk(&batch, manifest, chunk, items).await
        });
        let (posted, operations) = posting.await;
        let outcome = ChunkOutcome { operations, ..posted? };
        self.send_body(messages::count_queue(), &outcome.encode(&self.seal)).await
    }

    /// Posts the items of a chunk, stores their results, and returns its outcome.
    async fn post_chunk(
        &self,
        batch: &Batch,
        manifest: &Manifest,
        chunk: u32,
        items: Vec<Item>,
    ) -> Result<ChunkOutcome, BatchFault> {
        let money = |item: &Item| (item.line, (item.instruction.kind, item.instruction.amount));
        let money: BTreeMap<u32, _> = items.iter().map(money).collect();
        let results = self.poster.post(&batch.key, batch.received_at, items).await?;
        let mut totals = Totals::default();
        for result in &results {
            if let Some((kind, amount)) = money.get(&result.line) {
                totals.record(result.status, *kind, *amount);
            }
        }
        // A controller does not count an outcome without a seal.
        self.seal.ready(&*self.world).await;
        if !self.seal.can_verify() {
            return Err(BatchFault::NoSecret);
        }
        let (key, split) = (batch.key.clone(), manifest.split);
        let results = self.blobs(batch).put(Blob::Outcome(split, chunk), &items::encode(&results)).await?;
        Ok(ChunkOutcome { key, split, chunk, results, totals, operations: OperationCounts::default() })
    }
}

fn is_counted(batch: &Batch, chunk: u32) -> bool {
    match &batch.phase {
        Phase::Posting { progress, .. } => progress.outcomes.contains_key(&chunk),
        Phase::Completed { .. } => true,
        Phase::Received | Phase::Splitting | Phase::Cancelled { .. } => false,
    }
}
