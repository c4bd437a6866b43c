//! The remaining work of open batches, from which the number of workers is computed.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::blobs::{Blob, Blobs};
use super::chunks::ChunkEntry;
use super::records::BatchRecords;
use super::{BatchFault, MANIFESTS_MAX, load, ready};
use crate::domain::batch::{Batch, Digest, Manifest, Phase};
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::payload_store::PayloadStore;

/// Maximum number of open batches that are read. Later ones are not counted.
const BATCHES_MAX: usize = 100;

/// The remaining work of open batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchBacklog {
    /// Number of items whose outcome is not counted yet.
    pub items: u64,
    /// Number of chunks that can be posted now. A batch that is not split counts as one, a batch delayed by a fault as
    /// at most one.
    pub chunks: u64,
}

/// Reads manifests through a cache.
#[derive(Clone)]
pub(super) struct Manifests {
    payloads: Arc<dyn PayloadStore>,
    kept: Arc<Mutex<LruCache<Digest, Arc<Vec<ChunkEntry>>>>>,
}

impl Manifests {
    pub(super) fn new(payloads: Arc<dyn PayloadStore>) -> Self {
        Self { payloads, kept: Arc::new(Mutex::new(LruCache::new(MANIFESTS_MAX))) }
    }

    pub(super) async fn read(
        &self,
        batch: &Batch,
        manifest: &Manifest,
    ) -> Result<Arc<Vec<ChunkEntry>>, BatchFault> {
        let known = self.kept.lock().get(&manifest.digest).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let blobs = Blobs::new(Arc::clone(&self.payloads), &batch.key, batch.document.upload);
        let chunks = Arc::new(load(&blobs, Blob::Manifest(manifest.split), manifest.digest).await?);
        self.kept.lock().put(manifest.digest, Arc::clone(&chunks));
        Ok(chunks)
    }
}

/// The open batches of a store.
pub struct OpenBatches {
    records: BatchRecords,
    manifests: Manifests,
}

impl OpenBatches {
    /// Returns a handle to the open batches of a store.
    pub fn new(store: &Store) -> Self {
        let records = BatchRecords::new(Arc::clone(&store.records));
        Self { records, manifests: Manifests::new(Arc::clone(&store.payloads)) }
    }

    /// Reads the remaining work of the open batches. Takes one store operation if there are none.
    ///
    /// # Errors
    /// [`StoreFault`] when the store is unavailable. A damaged batch is skipped.
    pub async fn backlog(&self) -> Result<BatchBacklog, StoreFault> {
        let mut all = BatchBacklog::default();
        for (key, _) in self.records.list_open(None, BATCHES_MAX).await? {
            let left = match self.records.find(&key).await {
                Ok(Some(found)) => self.left(&found.value).await,
                Ok(None) => continue,
                Err(fault) => Err(fault.into()),
            };
            match left {
                Ok(BatchBacklog { items, chunks }) => {
                    all.items = all.items.saturating_add(items);
                    all.chunks = all.chunks.saturating_add(chunks);
                }
                Err(BatchFault::Store(fault)) if fault.is_transient() => return Err(fault),
                Err(_) => {}
            }
        }
        Ok(all)
    }

    async fn left(&self, batch: &Batch) -> Result<BatchBacklog, BatchFault> {
        let items = batch.document.valid.count;
        match &batch.phase {
            // A stopped batch waits for an operator.
            _ if batch.stop().is_some() => Ok(BatchBacklog::default()),
            Phase::Received | Phase::Splitting => Ok(BatchBacklog { items, chunks: 1 }),
            Phase::Posting { manifest, progress, .. } => {
                let entries = self.manifests.read(batch, manifest).await?;
                let chunks = u64::try_from(ready(&entries, progress).count()).unwrap_or(u64::MAX);
                // More workers do not speed up a batch that a fault delays.
                let chunks = if batch.hindrance.is_some() { chunks.min(1) } else { chunks };
                Ok(BatchBacklog { items: items.saturating_sub(progress.totals.sum().count), chunks })
            }
            Phase::Completed { .. } | Phase::Cancelled { .. } => Ok(BatchBacklog::default()),
        }
    }
}
