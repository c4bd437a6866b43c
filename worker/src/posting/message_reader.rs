//! Reads the work of a message from its body or from the payload store.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::bank::Bank;
use postonce_shared::messaging::claim_check::{ClaimCheck, Claimed};
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{Body, Claim, Content, Envelope, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::queue::Message;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::recovery_horizon::RecoveredUntil;
use tracing::{info, warn};

use crate::listening::delivery::DeliveryError;

/// What the dead letter of a body that is none of the bank's says.
const FOREIGN: &str = "orders of direct producers belong into an ingest queue (setting ingest.NAME.queue), not into a work queue";

/// Reads messages of accepted work.
pub struct MessageReader {
    claims: ClaimCheck,
    recovered: RecoveredUntil,
    seal: Seal,
    world: Arc<dyn World>,
    timeout: Duration,
}

impl MessageReader {
    /// Creates the reader of a bank. Reading a message takes at most `timeout`.
    pub fn new(bank: &Bank, timeout: Duration) -> Self {
        Self {
            claims: ClaimCheck::new(&bank.store, &bank.seal, Arc::clone(&bank.world)),
            recovered: RecoveredUntil::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world)),
            seal: bank.seal.clone(),
            world: Arc::clone(&bank.world),
            timeout,
        }
    }

    /// Returns the work of a message.
    ///
    /// # Errors
    /// [`DeliveryError`] with the reason, which determines how the message is settled.
    pub async fn read(&self, message: &Message) -> Result<Envelope, DeliveryError> {
        match Body::decode(&message.body, &self.seal) {
            Ok(Body::Content(content)) => require_seal(content),
            Ok(Body::Claim(claim)) => self.redeem(&claim, message).await,
            Err(malformed @ Unreadable::Malformed(_)) => {
                Err(DeliveryError::Refused(format!("{}; {FOREIGN}", chain(&malformed))))
            }
            Err(unreadable) => Err(DeliveryError::Unreadable(unreadable)),
        }
    }

    async fn redeem(&self, claim: &Claim, message: &Message) -> Result<Envelope, DeliveryError> {
        let unavailable = |source| {
            // An unsealed claim has no counters and must not get a seal, so its body is not changed.
            let forgiven = claim.forgiven.saturating_add(1);
            let body = match claim.sealed {
                true => Claim { forgiven, ..claim.clone() }.encode(&self.seal),
                false => message.body.clone(),
            };
            Err(DeliveryError::PayloadUnavailable { name: claim.name.clone(), body, source })
        };
        match self.with_timeout(self.claimed(claim, message)).await {
            Some(Ok(claimed)) => claimed,
            Some(Err(fault)) => unavailable(Box::new(fault)),
            None => unavailable(self.timeout_text().into()),
        }
    }

    async fn claimed(
        &self,
        claim: &Claim,
        message: &Message,
    ) -> Result<Result<Envelope, DeliveryError>, StoreFault> {
        let name = &claim.name;
        Ok(match self.claims.get(claim).await? {
            Claimed::Content(content) => content.map_err(DeliveryError::from).and_then(require_seal),
            Claimed::Settled => {
                info!("The payload {name} was removed: its work is settled");
                Err(DeliveryError::Settled)
            }
            Claimed::Missing if self.recovered.covers(message.inserted_at).await? => {
                warn!("The payload {name} was lost; a recovery has found its work");
                Err(DeliveryError::Settled)
            }
            // Without a seal, the sender is unknown. A recovery finds the work without this message.
            Claimed::Missing if !claim.sealed && self.seal.can_verify() => Err(DeliveryError::Refused(
                format!("it has no valid seal, and its payload {name} does not exist"),
            )),
            Claimed::Missing => Err(DeliveryError::PayloadMissing(name.clone())),
        })
    }

    /// Returns the result, or `None` after the timeout.
    async fn with_timeout<T>(&self, request: impl Future<Output = T> + Send) -> Option<T> {
        match select(request.boxed(), self.world.sleep(self.timeout)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    fn timeout_text(&self) -> String {
        format!("there was no answer within {:?}", self.timeout)
    }
}

/// Returns the work of sealed content. Content without a valid seal is an error.
fn require_seal(content: Content) -> Result<Envelope, DeliveryError> {
    match content {
        Content::Work(envelope) => Ok(envelope),
        Content::Names(names) => Err(DeliveryError::Unsealed(names)),
    }
}
