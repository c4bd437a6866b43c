//! The roles of batch processing.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::batches::messages::{BatchMessageError, COUNT, ChunkOutcome, Named, POST, SPLIT};
use postonce_shared::batches::{BatchFault, Batches};
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::ports::world::{World, WorldExt as _};

use super::Role;

type Results = Vec<Result<(), Arc<BatchFault>>>;

/// The initiator, which splits batches into chunks.
pub struct Initiator(pub Batches);

#[async_trait]
impl Role for Initiator {
    type Work = Named;

    const NAME: &'static str = SPLIT;
    const MESSAGES_AT_ONCE: usize = 1;

    fn decode(&self, body: &[u8]) -> Result<Named, BatchMessageError> {
        Named::decode(body)
    }

    fn batch(work: &Named) -> &BatchKey {
        &work.key
    }

    async fn work(&self, work: &[&Named]) -> Results {
        let initiate = |Named { key, ends_stop, .. }: Named| async move {
            if let Some(stop) = ends_stop {
                self.0.end_stop(&key, stop).await?;
            }
            self.0.initiate(&key).await
        };
        join_all(work.iter().map(|named| async { initiate((*named).clone()).await.map_err(Arc::new) })).await
    }
}

/// The processing worker, which posts chunks. Each message runs in its own task, so that several cores are used.
pub struct Processor {
    /// The batches of the bank.
    pub batches: Batches,
    /// Spawns the tasks.
    pub world: Arc<dyn World>,
}

#[async_trait]
impl Role for Processor {
    type Work = Named;

    const NAME: &'static str = POST;
    // A small number, so that several workers share the chunks of a batch.
    const MESSAGES_AT_ONCE: usize = 2;

    fn decode(&self, body: &[u8]) -> Result<Named, BatchMessageError> {
        Named::decode(body)
    }

    fn batch(work: &Named) -> &BatchKey {
        &work.key
    }

    /// Splits a message into its chunks: chunks after one that kills workers would never be posted.
    fn parts(Named { key, chunks, ends_stop: _ }: &Named) -> Vec<Vec<u8>> {
        chunks.iter().map(|chunk| Named::of(key.clone(), vec![*chunk]).encode()).collect()
    }

    async fn work(&self, work: &[&Named]) -> Results {
        join_all(work.iter().map(|named| {
            let (batches, named) = (self.batches.clone(), Named::clone(named));
            self.world.start(async move { batches.process(&named).await.map_err(Arc::new) })
        }))
        .await
    }
}

/// The controller, which counts outcomes and completes batches.
pub struct Controller {
    /// The batches of the bank.
    pub batches: Batches,
    /// Verifies the seals of outcomes.
    pub seal: Seal,
}

/// Content of a message to a controller.
pub enum Told {
    /// An outcome with a valid seal.
    Outcome(ChunkOutcome),
    /// An outcome without a valid seal, from an unknown sender. The only effect is that the chunk is posted again, which
    /// reports its outcome.
    Unsealed(Named),
}

#[async_trait]
impl Role for Controller {
    type Work = Told;

    const NAME: &'static str = COUNT;
    const MESSAGES_AT_ONCE: usize = 32;

    fn decode(&self, body: &[u8]) -> Result<Told, BatchMessageError> {
        match ChunkOutcome::decode(body, &self.seal) {
            Ok(outcome) => Ok(Told::Outcome(outcome)),
            Err(BatchMessageError::Unsealed) => ChunkOutcome::named(body).map(Told::Unsealed),
            Err(other) => Err(other),
        }
    }

    fn batch(work: &Told) -> &BatchKey {
        match work {
            Told::Outcome(outcome) => &outcome.key,
            Told::Unsealed(named) => &named.key,
        }
    }

    /// Counts all outcomes of a batch in one change of its record.
    async fn work(&self, work: &[&Told]) -> Results {
        let mut by_batch: BTreeMap<&BatchKey, Vec<ChunkOutcome>> = BTreeMap::new();
        for told in work {
            if let Told::Outcome(outcome) = told {
                by_batch.entry(&outcome.key).or_default().push(outcome.clone());
            }
        }
        let counts = by_batch.into_iter().map(|(key, outcomes)| async move {
            (key, self.batches.count(key, &outcomes).await.map_err(Arc::new))
        });
        let counted: BTreeMap<&BatchKey, Result<(), Arc<BatchFault>>> =
            join_all(counts).await.into_iter().collect();
        let mut results = Vec::with_capacity(work.len());
        for told in work {
            results.push(match told {
                Told::Outcome(outcome) => counted.get(&outcome.key).cloned().unwrap_or(Ok(())),
                Told::Unsealed(named) => self.batches.ask_again(named).await.map_err(Arc::new),
            });
        }
        results
    }
}
