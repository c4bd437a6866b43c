//! API keys: generation, storage form, and the first key of a new store.
//!
//! A key consists of `po_` and the base64url of 32 random bytes and a checksum of four bytes, which detects typing
//! errors. The store holds only the SHA-256 of a key. The id of a key is the first 16 hexadecimal digits of the hash.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postonce_process::readiness::{Part, Readiness};
use postonce_shared::access::partner_records::PartnerRecords;
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::domain::ids::{PartnerId, PartnerIdError};
use postonce_shared::domain::partner::{ActiveKey, Partner, Reach};
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::World;
use rand::Rng as _;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

pub use self::first_key_place::FirstKeyPlace;
use crate::access::scopes::Scope;

mod first_key_place;

/// Minimum length of a configured key, in characters.
pub const CONFIGURED_KEY_CHARS_MIN: usize = 16;
/// Maximum length of a key, in characters. Longer texts are refused without being hashed.
pub const KEY_CHARS_MAX: usize = 256;
const KEY_PREFIX: &str = "po_";
/// Number of random bytes in a generated key.
const KEY_BYTES: usize = 32;
/// Number of checksum bytes after the random bytes.
const CHECKSUM_BYTES: usize = 4;
/// Id of the partner that owns the first key of a store.
pub const BOOTSTRAP_PARTNER: &str = "bootstrap";

/// Returns the SHA-256 of a key.
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Returns the id of the key with this hash.
pub fn id_of(hash: &[u8; 32]) -> String {
    let (head, _) = hash.split_at(8);
    hex::encode(head)
}

/// Returns whether a text has the form of a generated key. Such a key cannot be guessed.
pub fn is_generated_key(key: &str) -> bool {
    decoded(key).map(|bytes| bytes.len()) == KEY_BYTES.checked_add(CHECKSUM_BYTES)
}

/// Returns whether an unknown key has the form of a generated key but a wrong checksum. Configured keys may have this form.
pub fn is_mistyped(key: &str) -> bool {
    let bytes = decoded(key).unwrap_or_default();
    let (random, rest) = bytes.split_at_checked(KEY_BYTES).unwrap_or_default();
    rest.len() == CHECKSUM_BYTES && rest != checksum(random)
}

fn decoded(key: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(key.strip_prefix(KEY_PREFIX)?).ok()
}

/// Returns the checksum of a key: the first bytes of the SHA-256 of its random bytes.
fn checksum(random: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(random));
    [a, b, c, d]
}

/// API key in clear text. It is shown once and never stored.
#[derive(Debug, Clone)]
pub struct NewKey(SecretString);

impl NewKey {
    /// Generates a random key.
    pub fn random() -> Self {
        let mut bytes = [0; KEY_BYTES];
        // Keys need the generator that the operating system seeds: the seed of a simulation must not reproduce them.
        rand::rng().fill_bytes(&mut bytes);
        let text = BASE64_URL_SAFE_NO_PAD.encode([bytes.as_slice(), &checksum(&bytes)].concat());
        Self(SecretString::from(format!("{KEY_PREFIX}{text}")))
    }

    /// Validates a configured key.
    ///
    /// # Errors
    /// [`ApiKeyError`] when the key is too short or too long, or has characters that a header cannot contain.
    pub fn configured(key: &SecretString) -> Result<Self, ApiKeyError> {
        let text = key.expose_secret();
        let length = text.chars().count();
        let sound = (CONFIGURED_KEY_CHARS_MIN..=KEY_CHARS_MAX).contains(&length)
            && text.chars().all(|c| c.is_ascii_graphic());
        if sound { Ok(Self(key.clone())) } else { Err(ApiKeyError) }
    }

    /// Returns the key in clear text, to show it to its owner.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Returns the id of the key.
    pub fn id(&self) -> String {
        id_of(&hash(self.expose()))
    }

    /// Builds the record for the store.
    pub fn record(&self, partner: PartnerId, scopes: &[Scope], world: &dyn World) -> ApiKeyRecord {
        let hash = hash(self.expose());
        ApiKeyRecord {
            id: id_of(&hash),
            hash,
            partner,
            scopes: Scope::to_stored(scopes),
            created_at: world.now(),
            revoked_at: None,
            expires_at: None,
            last_used_at: None,
        }
    }
}

/// Error for a text that is not acceptable as an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not a valid key: {CONFIGURED_KEY_CHARS_MIN} to {KEY_CHARS_MAX} visible ASCII characters without white space"
)]
pub struct ApiKeyError;

