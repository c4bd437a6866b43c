//! The controller counts the outcome of each chunk once, sends the chunks that waited for it, and completes the batch
//! when all chunks are counted.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::blobs::{Blob, Blobs};
use super::chunks::{self, ChunkEntry};
use super::document::PartEntry;
use super::items::{self, InvalidItem, ResultLine};
use super::messages::{self, ChunkOutcome, Named};
use super::results::{Page, PageEntry, PageWriter};
use super::{BLOBS_AT_ONCE, BatchFault, Batches, load};
use crate::domain::batch::{Batch, BatchKey, Digest, ItemResult, Manifest, Phase, PhaseError, Progress};
use crate::ports::fault::StoreFault;
use crate::ports::operations::metered;

impl Batches {
    /// Counts outcomes of one batch. Ignores them if the batch is stopped; their chunks are posted again afterwards,
    /// which has no further effect. Can be repeated at any time.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn count(&self, key: &BatchKey, outcomes: &[ChunkOutcome]) -> Result<(), BatchFault> {
        let count = |mut batch: Batch| {
            let mut is_changed = false;
            if batch.stop().is_some() {
                return Ok(None);
            }
            for ChunkOutcome { key: _, split, chunk, results, totals, operations } in outcomes {
                // Chunks of another split do not belong to the batch.
                if split_of(&batch) == Some(*split) {
                    is_changed |= batch.count(*chunk, *results, totals, operations)?;
                }
            }
            Ok(is_changed.then_some(batch))
        };
        let Some(batch) = self.change(key, count).await? else { return Ok(()) };
        if batch.stop().is_some() {
            return Ok(());
        }
        let (manifest, progress) = match &batch.phase {
            Phase::Posting { manifest, progress, .. } => (manifest, progress),
            Phase::Received | Phase::Splitting => return Ok(()),
            // The process that completed the batch may have crashed before this step.
            Phase::Completed { .. } | Phase::Cancelled { .. } => return Ok(self.records.close(key).await?),
        };
        let chunks = self.manifests.read(&batch, manifest).await?;
        // Done for chunks counted earlier too, because that process may have crashed before it sent the next ones.
        let reported: BTreeSet<u32> = outcomes.iter().map(|outcome| outcome.chunk).collect();
        let is_next = |entry: &ChunkEntry| entry.after.is_some_and(|after| reported.contains(&after));
        self.send_ready(key, &chunks, progress, is_next).await?;
        self.complete_if_counted(&batch).await
    }

    /// Sends the chunk to be posted again, so that its outcome is derived from its transaction rows.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn ask_again(&self, named: &Named) -> Result<(), BatchFault> {
        let chunk = named.chunks.first().copied().unwrap_or(0);
        self.send(messages::post_queue(chunk, self.queue_count), named).await
    }

    pub(super) async fn complete_if_counted(&self, batch: &Batch) -> Result<(), BatchFault> {
        let Phase::Posting { manifest, progress, .. } = &batch.phase else { return Ok(()) };
        if usize::try_from(manifest.chunks) != Ok(progress.outcomes.len()) {
            return Ok(());
        }
        match self.complete(batch, manifest, progress).await {
            Err(BatchFault::Lost(blob)) => {
                self.lost_unless(&batch.key, blob, |batch| batch.phase.is_final()).await
            }
            result => result,
        }
    }

    async fn complete(
        &self,
        batch: &Batch,
        manifest: &Manifest,
        progress: &Progress,
    ) -> Result<(), BatchFault> {
        let _memory = self.memory.acquire().await;
        let blobs = self.blobs(batch);
        let parts: Vec<PartEntry> = load(&blobs, Blob::Parts, batch.document.parts).await?;
        let chunks = self.manifests.read(batch, manifest).await?;
        let (results, operations) = metered(self.store_results(&blobs, manifest, progress, &parts)).await;
        let results = results?;
        let now = self.world.now();
        let complete = |batch: Batch| match batch.complete(results, now, &operations) {
            Ok(completed) => Ok(Some(completed)),
            // Another controller has completed it.
            Err(PhaseError::Phase(_)) => Ok(None),
            Err(other) => Err(other),
        };
        if let Some(completed) = self.change(&batch.key, complete).await? {
            let total = completed.phase.totals().sum().count;
            self.ended.notify_waiters();
            tracing::info!(batch = %batch.key, "Batch {} is completed: {total} items", batch.key);
        }
        self.records.close(&batch.key).await?;
        self.remove_sources(&blobs, (manifest, &chunks), progress, (batch.document.parts, &parts)).await;
        Ok(())
    }

    /// Stores the results of all items in document order. Returns the digest of the list of pages.
    async fn store_results(
        &self,
        blobs: &Blobs,
        manifest: &Manifest,
        progress: &Progress,
        parts: &[PartEntry],
    ) -> Result<Digest, BatchFault> {
        let outcomes: Vec<(u32, Digest)> =
            progress.outcomes.iter().map(|(at, digest)| (*at, *digest)).collect();
        let (batches, source, split) = (self.clone(), blobs.clone(), manifest.split);
        let reads = stream::iter(outcomes).map(move |(chunk, digest)| {
            let blobs = source.clone();
            batches.start(async move { load(&blobs, Blob::Outcome(split, chunk), digest).await })
        });
        let mut reads = reads.buffered(BLOBS_AT_ONCE);
        let items = progress.totals.sum().count;
        // 56 bytes per item: 56 MB for the largest batch.
        let mut results: Vec<ItemResult> = Vec::with_capacity(usize::try_from(items).unwrap_or(0));
        while let Some(mut read) = reads.try_next().await? {
            results.append(&mut read);
        }
        results.sort_unstable_by_key(|result| result.line);
        let mut results = results.into_iter().peekable();
        let mut pages = Pages::new(self, blobs);
        for (number, part) in (0..).zip(parts).filter(|(_, part)| part.partition.is_none()) {
            let invalid: Vec<InvalidItem> = load(blobs, Blob::Part(number), part.digest()).await?;
            for invalid in invalid {
                while let Some(result) = results.next_if(|result| result.line < invalid.line) {
                    pages.add(&ResultLine::Item(result)).await?;
                }
                pages.add(&ResultLine::Invalid(invalid)).await?;
            }
        }
        for result in results {
            pages.add(&ResultLine::Item(result)).await?;
        }
        pages.finish().await
    }

    /// Removes bodies that are not needed after completion. The sweep removes any that remain.
    async fn remove_sources(
        &self,
        blobs: &Blobs,
        (manifest, chunks): (&Manifest, &[ChunkEntry]),
        progress: &Progress,
        (list, parts): (Digest, &[PartEntry]),
    ) {
        let outcomes = progress.outcomes.iter();
        let outcomes = outcomes.map(|(chunk, digest)| (Blob::Outcome(manifest.split, *chunk), *digest));
        let parts = (0..).zip(parts).map(|(number, part)| (Blob::Part(number), part.digest()));
        let lists = [(Blob::Manifest(manifest.split), manifest.digest), (Blob::Parts, list)];
        let chunks = chunks::bodies(manifest.split, chunks);
        blobs.remove_all(chunks.chain(outcomes).chain(parts).chain(lists).collect()).await;
    }
}

