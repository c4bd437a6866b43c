//! Removes payloads that nobody needs any more: what a send that failed left behind, what was taken
//! apart into messages of its own, and what could not be removed when its work was settled.
//!
//! Only payloads of work are looked at, never anything else that lies in the payload store; only old
//! ones, so that nothing on its way to the queue is; and only those go whose items are all final. A
//! payload that is still claimed has such an item, or its claim is settled anyway.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use crate::domain::ids::TransactionKey;
use crate::domain::time::Timestamp;
use crate::messaging::envelope::Claim;
use crate::messaging::envelope::claim::PAYLOADS;
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::Ledger;
use crate::ports::payload_store::{PayloadEntry, PayloadStore};
use crate::ports::world::World;

/// How old a payload must be. Work is usually final within seconds; a day leaves time for outages,
/// for clocks that differ, and for a person to look.
pub const AGE_MIN: Duration = Duration::from_secs(24 * 3600);
/// Payloads that are listed at once.
const LISTING_LEN: usize = 500;
/// Transaction rows that are read at once.
const READS_AT_ONCE: usize = 16;

/// What a sweep found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Payloads that were removed.
    pub removed: u64,
    /// Old payloads with work that is not final: it is still queued, or lies in the dead letters.
    pub open: u64,
    /// Old payloads that cannot be read. They are kept for a person.
    pub unreadable: u64,
    /// Payloads that are too young to be looked at.
    pub young: u64,
}

/// Sweeps one store.
#[derive(Clone)]
pub struct Sweep {
    payloads: Arc<dyn PayloadStore>,
    ledger: Arc<dyn Ledger>,
    world: Arc<dyn World>,
}

/// What is to be done with an old payload.
enum Verdict {
    Removed,
    Open,
    Unreadable(String),
}

impl Sweep {
    /// The sweep of a store.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        Self { payloads: Arc::clone(&store.payloads), ledger: Arc::clone(&store.ledger), world }
    }

    /// Looks at every payload of work in the store, and removes those that nobody needs.
    ///
    /// # Errors
    /// [`StoreFault`] when the store cannot be used; what was removed until then stays so, and the next
    /// sweep goes on.
    pub async fn run(&self) -> Result<Swept, StoreFault> {
        let now = self.world.now();
        let mut swept = Swept::default();
        let mut cursor: Option<String> = None;
        loop {
            let listing = self.payloads.list(PAYLOADS, cursor.as_deref(), LISTING_LEN).await?;
            for entry in &listing.items {
                let count = self.look_at(entry, now, &mut swept).await?;
                *count = count.saturating_add(1);
            }
            match listing.next {
                Some(next) => cursor = Some(next),
                None => return Ok(swept),
            }
        }
    }

    /// Treats one payload, and returns the count that it belongs to.
    async fn look_at<'a>(
        &self,
        entry: &PayloadEntry,
        now: Timestamp,
        swept: &'a mut Swept,
    ) -> Result<&'a mut u64, StoreFault> {
        let PayloadEntry { name, stored_at } = entry;
        if now.since(*stored_at) < AGE_MIN {
            return Ok(&mut swept.young);
        }
        match self.treat(name).await? {
            Verdict::Removed => Ok(&mut swept.removed),
            Verdict::Open => Ok(&mut swept.open),
            Verdict::Unreadable(why) => {
                tracing::warn!(payload = name, "Kept the payload {name} of {stored_at}: {why}");
                Ok(&mut swept.unreadable)
            }
        }
    }

    async fn treat(&self, name: &str) -> Result<Verdict, StoreFault> {
        let payload = match self.payloads.get(name).await {
            Ok(Some(payload)) => payload,
            // Its worker was faster.
            Ok(None) => return Ok(Verdict::Removed),
            Err(fault) if fault.is_transient() => return Err(fault),
            Err(fault) => return Ok(Verdict::Unreadable(chain(&fault))),
        };
        // The rows decide, so it does not matter whether the payload has a seal.
        let names = match Claim::on(name.to_owned()).names(&payload) {
            // Items that cannot be read may be work that is in no other place.
            Ok(names) if !names.is_whole() => {
                return Ok(Verdict::Unreadable("not all of its items name a transaction".to_owned()));
            }
            Ok(names) => names,
            Err(unreadable) => return Ok(Verdict::Unreadable(chain(&unreadable))),
        };
        let keys: Vec<&TransactionKey> = names.keys().into_iter().collect();
        if !self.are_final(&keys).await? {
            return Ok(Verdict::Open);
        }
        match self.payloads.delete(name).await {
            Ok(()) => Ok(Verdict::Removed),
            Err(fault @ StoreFault::Unavailable { .. }) => Err(fault),
            // Such as one under a lease of others: the rest is removed all the same.
            Err(fault) => Ok(Verdict::Unreadable(chain(&fault))),
        }
    }

    async fn are_final(&self, keys: &[&TransactionKey]) -> Result<bool, StoreFault> {
        for some in keys.chunks(READS_AT_ONCE) {
            let reads = some.iter().map(|key| self.ledger.transaction(key));
            for read in join_all(reads).await {
                let is_final = match read {
                    Ok(stored) => stored.is_some_and(|stored| stored.transaction.outcome.is_some()),
                    Err(fault) if fault.is_transient() => return Err(fault),
                    // Nobody knows what became of it.
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
