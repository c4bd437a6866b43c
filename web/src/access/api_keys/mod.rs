//! API keys: how they are made, how they are stored, and how a new store gets its first one.
//!
//! A key is `po_` and 32 random bytes in base64url. The store holds its SHA-256 only, under the
//! first 16 hexadecimal digits of it.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::domain::ids::{InvalidPartner, PartnerId};
use postonce_shared::domain::partner::{ActiveKey, Partner, Reach};
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::World;
use rand::Rng as _;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::access::adoption::adopt;
use crate::access::scopes::Scope;
use postonce_shared::ports::fault::chain;
use postonce_worker::readiness::{Part, Readiness};

/// Fewest characters of a key that somebody configured.
pub const CONFIGURED_KEY_CHARS_MIN: usize = 16;
/// Most characters of a key; longer ones are refused before they are hashed.
pub const KEY_CHARS_MAX: usize = 256;
/// What keys that were made here begin with.
const KEY_PREFIX: &str = "po_";
/// Random bytes of such a key.
const KEY_BYTES: usize = 32;
/// The partner of the first key of a store.
pub const BOOTSTRAP_PARTNER: &str = "bootstrap";

/// SHA-256 of a key.
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The id of the key with that hash.
pub fn id_of(hash: &[u8; 32]) -> String {
    let (head, _) = hash.split_at(8);
    hex::encode(head)
}

/// Whether a text looks like a key that was made here: then it is too long to be guessed.
pub fn is_of_ours(key: &str) -> bool {
    let bytes = key.strip_prefix(KEY_PREFIX).and_then(|rest| BASE64_URL_SAFE_NO_PAD.decode(rest).ok());
    bytes.is_some_and(|bytes| bytes.len() == KEY_BYTES)
}

/// A key in the clear. It is shown once and never stored.
#[derive(Debug, Clone)]
pub struct NewKey(SecretString);

impl NewKey {
    /// A new random key.
    pub fn random() -> Self {
        let mut bytes = [0; KEY_BYTES];
        // A cryptographic generator, which the operating system seeds: a key must not come out of a
        // seed that repeats a run.
        rand::rng().fill_bytes(&mut bytes);
        Self(SecretString::from(format!("{KEY_PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// A key that somebody chose.
    ///
    /// # Errors
    /// [`UnsoundKey`] when it is too easy to guess or cannot stand in a header.
    pub fn configured(key: &SecretString) -> Result<Self, UnsoundKey> {
        let text = key.expose_secret();
        let length = text.chars().count();
        let sound = (CONFIGURED_KEY_CHARS_MIN..=KEY_CHARS_MAX).contains(&length)
            && text.chars().all(|c| c.is_ascii_graphic());
        if sound { Ok(Self(key.clone())) } else { Err(UnsoundKey) }
    }

    /// The key itself, to show it to its owner.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Names it.
    pub fn id(&self) -> String {
        id_of(&hash(self.expose()))
    }

    /// What the store keeps of it.
    pub fn record(&self, partner: PartnerId, scopes: &[Scope], world: &dyn World) -> ApiKeyRecord {
        let hash = hash(self.expose());
        ApiKeyRecord {
            id: id_of(&hash),
            hash,
            partner,
            scopes: scopes.iter().map(|scope| scope.code().to_owned()).collect(),
            created_at: world.now(),
            revoked_at: None,
        }
    }
}

/// The text cannot be an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not a key: {CONFIGURED_KEY_CHARS_MIN} to {KEY_CHARS_MAX} visible ASCII characters without white space"
)]
pub struct UnsoundKey;

/// The key that a new store gets. Keep it across attempts: after an unclear write, the same key must
/// be tried again, or nobody would know the one that was stored.
#[derive(Debug)]
pub struct FirstKey {
    key: NewKey,
    is_configured: bool,
}

/// How it came that the store knows its first key.
#[must_use]
#[derive(Debug)]
pub enum Established {
    /// This process made it: it has to be shown now, once.
    Made(NewKey),
    /// It is the configured one.
    Configured,
    /// The store had one, or other keys, before.
    Before,
    /// The partner of the first key has other keys, so the configured one was not taken up.
    ConfiguredIgnored,
}

impl FirstKey {
    /// The configured key, or else a random one.
    ///
    /// # Errors
    /// [`UnsoundKey`] when the configured one must not be used.
    pub fn try_new(configured: Option<&SecretString>) -> Result<Self, UnsoundKey> {
        let key = configured.map_or_else(|| Ok(NewKey::random()), NewKey::configured)?;
        Ok(Self { key, is_configured: configured.is_some() })
    }

    /// Gives the store its first key if it knows no partner. Processes that start at once agree on one: each
    /// writes the row of its key, and the record of partner `bootstrap`, which can be made only once, decides
    /// whose key it is. Whoever loses revokes its own.
    ///
    /// # Errors
    /// [`StoreFault`] when the store cannot be used; call again on the same value.
    pub async fn establish(&self, store: &Store, world: &dyn World) -> Result<Established, StoreFault> {
        // Keys of an older program count, before anything is decided about a first one.
        adopt(store, world).await?;
        let id = bootstrap_partner();
        let record = self.key.record(id.clone(), Scope::ALL, world);
        if let Some(known) = store.partners.find(&id).await? {
            return Ok(self.compared(&known.value, &record.id));
        }
        if !self.is_configured && !store.partners.list(None, 1).await?.is_empty() {
            return Ok(Established::Before);
        }
        store.api_keys.add(&record).await?;
        let keys = vec![ActiveKey { id: record.id.clone(), created_at: record.created_at }];
        let partner = Partner { keys, ..Partner::active(id.clone(), Reach::Everything, world.now()) };
        match store.partners.save(&partner, None).await? {
            Swapped::Done(_) => Ok(self.compared(&partner, &record.id)),
            Swapped::Conflict => {
                let known = store.partners.find(&id).await?.map(|stored| stored.value);
                let is_mine = known.as_ref().is_some_and(|known| known.has_key(&record.id));
                if !is_mine {
                    store.api_keys.revoke(&record.id, world.now()).await?;
                }
                Ok(known.map_or(Established::Before, |known| self.compared(&known, &record.id)))
            }
        }
    }

    /// What it means that the partner of the first key has those keys.
    fn compared(&self, known: &Partner, own_id: &str) -> Established {
        match (known.has_key(own_id), self.is_configured) {
            (true, true) => Established::Configured,
            // Also when an earlier attempt of ours was unclear, and had happened.
            (true, false) => Established::Made(self.key.clone()),
            (false, true) => Established::ConfiguredIgnored,
            (false, false) => Established::Before,
        }
    }

    /// [`Self::establish`], again and again until the store can be used.
    pub async fn establish_at_last(
        &self,
        store: &Store,
        world: &dyn World,
        readiness: &Readiness,
    ) -> Established {
        let mut backoff = STORE_NEEDED.start();
        loop {
            match self.establish(store, world).await {
                Ok(established) => {
                    readiness.gain(Part::FirstKey);
                    return established;
                }
                Err(fault) => {
                    tracing::warn!("The first API key is not stored yet: {}", chain(&fault));
                    world.sleep(backoff.next(world)).await;
                }
            }
        }
    }
}

/// The partner of the first key.
fn bootstrap_partner() -> PartnerId {
    let partner: Result<PartnerId, InvalidPartner> = PartnerId::parse(BOOTSTRAP_PARTNER);
    partner.expect("the name keeps the rules of partners")
}

#[cfg(test)]
mod tests;