/// First key of a new store. Retry on the same value: after a write with unknown outcome, a new value could leave a
/// stored key that was never shown.
#[derive(Debug)]
pub struct FirstKey {
    key: NewKey,
    is_configured: bool,
    place: FirstKeyPlace,
}

/// Result of establishing the first key.
#[must_use]
#[derive(Debug)]
pub enum FirstKeyOutcome {
    /// This process generated the key. It must be shown now, once.
    Made(NewKey),
    /// The configured key is stored.
    Configured,
    /// The store already had a key.
    AlreadyPresent,
    /// The configured key is ignored, because the `bootstrap` partner has other keys.
    ConfiguredIgnored,
    /// The generated key could not be written to its file, so it was not stored.
    NotKept(std::io::Error),
}

impl FirstKey {
    /// Validates the configured key, or generates a random one that is written to `place`.
    ///
    /// # Errors
    /// [`ApiKeyError`] when the configured key is not acceptable.
    pub fn try_new(configured: Option<&SecretString>, place: FirstKeyPlace) -> Result<Self, ApiKeyError> {
        let key = configured.map_or_else(|| Ok(NewKey::random()), NewKey::configured)?;
        Ok(Self { key, is_configured: configured.is_some(), place })
    }

    /// Returns the destination of a generated key.
    pub const fn place(&self) -> &FirstKeyPlace {
        &self.place
    }

    /// Stores the first key if the store has no partner. Processes that start concurrently agree on one key: each
    /// stores its key, and then tries to create the record of partner `bootstrap`, which succeeds only once. The
    /// others revoke their keys.
    ///
    /// # Errors
    /// [`StoreFault`] when the store is not available. Retry on the same value.
    pub async fn establish(&self, store: &Store, world: &dyn World) -> Result<FirstKeyOutcome, StoreFault> {
        let partners = PartnerRecords::new(store);
        let id = bootstrap_partner();
        let record = self.key.record(id.clone(), Scope::ALL, world);
        if let Some(known) = partners.find(&id).await? {
            return Ok(self.compared(&known.value, &record.id));
        }
        if !self.is_configured && !partners.list(None, 1).await?.is_empty() {
            return Ok(FirstKeyOutcome::AlreadyPresent);
        }
        if !self.is_configured
            && let Err(error) = self.place.keep(&self.key)
        {
            return Ok(FirstKeyOutcome::NotKept(error));
        }
        store.api_keys.add(&record).await?;
        let keys = vec![ActiveKey { id: record.id.clone(), created_at: record.created_at }];
        let partner = Partner { keys, ..Partner::active(id.clone(), Reach::Everything, world.now()) };
        match partners.save(&partner, None).await? {
            Swapped::Done(_) => Ok(self.compared(&partner, &record.id)),
            Swapped::Conflict => {
                let known = partners.find(&id).await?.map(|stored| stored.value);
                let is_mine = known.as_ref().is_some_and(|known| known.has_key(&record.id));
                if !is_mine {
                    store.api_keys.revoke(&record.id, world.now()).await?;
                    if !self.is_configured {
                        self.place.discard(&self.key);
                    }
                }
                Ok(known.map_or(FirstKeyOutcome::AlreadyPresent, |known| self.compared(&known, &record.id)))
            }
        }
    }

    /// Derives the outcome from the keys of the `bootstrap` partner.
    fn compared(&self, known: &Partner, own_id: &str) -> FirstKeyOutcome {
        match (known.has_key(own_id), self.is_configured) {
            (true, true) => FirstKeyOutcome::Configured,
            // An earlier attempt of this process may have stored the key without receiving the answer.
            (true, false) => FirstKeyOutcome::Made(self.key.clone()),
            (false, true) => FirstKeyOutcome::ConfiguredIgnored,
            (false, false) => FirstKeyOutcome::AlreadyPresent,
        }
    }

    /// Repeats [`Self::establish`] until it succeeds.
    pub async fn establish_with_retry(
        &self,
        store: &Store,
        world: &dyn World,
        readiness: &Readiness,
    ) -> FirstKeyOutcome {
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

fn bootstrap_partner() -> PartnerId {
    let partner: Result<PartnerId, PartnerIdError> = PartnerId::parse(BOOTSTRAP_PARTNER);
    partner.expect("the constant is a valid partner id")
}

#[cfg(test)]
mod tests;
