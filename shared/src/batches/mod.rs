//! Batches: many instructions of a partner in one document, posted in parallel.
//!
//! 1. **Receive** ([`document`], [`intake`]): the document is divided into parts while it arrives. When all parts are
//!    stored, the record of the batch is inserted, and only then does the partner receive a response.
//! 2. **Initiate** ([`initiate`]): an initiator regroups the parts by account into chunks, stores them with their list
//!    (the manifest), and sets the phase `posting` together with the manifest.
//! 3. **Process** ([`process`], [`crate::posting::batch`]): workers post the chunks of that manifest, and report each
//!    outcome, which they derive from the transaction rows.
//! 4. **Control** ([`control`]): a controller counts each chunk once, sends the next link of a chain, and completes the
//!    batch with its totals and results.
//!
//! The record decides everything; messages only trigger work. Each step can be repeated by any process at any time. A
//! batch that repeatedly crashes its workers is stopped ([`Batches::stop`]): its messages are ignored until an operator
//! replays its dead letter.

pub mod blobs;
pub mod chunks;
pub mod control;
pub mod document;
pub mod initiate;
pub mod intake;
pub mod items;
pub mod messages;
pub mod open;
pub mod process;
pub mod records;
pub mod results;
mod sweep;
#[cfg(test)]
mod testing;

use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

use self::blobs::{Blob, Blobs};
use self::chunks::{CHUNK_ITEMS_MAX, ChunkEntry};
use self::items::{ItemError, Stored};
use self::messages::Named;
use self::open::Manifests;
use self::records::BatchRecords;
use crate::access::partner_cache::Standing;
use crate::backoff::SHARED_VALUE_WRITE;
use crate::domain::account::Versioned;
use crate::domain::batch::{Batch, BatchKey, Digest, Hindrance, HindranceReason, PhaseError, Progress};
use crate::messaging::envelope::seal::Seal;
use crate::ports::Store;
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::StoreFault;
use crate::ports::operations::metered_with_caller;
use crate::ports::payload_store::PayloadStore;
use crate::ports::queue::{QueueName, WorkQueue};
use crate::ports::sync_store::Swapped;
use crate::ports::world::{World, WorldExt as _};
use crate::posting::PostFault;
use crate::posting::batch::ItemPoster;

/// Number of manifests cached in memory, at most 160 KB each.
const MANIFESTS_MAX: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
/// Number of bodies of a batch that are stored, read or removed concurrently.
pub(crate) const BLOBS_AT_ONCE: usize = 8;
const CHUNKS_PER_MESSAGE_MAX: usize = 8;
/// Number of ready chunks up to which each gets a separate message. More chunks share messages.
const MESSAGES_MIN: usize = 256;

