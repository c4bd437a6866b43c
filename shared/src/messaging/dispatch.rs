//! Puts much work on a queue at once: in messages, or where those would be many, claimed from the
//! payload store.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::reply_to::ReplyTo;
use crate::domain::decision::Work;
use crate::messaging::claim_check::ClaimCheck;
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, Envelope, Parcel};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::queue::{QueueName, WorkQueue};
use crate::ports::world::World;

/// Sends work.
#[derive(Clone)]
pub struct Dispatch {
    queue: Arc<dyn WorkQueue>,
    claims: ClaimCheck,
    seal: Seal,
    world: Arc<dyn World>,
}

impl Dispatch {
    /// The dispatch of a store.
    pub fn new(store: &Store, seal: &Seal, world: Arc<dyn World>) -> Self {
        let claims = ClaimCheck::new(store, seal, Arc::clone(&world));
        Self { queue: Arc::clone(&store.queue), claims, seal: seal.clone(), world }
    }

    /// Sends work in order. `reply_to` says, right before a part is sent, who waits for any of it;
    /// `confirmed` is told of each part that the queue surely has.
    ///
    /// # Errors
    /// [`StoreFault`] at the first part that the queue did not confirm; it and what follows may have to
    /// be sent again.
    pub async fn send(
        &self,
        queue: &QueueName,
        work: &[Work],
        traceparent: Option<&str>,
        reply_to: impl Fn(&[Work]) -> Option<ReplyTo> + Send + Sync,
        mut confirmed: impl FnMut(&Envelope) + Send,
    ) -> Result<(), StoreFault> {
        self.seal.ready(&*self.world).await;
        for parcel in envelope::parcels(work, traceparent) {
            for envelope in self.checked_in(parcel).await {
                let envelope = Envelope { reply_to: reply_to(&envelope.items), ..envelope };
                self.queue.send(queue, &envelope.encode(&self.seal), Duration::ZERO).await?;
                confirmed(&envelope);
            }
        }
        Ok(())
    }

    /// What is to be sent for a parcel, its payload being stored.
    async fn checked_in(&self, parcel: Parcel) -> Vec<Envelope> {
        match parcel {
            Parcel::Message(envelope) => vec![envelope],
            Parcel::Payload(envelopes) => match self.claims.put(joined(&envelopes)).await {
                Ok(claimed) => vec![claimed],
                // Dearer, but nobody has to wait for the payload store to come back.
                Err(fault) => {
                    tracing::warn!("Sending many messages instead of one claim: {}", chain(&fault));
                    envelopes
                }
            },
        }
    }
}

fn joined(envelopes: &[Envelope]) -> Envelope {
    let items = envelopes.iter().flat_map(|envelope| envelope.items.iter().cloned()).collect();
    let traceparent = envelopes.first().and_then(|envelope| envelope.traceparent.clone());
    Envelope::of(items, traceparent)
}
