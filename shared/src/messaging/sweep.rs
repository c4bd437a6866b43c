//! Removes payloads that are no longer needed: those of failed sends, those whose work was moved into messages, and
//! those that could not be removed when their work was settled.
//!
//! Only payloads of work are examined, nothing else in the payload store. A payload must be old, so that work that is
//! just being enqueued is safe, and all its items must be final, so that a claim on it has nothing left to do. A
//! payload without a valid seal may have replaced another one, so no tombstone is left for it. Finally, the tombstones of
//! payloads that were removed long ago are removed too.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::domain::ids::TransactionKey;
use crate::messaging::claim_check::{ClaimCheck, TOMBSTONES};
use crate::messaging::envelope::claim::PAYLOADS;
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{Claim, Content};
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::Ledger;
use crate::ports::payload_store::{PayloadEntry, PayloadStore};
use crate::ports::world::World;

/// Minimum age at which a payload is removed. Work is usually final within seconds; a day leaves time for outages, for
/// clocks that differ, and for an operator to investigate.
pub const AGE_MIN: Duration = Duration::from_secs(24 * 3600);
/// Minimum age at which a tombstone is removed. The claim of its payload may wait on the queue for this time, for example
/// while the gate is held over holidays. An older claim waits for a recovery.
pub const TOMBSTONE_AGE_MIN: Duration = Duration::from_secs(8 * 24 * 3600);
/// Number of payloads in one listing request.
const LISTING_LEN: usize = 500;
/// Number of transaction rows that are read concurrently.
const READS_AT_ONCE: usize = 16;

/// Statistics of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Removed payloads.
    pub removed: u64,
    /// Old payloads with work that is not final, because it is still queued or in the dead letters.
    pub open: u64,
    /// Old payloads that cannot be decoded or removed. They are kept for an operator.
    pub unreadable: u64,
    /// Payloads that are too young to be examined.
    pub young: u64,
}

/// The sweep of one store.
#[derive(Clone)]
pub struct Sweep {
    payloads: Arc<dyn PayloadStore>,
    claims: ClaimCheck,
    ledger: Arc<dyn Ledger>,
    seal: Seal,
    world: Arc<dyn World>,
}

enum PayloadState {
    Removed,
    Open,
    Unreadable(String),
}

impl Sweep {
    /// Creates the sweep of a store.
    pub fn new(store: &Store, seal: &Seal, world: Arc<dyn World>) -> Self {
        let claims = ClaimCheck::new(store, seal, Arc::clone(&world));
        let (payloads, ledger) = (Arc::clone(&store.payloads), Arc::clone(&store.ledger));
        Self { payloads, claims, ledger, seal: seal.clone(), world }
    }

    /// Examines every payload of work in the store. Removes those that are no longer needed, and old tombstones.
    ///
    /// # Errors
    /// [`StoreFault`] if the store cannot be used. The next sweep continues after what was already removed.
    pub async fn run(&self) -> Result<Swept, StoreFault> {
        let now = self.world.now();
        let is_old = |entry: &PayloadEntry, age_min| now.since(entry.stored_at) >= age_min;
        let mut swept = Swept::default();
        let mut cursor: Option<String> = None;
        loop {
            let listing = self.payloads.list(PAYLOADS, cursor.as_deref(), LISTING_LEN).await?;
            for entry in &listing.items {
                let count = if is_old(entry, AGE_MIN) {
                    self.examine(entry, &mut swept).await?
                } else {
                    &mut swept.young
                };
                *count = count.saturating_add(1);
            }
            cursor = listing.next;
            if cursor.is_none() {
                break;
            }
        }
        loop {
            let listing = self.payloads.list(TOMBSTONES, cursor.as_deref(), LISTING_LEN).await?;
            for entry in listing.items.iter().filter(|entry| is_old(entry, TOMBSTONE_AGE_MIN)) {
                self.payloads.delete(&entry.name).await?;
            }
            cursor = listing.next;
            if cursor.is_none() {
                return Ok(swept);
            }
        }
    }

    /// Examines one old payload and returns the counter to increment.
    async fn examine<'a>(
        &self,
        entry: &PayloadEntry,
        swept: &'a mut Swept,
    ) -> Result<&'a mut u64, StoreFault> {
        let PayloadEntry { name, stored_at } = entry;
        match self.sweep_payload(name).await? {
            PayloadState::Removed => Ok(&mut swept.removed),
            PayloadState::Open => Ok(&mut swept.open),
            PayloadState::Unreadable(why) => {
                tracing::warn!(payload = name, "Kept the payload {name} of {stored_at}: {why}");
                Ok(&mut swept.unreadable)
            }
        }
    }

    async fn sweep_payload(&self, name: &str) -> Result<PayloadState, StoreFault> {
        let payload = match self.payloads.get(name).await {
            Ok(Some(payload)) => payload,
            // A worker has removed it meanwhile.
            Ok(None) => return Ok(PayloadState::Removed),
            Err(fault) if fault.is_transient() => return Err(fault),
            Err(fault) => return Ok(PayloadState::Unreadable(chain(&fault))),
        };
        // The rows decide, whether the payload is sealed or not.
        let claim = Claim::on(name.to_owned());
        let names = match claim.names(&payload) {
            // Items that cannot be decoded may be the only copy of their work.
            Ok(names) if !names.is_complete() => {
                return Ok(PayloadState::Unreadable("not all of its items name a transaction".to_owned()));
            }
            Ok(names) => names,
            Err(unreadable) => return Ok(PayloadState::Unreadable(chain(&unreadable))),
        };
        let keys: Vec<&TransactionKey> = names.keys().into_iter().collect();
        if !self.are_final(&keys).await? {
            return Ok(PayloadState::Open);
        }
        let is_sealed = matches!(claim.open(&payload, &self.seal), Ok(Content::Work(_)));
        let removed = if is_sealed || !self.seal.can_verify() {
            self.claims.remove(name).await
        } else {
            self.payloads.delete(name).await
        };
        match removed {
            Ok(()) => Ok(PayloadState::Removed),
            Err(fault @ StoreFault::Unavailable { .. }) => Err(fault),
            // For example, another program holds a lease on it. The other payloads are removed anyway.
            Err(fault) => Ok(PayloadState::Unreadable(chain(&fault))),
        }
    }

    async fn are_final(&self, keys: &[&TransactionKey]) -> Result<bool, StoreFault> {
        for some in keys.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|key| self.ledger.transaction(key));
            for read in join_all(reads).await {
                let is_final = match read {
                    Ok(stored) => stored.is_some_and(|stored| stored.outcome.is_some()),
                    Err(fault) if fault.is_transient() => return Err(fault),
                    // The state of the transaction is unknown.
                    Err(_) => false,
                };
                if !is_final {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
