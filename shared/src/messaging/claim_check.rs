//! Claim check: work that would fill many messages is kept in the payload store and referenced by one message.
//!
//! 1. **Put** the payload, and only then send the claim on it. A failed send leaves an orphan, which is swept when its
//!    work is final ([`crate::messaging::sweep`]).
//! 2. **Get** the payload when the claim is received.
//! 3. **Remove** the payload when all its items are final: first a sealed tombstone is written under another name, then
//!    the payload is removed, and only then the message. After a crash in between, or if the claim was sent twice, a
//!    claim is left without a payload. The tombstone then proves that its work is settled.
//! 4. A payload that is **missing** without a tombstone was lost. Its transactions are still accepted in the log, but the
//!    claim does not name them. The message therefore waits until a recovery has found them
//!    ([`RecoveredUntil`](crate::protocol::recovery_horizon::RecoveredUntil)). A payload without a valid seal under a sealed
//!    claim was replaced, and counts as missing too.
//!
//! Only processes that know the secret write and remove payloads, because others cannot seal the payload or the tombstone.

use std::sync::Arc;

use crate::messaging::envelope::claim::{self, PAYLOADS};
use crate::messaging::envelope::seal::{Purpose, Seal};
use crate::messaging::envelope::{Claim, Content, Envelope, Unreadable};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::payload_store::{PayloadStore, is_name};
use crate::ports::world::{World, WorldExt as _};

/// The result of reading the payload of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// The content of the payload, if it can be decoded.
    Content(Result<Content, Unreadable>),
    /// The payload was removed, and its tombstone proves that the work is settled.
    Settled,
    /// The payload does not exist or was replaced, and nothing proves that the work is settled.
    Missing,
}

/// Prefix of the names of tombstones. The name of the payload follows it.
pub const TOMBSTONES: &str = "settled-";

/// The content of a tombstone, before it is sealed.
const TOMBSTONE: &[u8] = br#"{"v":1}"#;

/// Stores, reads and removes payloads of work.
#[derive(Clone)]
pub struct ClaimCheck {
    payloads: Arc<dyn PayloadStore>,
    seal: Seal,
    world: Arc<dyn World>,
}

impl ClaimCheck {
    /// Creates the claim check of a store.
    pub fn new(store: &Store, seal: &Seal, world: Arc<dyn World>) -> Self {
        Self { payloads: Arc::clone(&store.payloads), seal: seal.clone(), world }
    }

    /// Stores the work of an envelope, at most [`claim::PAYLOAD_BYTES_MAX`] bytes, and returns an envelope that claims it.
    ///
    /// # Errors
    /// [`StoreFault`] if the secret is not known or storing failed. The payload may exist then, and will be swept.
    pub async fn put(&self, envelope: Envelope) -> Result<Envelope, StoreFault> {
        self.require_secret("storing a payload")?;
        let name = format!("{PAYLOADS}{}", self.world.uuid().simple());
        self.payloads.put(&name, &claim::payload(&name, &envelope, &self.seal)).await?;
        Ok(Envelope { payload: Some(name), ..envelope })
    }

    /// Reads the payload of a claim.
    ///
    /// # Errors
    /// [`StoreFault`] if the store is temporarily unavailable.
    pub async fn get(&self, claim: &Claim) -> Result<Claimed, StoreFault> {
        match self.payloads.get(&claim.name).await {
            Ok(Some(payload)) => match claim.open(&payload, &self.seal) {
                Ok(Content::Names(_)) if claim.sealed && self.seal.can_verify() => Ok(Claimed::Missing),
                content => Ok(Claimed::Content(content)),
            },
            Ok(None) => self.without_payload(&claim.name).await,
            Err(fault) if fault.is_transient() => Err(fault),
            Err(fault) => {
                let (name, source) = (claim.name.clone(), std::io::Error::other(chain(&fault)));
                Ok(Claimed::Content(Err(Unreadable::Damaged { name, source })))
            }
        }
    }

    /// Removes a payload and leaves a tombstone. All items of the payload must be final or stored elsewhere.
    ///
    /// # Errors
    /// [`StoreFault`] if the secret is not known or the payload was not removed. It will be swept.
    pub async fn remove(&self, payload: &str) -> Result<(), StoreFault> {
        self.require_secret("removing a payload")?;
        let tombstone = self.seal.seal(Purpose::Settled(payload), TOMBSTONE.to_vec());
        self.payloads.put(&tombstone_of(payload), &tombstone).await?;
        self.payloads.delete(payload).await
    }

    fn require_secret(&self, doing: &'static str) -> Result<(), StoreFault> {
        if self.seal.can_verify() {
            return Ok(());
        }
        Err(StoreFault::Unavailable { doing, source: "the secret of the bank is not known yet".into() })
    }

    async fn without_payload(&self, payload: &str) -> Result<Claimed, StoreFault> {
        let name = tombstone_of(payload);
        // A name that is too long for a tombstone is not the name of a payload of the bank.
        let tombstone = if is_name(&name) { self.payloads.get(&name).await? } else { None };
        let is_settled =
            tombstone.is_some_and(|tombstone| self.seal.verify(Purpose::Settled(payload), &tombstone));
        Ok(if is_settled { Claimed::Settled } else { Claimed::Missing })
    }
}

fn tombstone_of(payload: &str) -> String {
    format!("{TOMBSTONES}{payload}")
}
