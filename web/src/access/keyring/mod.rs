//! Look-up of API keys, with a cache for positive and negative results. Neither repeated calls of a partner nor a
//! flood of wrong keys ([`key_ids`]) access the store.
//!
//! A key is valid when the store has it, it is neither revoked nor expired, *and* the record of its partner lists it,
//! *and* the partner is active. Changes are broadcast to all processes ([`Keyring::forget`]) and take effect at once.
//! [`postonce_shared::access::partner_cache`] defines when they take effect if the broadcast is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postonce_shared::access::partner_cache::{Answer, OfPartner, PartnerCache, Standing};
use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::Partner;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::{ApiKeyRecord, ApiKeys};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::world::World;
use subtle::ConstantTimeEq as _;

use self::key_ids::KeyIds;
use self::key_uses::KeyUses;
use crate::access::api_keys::{KEY_CHARS_MAX, hash, id_of};
use crate::access::scopes::Scope;

mod key_ids;
mod key_uses;

/// Rights that an API key grants: its scopes, and its partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The id of the key.
    pub key_id: String,
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
    /// Time from which the key is refused, if it expires.
    pub expires_at: Option<Timestamp>,
    /// Time of the last recorded use, as of the look-up.
    pub last_used_at: Option<Timestamp>,
    /// The partner of the key, as of the look-up.
    pub partner: Arc<Partner>,
}

impl Grant {
    /// Returns whether the key has a scope.
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own.includes(scope))
    }
}

impl OfPartner for Grant {
    fn partner(&self) -> &PartnerId {
        &self.partner.id
    }
}

/// Key presented by a request, with its grant, which is confirmed before it is used ([`Keyring::confirm`]).
#[derive(Clone)]
pub struct PresentedKey {
    hash: [u8; 32],
    /// Time of the first look-up.
    pub presented_at: Timestamp,
    /// Grant at the last look-up.
    pub grant: Arc<Grant>,
    /// Tells whether the grant is valid without another look-up.
    pub standing: Standing,
}

/// Result of [`Keyring::confirm`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// The grant is the same.
    Unchanged,
    /// The grant was read again and may differ.
    Replaced,
    /// The key is no longer valid. The value keeps its last grant, which must not be used.
    Ended,
}

/// Cached look-up of API keys and their partners.
pub struct Keyring {
    keys: Arc<dyn ApiKeys>,
    partners: PartnerRecords,
    world: Arc<dyn World>,
    /// Keyed by the hash of the API key.
    cache: PartnerCache<[u8; 32], Grant, ()>,
    ids: KeyIds,
    uses: KeyUses,
    awaits_first_key: AtomicBool,
}

impl Keyring {
    /// Creates a keyring with an empty cache.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        Self {
            keys: Arc::clone(&store.api_keys),
            partners: PartnerRecords::new(store),
            cache: PartnerCache::new(Arc::clone(&world)),
            ids: KeyIds::new(store, Arc::clone(&world)),
            uses: KeyUses::new(Arc::clone(&store.api_keys), Arc::clone(&world)),
            world,
            awaits_first_key: AtomicBool::new(false),
        }
    }

    /// Starts the phase in which the first key may not be stored yet, so unknown keys are not reported as invalid.
    pub fn await_first_key(&self) {
        self.awaits_first_key.store(true, Ordering::Release);
    }

    /// Ends the phase: the first key is stored, so unknown keys are invalid.
    pub fn first_key_is_known(&self) {
        self.awaits_first_key.store(false, Ordering::Release);
    }

    /// Returns whether an unknown key may be the first key, which is not stored yet.
    pub fn awaits_first_key(&self) -> bool {
        self.awaits_first_key.load(Ordering::Acquire)
    }

    /// Invalidates the cached results of a partner, or of all partners, after a change. Results of look-ups in
    /// progress are not cached.
    pub fn forget(&self, partner: Option<&PartnerId>) {
        self.cache.forget(partner);
        self.ids.forget();
    }

    /// Returns the grant of a key, and records its use; `None` if the key is not valid or its partner is suspended.
    ///
    /// # Errors
    /// [`StoreFault`] when the store is needed and does not answer.
    pub async fn look_up(&self, key: &str) -> Result<Option<PresentedKey>, StoreFault> {
        if key.len() > KEY_CHARS_MAX {
            return Ok(None);
        }
        let hash = hash(key);
        let Some((grant, standing)) = self.grant_of(&hash).await? else { return Ok(None) };
        let presented_at = self.world.now();
        self.uses.note(&grant, presented_at);
        Ok(Some(PresentedKey { hash, presented_at, grant, standing }))
    }

    /// Confirms what a key grants, or replaces it. In the usual case, when its partner has not changed since the last look-up, this
    /// compares two numbers; otherwise it is a look-up.
    ///
    /// # Errors
    /// [`StoreFault`] when the store is needed and does not answer.
    pub async fn confirm(&self, key: &mut PresentedKey) -> Result<Confirmed, StoreFault> {
        if key.standing.is_current() {
            return Ok(Confirmed::Unchanged);
        }
        let Some((grant, standing)) = self.grant_of(&key.hash).await? else { return Ok(Confirmed::Ended) };
        key.standing = standing;
        if Arc::ptr_eq(&key.grant, &grant) {
            return Ok(Confirmed::Unchanged);
        }
        key.grant = grant;
        Ok(Confirmed::Replaced)
    }

    async fn grant_of(&self, hash: &[u8; 32]) -> Result<Option<(Arc<Grant>, Standing)>, StoreFault> {
        let granted = self.cache.get_or_load(hash, self.query_store(hash)).await?.ok();
        // Also of a cached grant: time passes there, too.
        let now = self.world.now();
        let granted = granted.filter(|(grant, _)| grant.expires_at.is_none_or(|at| now < at));
        Ok(granted.map(|(grant, standing)| {
            let standing = standing.until(grant.expires_at);
            (grant, standing)
        }))
    }

    async fn query_store(&self, hash: &[u8; 32]) -> Result<Answer<Grant, ()>, StoreFault> {
        // Read the flag first, because the first key may be stored while the store is read.
        let awaits_first_key = self.awaits_first_key();
        let refused = if awaits_first_key { Answer::NotYet(()) } else { Answer::Refused(()) };
        let id = id_of(hash);
        if !awaits_first_key && !self.ids.have(&id).await? {
            return Ok(refused);
        }
        let record = self.keys.find(&id).await?;
        let Some(record) = record.filter(|record| is_valid(record, hash)) else { return Ok(refused) };
        let partner = self.partners.find(&record.partner).await?.map(|stored| stored.value);
        let partner = partner.filter(|partner| partner.admits(&record.id));
        Ok(partner.map_or(refused, |partner| Answer::Granted(grant_of(record, partner))))
    }
}

/// Returns whether a stored key has this hash and is not revoked. The comparison takes constant time, because the id
/// reveals only a part of the hash.
fn is_valid(record: &ApiKeyRecord, hash: &[u8; 32]) -> bool {
    record.revoked_at.is_none() && bool::from(record.hash.ct_eq(hash))
}

fn grant_of(record: ApiKeyRecord, partner: Partner) -> Grant {
    let ApiKeyRecord {
        id,
        scopes,
        expires_at,
        last_used_at,
        hash: _,
        partner: _,
        created_at: _,
        revoked_at: _,
    } = record;
    let (scopes, partner) = (Scope::of_stored(&scopes), Arc::new(partner));
    Grant { key_id: id, scopes, expires_at, last_used_at, partner }
}

#[cfg(test)]
mod tests;