fn split_of(batch: &Batch) -> Option<uuid::Uuid> {
    match &batch.phase {
        Phase::Posting { manifest, .. } => Some(manifest.split),
        Phase::Received | Phase::Splitting | Phase::Completed { .. } | Phase::Cancelled { .. } => None,
    }
}

/// Stores pages as they are completed, several concurrently.
struct Pages<'a> {
    batches: &'a Batches,
    blobs: &'a Blobs,
    writer: PageWriter,
    started: u32,
    storing: FuturesOrdered<BoxFuture<'static, Result<PageEntry, StoreFault>>>,
    entries: Vec<PageEntry>,
}

impl<'a> Pages<'a> {
    fn new(batches: &'a Batches, blobs: &'a Blobs) -> Self {
        let (writer, storing) = (PageWriter::default(), FuturesOrdered::new());
        Self { batches, blobs, writer, started: 0, storing, entries: Vec::new() }
    }

    async fn add(&mut self, line: &ResultLine) -> Result<(), BatchFault> {
        match self.writer.add(line) {
            Some(page) => self.put(page).await,
            None => Ok(()),
        }
    }

    async fn put(&mut self, Page { raw, last }: Page) -> Result<(), BatchFault> {
        if self.storing.len() >= BLOBS_AT_ONCE
            && let Some(entry) = self.storing.try_next().await?
        {
            self.entries.push(entry);
        }
        let (blobs, number) = (self.blobs.clone(), self.started);
        self.started = number.saturating_add(1);
        self.storing.push_back(self.batches.start(async move {
            let digest = blobs.put(Blob::Page(number), &items::compress(&raw)).await?.0;
            Ok(PageEntry { digest, last })
        }));
        Ok(())
    }

    async fn finish(mut self) -> Result<Digest, BatchFault> {
        if let Some(page) = std::mem::take(&mut self.writer).finish() {
            self.put(page).await?;
        }
        while let Some(entry) = self.storing.try_next().await? {
            self.entries.push(entry);
        }
        Ok(self.blobs.put(Blob::Pages, &items::encode(&self.entries)).await?)
    }
}