/// Why a step of a batch was not done.
#[derive(Debug, thiserror::Error)]
pub enum BatchFault {
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// Items could not be posted.
    #[error(transparent)]
    Post(#[from] PostFault),
    /// Other processes changed the record during each attempt.
    #[error("the record of the batch changed during each attempt")]
    Contended,
    /// The secret of the bank, which seals outcomes, is not known.
    #[error("the secret of the bank is not known")]
    NoSecret,
    /// A body that the record refers to is missing or was changed.
    #[error("{0} of the batch is missing or was changed")]
    Lost(Blob),
    /// A body cannot be decoded.
    #[error("{0} of the batch cannot be decoded")]
    Undecodable(Blob, #[source] ItemError),
    /// The totals are inconsistent, which indicates a bug.
    #[error("the batch cannot be completed")]
    NotAllowed(#[from] PhaseError),
}

impl BatchFault {
    /// Returns whether a later retry can succeed without an operator.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(fault) => fault.is_transient(),
            Self::Post(fault) => fault.is_transient(),
            Self::Contended | Self::NoSecret => true,
            Self::Lost(_) | Self::Undecodable(..) | Self::NotAllowed(_) => false,
        }
    }

    /// Returns what partners read about the fault.
    pub fn hindrance(&self) -> HindranceReason {
        match self {
            Self::Store(fault) => Self::of_store(fault),
            // This refusal concerns the work ([`PostFault::is_transient`]).
            Self::Post(PostFault::Ledger(fault)) if matches!(**fault, StoreFault::Refused { .. }) => {
                HindranceReason::InternalFault
            }
            Self::Post(PostFault::Ledger(fault)) => Self::of_store(fault),
            Self::Post(PostFault::OrderNumbers(_)) => HindranceReason::NoOrderNumber,
            Self::Post(PostFault::GateHeld) => HindranceReason::GateHeld,
            Self::Contended | Self::Post(PostFault::Contended) => HindranceReason::Contention,
            Self::NoSecret => HindranceReason::SecretUnknown,
            Self::Lost(_) => HindranceReason::DataMissing,
            Self::Undecodable(..) => HindranceReason::DataUnreadable,
            Self::NotAllowed(_)
            | Self::Post(PostFault::AccountUnknown | PostFault::NeverAccepted | PostFault::Bug) => {
                HindranceReason::InternalFault
            }
        }
    }

    const fn of_store(fault: &StoreFault) -> HindranceReason {
        match fault {
            StoreFault::Unavailable { .. } => HindranceReason::StoreUnavailable,
            StoreFault::Refused { .. } => HindranceReason::StoreRefused,
            StoreFault::Corrupt { .. } => HindranceReason::DataUnreadable,
            StoreFault::ForeignCursor { .. } => HindranceReason::InternalFault,
        }
    }
}

/// The batches of a store.
#[derive(Clone)]
pub struct Batches {
    /// The records.
    pub records: BatchRecords,
    /// Maximum number of items in a chunk: [`CHUNK_ITEMS_MAX`], or less in tests.
    pub chunk_items_max: usize,
    /// Posts the items of chunks.
    pub poster: ItemPoster,
    payloads: Arc<dyn PayloadStore>,
    queue: Arc<dyn WorkQueue>,
    doorbell: Arc<dyn Doorbell>,
    world: Arc<dyn World>,
    seal: Seal,
    queue_count: u16,
    manifests: Manifests,
    /// Notified when this process completes or cancels a batch.
    ended: Arc<Notify>,
    /// Limits a process to splitting or completing one batch at a time, because each needs much memory.
    memory: Arc<Semaphore>,
    standing: Standing,
}

impl Batches {
    /// Creates the batches of a process. `poster` posts the chunks, which are distributed over `queue_count` queues.
    pub fn new(
        store: &Store,
        seal: Seal,
        doorbell: Arc<dyn Doorbell>,
        world: Arc<dyn World>,
        (queue_count, poster): (u16, ItemPoster),
    ) -> Self {
        Self {
            records: BatchRecords::new(Arc::clone(&store.records)),
            chunk_items_max: CHUNK_ITEMS_MAX,
            payloads: Arc::clone(&store.payloads),
            queue: Arc::clone(&store.queue),
            doorbell,
            world,
            seal,
            queue_count,
            poster,
            manifests: Manifests::new(Arc::clone(&store.payloads)),
            ended: Arc::new(Notify::new()),
            memory: Arc::new(Semaphore::new(1)),
            standing: Standing::ALWAYS,
        }
    }

    /// Records a fault that delays a batch. The next progress clears it.
    ///
    /// # Errors
    /// [`BatchFault`] when it was not recorded.
    pub async fn hinder(&self, key: &BatchKey, reason: HindranceReason) -> Result<(), BatchFault> {
        self.set_hindrance(key, Hindrance { reason, at: self.world.now(), stop: None }).await.map(drop)
    }

    /// Stops a batch that crashes its workers: all of its messages are ignored from now on. Returns the message that
    /// ends the stop, to be kept as a dead letter; `None` if the batch is final. Can be repeated.
    ///
    /// # Errors
    /// [`BatchFault`]; the stop may not be recorded.
    pub async fn stop(&self, key: &BatchKey) -> Result<Option<Named>, BatchFault> {
        let (reason, stop) = (HindranceReason::ProcessesEnded, Some(self.world.uuid()));
        let batch = self.set_hindrance(key, Hindrance { reason, at: self.world.now(), stop }).await?;
        let ends_stop = batch.and_then(|batch| batch.stop());
        Ok(ends_stop.is_some().then(|| Named { ends_stop, ..Named::of(key.clone(), Vec::new()) }))
    }

    /// Records a hindrance, unless the batch is final or stopped. Returns the current record.
    async fn set_hindrance(&self, key: &BatchKey, hindrance: Hindrance) -> Result<Option<Batch>, BatchFault> {
        let hinder = |batch: Batch| {
            let is_open = !batch.phase.is_final() && batch.stop().is_none();
            Ok(is_open.then_some(Batch { hindrance: Some(hindrance), ..batch }))
        };
        self.change(key, hinder).await
    }

    /// Ends the stop with this id, if the batch has it.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn end_stop(&self, key: &BatchKey, stop: Uuid) -> Result<(), BatchFault> {
        let end = |batch: Batch| {
            let is_stopped = batch.stop() == Some(stop);
            Ok(is_stopped.then_some(Batch { hindrance: None, ..batch }))
        };
        self.change(key, end).await.map(drop)
    }

