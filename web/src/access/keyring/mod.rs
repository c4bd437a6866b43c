//! Looks up API keys, and remembers both answers for a while: who calls often costs nothing, and a
//! flood of one wrong key does not reach the store.
//!
//! A key works when the store has it and it was not revoked, *and* the record of its partner lists it, *and*
//! the partner is active. A change of any of these is told to all processes ([`Keyring::forget`]), so that it
//! counts at once. [`postonce_shared::access::partner_cache`] says when it counts where that call is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postonce_shared::access::partner_cache::{Answer, OfPartner, PartnerCache};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::Partner;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::{ApiKeyRecord, ApiKeys};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::partners::Partners;
use postonce_shared::ports::world::World;
use subtle::ConstantTimeEq as _;

use crate::access::api_keys::{KEY_CHARS_MAX, hash, id_of};
use crate::access::scopes::Scope;

/// Who calls, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id of the key.
    pub key_id: String,
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
    /// The partner of the key, as it was when the key was looked up.
    pub partner: Arc<Partner>,
}

impl Grant {
    /// Whether the key allows what needs that scope.
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own.includes(scope))
    }
}

impl OfPartner for Grant {
    fn partner(&self) -> &PartnerId {
        &self.partner.id
    }
}

/// The API keys of the store and their partners, with a memory.
pub struct Keyring {
    keys: Arc<dyn ApiKeys>,
    partners: Arc<dyn Partners>,
    world: Arc<dyn World>,
    /// By the hash of the key.
    memory: PartnerCache<[u8; 32], Grant, ()>,
    awaits_first_key: AtomicBool,
}

impl Keyring {
    /// A keyring that remembers nothing yet.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        Self {
            keys: Arc::clone(&store.api_keys),
            partners: Arc::clone(&store.partners),
            memory: PartnerCache::new(Arc::clone(&world)),
            world,
            awaits_first_key: AtomicBool::new(false),
        }
    }

    /// From now on an unknown key may be the store's first one, which is on its way: it must not be
    /// called wrong.
    pub fn await_first_key(&self) {
        self.awaits_first_key.store(true, Ordering::Release);
    }

    /// The store knows its first key: what is unknown from now on is wrong.
    pub fn first_key_is_known(&self) {
        self.awaits_first_key.store(false, Ordering::Release);
    }

    /// The time, for signatures.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Whether an unknown key may be right.
    pub fn awaits_first_key(&self) -> bool {
        self.awaits_first_key.load(Ordering::Acquire)
    }

    /// Whether looking up a key means to ask the store for one that was never right here.
    pub fn is_unseen(&self, key: &str) -> bool {
        key.len() <= KEY_CHARS_MAX && self.memory.is_unknown(&hash(key))
    }

    /// Something about that partner or its keys changed, or about any partner: what is remembered of it, and
    /// every look-up that is under way, counts no more.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        self.memory.forget(partner);
    }

    /// What a key grants; `None` when it is not known, was revoked, or its partner may not call.
    ///
    /// # Errors
    /// [`StoreFault`] when the store has to be asked and does not answer.
    pub async fn look_up(&self, key: &str) -> Result<Option<Arc<Grant>>, StoreFault> {
        if key.len() > KEY_CHARS_MAX {
            return Ok(None);
        }
        let hash = hash(key);
        Ok(self.memory.get_or_load(&hash, self.ask(&hash)).await?.ok())
    }

    async fn ask(&self, hash: &[u8; 32]) -> Result<Answer<Grant, ()>, StoreFault> {
        // Asked first: the store's first key may come in between.
        let refused = if self.awaits_first_key() { Answer::NotYet(()) } else { Answer::Refused(()) };
        let record = self.keys.find(&id_of(hash)).await?;
        let Some(record) = record.filter(|record| opens(record, hash)) else { return Ok(refused) };
        let partner = self.partners.find(&record.partner).await?.map(|stored| stored.value);
        let partner = partner.filter(|partner| partner.admits(&record.id));
        Ok(partner.map_or(refused, |partner| Answer::Granted(granted(record, partner))))
    }
}

/// Whether a stored key is the one with that hash and still works. In constant time, since the id
/// tells only a part of the hash.
fn opens(record: &ApiKeyRecord, hash: &[u8; 32]) -> bool {
    record.revoked_at.is_none() && bool::from(record.hash.ct_eq(hash))
}

fn granted(record: ApiKeyRecord, partner: Partner) -> Grant {
    let ApiKeyRecord { id, hash: _, partner: _, scopes, created_at: _, revoked_at: _ } = record;
    Grant { key_id: id, scopes: Scope::of_codes(&scopes), partner: Arc::new(partner) }
}

#[cfg(test)]
mod tests;
