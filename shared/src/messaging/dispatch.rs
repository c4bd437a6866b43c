//! Sends work to a queue, in messages or, to replace many messages, in a payload with a claim on it.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::reply_to::ReplyTo;
use crate::domain::decision::Work;
use crate::messaging::claim_check::ClaimCheck;
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, Envelope, OutgoingMessage};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::queue::{QueueName, WorkQueue};
use crate::ports::world::World;

/// Sends work to queues.
#[derive(Clone)]
pub struct Dispatch {
    queue: Arc<dyn WorkQueue>,
    claims: ClaimCheck,
    seal: Seal,
    world: Arc<dyn World>,
}

impl Dispatch {
    /// Creates the dispatch of a store.
    pub fn new(store: &Store, seal: &Seal, world: Arc<dyn World>) -> Self {
        let claims = ClaimCheck::new(store, seal, Arc::clone(&world));
        Self { queue: Arc::clone(&store.queue), claims, seal: seal.clone(), world }
    }

    /// Sends work in order. `reply_to` returns the reply address of a part and is called right before it is sent.
    /// `confirmed` is called for each part that the queue has stored.
    ///
    /// # Errors
    /// [`StoreFault`] at the first unconfirmed part. This part and the following ones may have to be sent again.
    pub async fn send(
        &self,
        queue: &QueueName,
        work: &[Work],
        reply_to: impl Fn(&[Work]) -> Option<ReplyTo> + Send + Sync,
        mut confirmed: impl FnMut(&Envelope) + Send,
    ) -> Result<(), StoreFault> {
        self.seal.ready(&*self.world).await;
        for message in envelope::outgoing_messages(work) {
            for envelope in self.envelopes_of(message).await {
                let envelope = Envelope { reply_to: reply_to(&envelope.items), ..envelope };
                self.queue.send(queue, &envelope.encode(&self.seal), Duration::ZERO).await?;
                confirmed(&envelope);
            }
        }
        Ok(())
    }

    /// Returns the envelopes to send. Stores the payload of a claim first.
    async fn envelopes_of(&self, message: OutgoingMessage) -> Vec<Envelope> {
        match message {
            OutgoingMessage::Inline(envelope) => vec![envelope],
            OutgoingMessage::Claimed(envelopes) => match self.claims.put(joined(&envelopes)).await {
                Ok(claimed) => vec![claimed],
                // Many messages cost more, but the work does not wait until the payload store is available again.
                Err(fault) => {
                    tracing::warn!("Sending many messages instead of one claim: {}", chain(&fault));
                    envelopes
                }
            },
        }
    }
}

fn joined(envelopes: &[Envelope]) -> Envelope {
    Envelope::of(envelopes.iter().flat_map(|envelope| envelope.items.iter().cloned()).collect())
}