    /// Returns the same batches for a caller, for whom no record is written once the rights of the caller have changed.
    pub fn acting_on(&self, standing: &Standing) -> Self {
        Self { standing: standing.clone(), ..self.clone() }
    }

    /// Starts an operation as a task, whose requests to the store are counted with those of the caller.
    fn start<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        self.world.start(metered_with_caller(operation))
    }

    fn blobs(&self, batch: &Batch) -> Blobs {
        Blobs::new(Arc::clone(&self.payloads), &batch.key, batch.document.upload)
    }

    /// Changes a record by compare-and-swap. `change` returns `None` if there is nothing to change. Returns the current
    /// record; `None` if it does not exist.
    async fn change(
        &self,
        key: &BatchKey,
        change: impl Fn(Batch) -> Result<Option<Batch>, PhaseError>,
    ) -> Result<Option<Batch>, BatchFault> {
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            let Some(Versioned { value, revision }) = self.records.find(key).await? else {
                return Ok(None);
            };
            let Some(changed) = change(value.clone())? else { return Ok(Some(value)) };
            self.standing.check("changing a batch")?;
            match self.records.save(&changed, Some(&revision)).await? {
                Swapped::Done(_) => return Ok(Some(changed)),
                Swapped::Conflict => SHARED_VALUE_WRITE.pause(attempt, &*self.world).await,
            }
        }
        Err(BatchFault::Contended)
    }

    /// Returns [`BatchFault::Lost`], unless the batch is past the step that needs the body: another process then did
    /// the step, and removed the body.
    async fn lost_unless(
        &self,
        key: &BatchKey,
        blob: Blob,
        is_beyond: impl Fn(&Batch) -> bool,
    ) -> Result<(), BatchFault> {
        let found = self.records.find(key).await?;
        if found.is_some_and(|found| is_beyond(&found.value)) { Ok(()) } else { Err(BatchFault::Lost(blob)) }
    }

    /// Wakes the listeners of all batch queues, in case a ring was lost.
    pub fn ring(&self) {
        messages::queues(self.queue_count).iter().for_each(|queue| self.doorbell.ring(queue));
    }

    /// Returns whether any batch queue has messages, including received ones.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn has_messages(&self) -> Result<bool, StoreFault> {
        for queue in messages::queues(self.queue_count) {
            if self.queue.backlog(&queue).await?.depth > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends the chunks that can be posted now to processing workers.
    async fn send_ready(
        &self,
        key: &BatchKey,
        chunks: &[ChunkEntry],
        progress: &Progress,
        is_wanted: impl Fn(&ChunkEntry) -> bool,
    ) -> Result<(), BatchFault> {
        let ready = ready(chunks, progress).filter(|(_, entry)| is_wanted(entry));
        let ready: Vec<u32> = ready.map(|(number, _)| number).collect();
        let each = ready.len().div_ceil(MESSAGES_MIN).clamp(1, CHUNKS_PER_MESSAGE_MAX);
        for (message, chunks) in (0..).zip(ready.chunks(each)) {
            // Links of a chain are sent one at a time, as message 0. The chunk number distributes them over the queues.
            let first = if each == 1 { chunks.first().copied().unwrap_or(0) } else { message };
            let queue = messages::post_queue(first, self.queue_count);
            self.send(queue, &Named::of(key.clone(), chunks.to_vec())).await?;
        }
        Ok(())
    }

    async fn send(&self, queue: QueueName, message: &Named) -> Result<(), BatchFault> {
        self.send_body(queue, &message.encode()).await
    }

    async fn send_body(&self, queue: QueueName, body: &[u8]) -> Result<(), BatchFault> {
        self.queue.send(&queue, body, std::time::Duration::ZERO).await?;
        self.doorbell.ring(&queue);
        Ok(())
    }
}

/// Reads and decodes a body that the record refers to.
async fn load<T: Stored>(blobs: &Blobs, blob: Blob, digest: Digest) -> Result<Vec<T>, BatchFault> {
    let body = blobs.get(blob, digest).await?.ok_or(BatchFault::Lost(blob))?;
    items::decode(&body).map_err(|error| BatchFault::Undecodable(blob, error))
}

/// Returns the chunks of a manifest that can be posted now, with their numbers.
fn ready<'a>(
    chunks: &'a [ChunkEntry],
    progress: &'a Progress,
) -> impl Iterator<Item = (u32, &'a ChunkEntry)> {
    let is_counted = |chunk: u32| progress.outcomes.contains_key(&chunk);
    let is_ready =
        move |number: u32, entry: &ChunkEntry| !is_counted(number) && entry.after.is_none_or(is_counted);
    (0..).zip(chunks).filter(move |(number, entry)| is_ready(*number, entry))
}
