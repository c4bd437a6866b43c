//! Work that would fill many messages: kept in the payload store, and claimed by one message.
//!
//! 1. **Put** the payload, and only then send the claim on it. A send that fails leaves an orphan,
//!    which is swept when its work is final ([`crate::messaging::sweep`]).
//! 2. **Get** it when the claim is received.
//! 3. **Remove** it when all its items are final, and only then delete the message. A crash between
//!    the two leaves a claim on nothing, and so does a claim that was sent twice: a payload that is
//!    missing says that its work is settled. Should a payload be lost otherwise, its transactions
//!    are still accepted in the log, where repair finds them.

use std::sync::Arc;

use crate::messaging::envelope::claim::{self, PAYLOADS};
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{Claim, Content, Envelope, Unreadable};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::payload_store::PayloadStore;
use crate::ports::world::{World, WorldExt as _};

/// What a claim stands for.
#[derive(Debug)]
pub enum Claimed {
    /// This, if it can be read.
    Content(Result<Content, Unreadable>),
    /// Work that is settled: there is no such payload any more.
    Settled,
}

/// Puts, gets and removes payloads of work.
#[derive(Clone)]
pub struct ClaimCheck {
    payloads: Arc<dyn PayloadStore>,
    seal: Seal,
    world: Arc<dyn World>,
}

impl ClaimCheck {
    /// The claim check of a store.
    pub fn new(store: &Store, seal: &Seal, world: Arc<dyn World>) -> Self {
        Self { payloads: Arc::clone(&store.payloads), seal: seal.clone(), world }
    }

    /// Keeps the work of an envelope, of at most [`claim::PAYLOAD_BYTES_MAX`] bytes, in a payload; the
    /// envelope that this returns is a claim on it.
    ///
    /// # Errors
    /// [`StoreFault`] when the work could not be kept; or it was, and will be swept.
    pub async fn put(&self, envelope: Envelope) -> Result<Envelope, StoreFault> {
        let name = format!("{PAYLOADS}{}", self.world.uuid().simple());
        self.payloads.put(&name, &claim::payload(&name, &envelope, &self.seal)).await?;
        Ok(Envelope { payload: Some(name), ..envelope })
    }

    /// Gets what is claimed.
    ///
    /// # Errors
    /// [`StoreFault`] when the store cannot be used now; trying again can help.
    pub async fn get(&self, claim: &Claim) -> Result<Claimed, StoreFault> {
        match self.payloads.get(&claim.name).await {
            Ok(Some(payload)) => Ok(Claimed::Content(claim.open(&payload, &self.seal))),
            Ok(None) => Ok(Claimed::Settled),
            Err(fault) if fault.is_transient() => Err(fault),
            Err(fault) => {
                let (name, source) = (claim.name.clone(), std::io::Error::other(chain(&fault)));
                Ok(Claimed::Content(Err(Unreadable::Damaged { name, source })))
            }
        }
    }

    /// Removes a payload. All its items must be final, or be kept in another place.
    ///
    /// # Errors
    /// [`StoreFault`] when it could not be removed; it will be swept.
    pub async fn remove(&self, payload: &str) -> Result<(), StoreFault> {
        self.payloads.delete(payload).await
    }
}
