//! The shared secret of the processes of one bank. It is configured, or generated on first use and kept in the store.
//!
//! During a rotation two secrets are valid, written `new,old` ([`DoorbellKeys`]).

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use sha2::Sha256;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::backoff::STORE_NEEDED;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::{World, WorldExt as _};

/// Minimum length of a secret, in characters.
pub const RING_SECRET_CHARS_MIN: usize = 16;
const SECRETS_MAX: usize = 2;
/// The name of the value in the store.
pub(crate) const SECRET_VALUE: &str = "ring-secret";

const FINGERPRINT_LABEL: &[u8] = b"postonce fingerprint of a secret, version 1";
const FINGERPRINT_BYTES: usize = 8;
/// Label for deriving the seal key (HKDF-Expand of RFC 5869, one block). With a separate key, a message seal is never
/// valid as another code made with the secret, and vice versa.
const SEAL_LABEL: &[u8] = b"postonce seal of queue messages and payloads, version 1";

/// Label for deriving the session key, by the same scheme.
const SESSION_LABEL: &[u8] = b"postonce sessions of the console, version 1";

/// Length of an authentication code in bytes.
pub const CODE_BYTES: usize = 32;

/// The valid secrets. The first one signs, and all of them verify, so that a new secret can be introduced while some
/// processes know only the old one.
#[derive(Debug, Clone)]
pub struct DoorbellKeys(Arc<[Key]>);

/// One secret and the keys derived from it.
struct Key {
    secret: SecretString,
    /// An HMAC state with the derived key, initialized once rather than per message.
    seal: Hmac<Sha256>,
    session: SecretSlice<u8>,
}

impl Key {
    fn of(secret: &str) -> Self {
        let derived = |label| mac(secret.as_bytes(), &[label, &[1]]).finalize().into_bytes();
        Self {
            seal: mac(&derived(SEAL_LABEL), &[]),
            session: derived(SESSION_LABEL).to_vec().into(),
            secret: SecretString::from(secret),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// Error: the text does not contain usable secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not one secret of at least {RING_SECRET_CHARS_MIN} visible ASCII characters without spaces and semicolons, or \
     two with a comma between them"
)]
pub struct DoorbellKeysError;

impl DoorbellKeys {
    /// Parses one secret, or two as `new,old`.
    ///
    /// # Errors
    /// [`DoorbellKeysError`]
    pub fn parse(text: &str) -> Result<Self, DoorbellKeysError> {
        let secrets: Vec<&str> = text.split(',').collect();
        let valid = |secret: &&str| {
            let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b';';
            secret.len() >= RING_SECRET_CHARS_MIN && secret.bytes().all(is_allowed)
        };
        if secrets.len() > SECRETS_MAX || !secrets.iter().all(valid) {
            return Err(DoorbellKeysError);
        }
        Ok(Self(secrets.into_iter().map(Key::of).collect()))
    }

    fn first(&self) -> &Key {
        self.0.first().expect("there is at least one")
    }

    /// Returns the authentication code of the concatenated parts (HMAC-SHA256).
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        mac(self.first().secret.expose_secret().as_bytes(), parts).finalize().into_bytes().into()
    }

    /// Returns whether the code of these parts is valid under any secret. Compares in constant time.
    pub fn verify(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        let verifies =
            |key: &Key| mac(key.secret.expose_secret().as_bytes(), parts).verify_slice(code).is_ok();
        self.0.iter().any(verifies)
    }

    /// Returns a fingerprint of each secret, which identifies it without revealing it. The signing secret is first.
    pub fn fingerprints(&self) -> Vec<String> {
        let fingerprint = |key: &Key| {
            let code =
                mac(key.secret.expose_secret().as_bytes(), &[FINGERPRINT_LABEL]).finalize().into_bytes();
            code.iter().take(FINGERPRINT_BYTES).map(|byte| format!("{byte:02x}")).collect()
        };
        self.0.iter().map(fingerprint).collect()
    }

    /// Like [`Self::sign`], with the derived seal key; see [`crate::messaging::envelope::seal`].
    pub fn seal(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        updated(self.first().seal.clone(), parts).finalize().into_bytes().into()
    }

    /// Like [`Self::verify`], with the derived seal keys.
    pub fn verify_seal(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        self.0.iter().any(|key| updated(key.seal.clone(), parts).verify_slice(code).is_ok())
    }

    /// Returns the derived 32-byte keys for console sessions. The first one encrypts, and all of them decrypt.
    pub fn session_keys(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|key| key.session.expose_secret())
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    updated(Hmac::new_from_slice(key).expect("a key of any length will do"), parts)
}

fn updated(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> Hmac<Sha256> {
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// The shared secret, which may become known only after the process has started.
#[derive(Debug)]
pub struct DoorbellSecret {
    keys: watch::Sender<Option<DoorbellKeys>>,
    /// Notified when another process rejects a signature.
    refused: Notify,
}

impl DoorbellSecret {
    /// Creates the secret from the configuration. Without a value, call [`Self::establish`].
    pub fn new(configured: Option<&DoorbellKeys>) -> Arc<Self> {
        Arc::new(Self { keys: watch::Sender::new(configured.cloned()), refused: Notify::new() })
    }

    /// Returns the secret if it is already known.
    pub fn known(&self) -> Option<DoorbellKeys> {
        self.keys.borrow().clone()
    }

    /// Waits until the secret is known, and returns it.
    pub async fn get(&self) -> DoorbellKeys {
        let mut known = self.keys.subscribe();
        let secret = known.wait_for(Option::is_some).await.ok().and_then(|secret| secret.clone());
        // The sender lives as long as `self`.
        match secret {
            Some(secret) => secret,
            None => futures::future::pending().await,
        }
    }

    /// Replaces the secrets, and triggers a comparison with the other processes.
    pub fn replace(&self, keys: DoorbellKeys) {
        self.keys.send_replace(Some(keys));
        self.refused.notify_one();
    }

    /// Records that another process rejected a signature of this process.
    pub fn note_refused(&self) {
        self.refused.notify_one();
    }

    /// Waits until another process rejects a signature. Returns immediately if one did since the last call.
    pub async fn refused(&self) {
        self.refused.notified().await;
    }

    /// Reads the secret from the store, or generates and stores one. Processes that start concurrently agree on one
    /// secret. Retries until the store is available.
    pub async fn establish(&self, sync: &dyn SyncStore, world: &dyn World) {
        let mut backoff = STORE_NEEDED.start();
        while self.known().is_none() {
            match agree(sync, world).await {
                Ok(secret) => match DoorbellKeys::parse(secret.expose_secret()) {
                    Ok(keys) => {
                        self.keys.send_replace(Some(keys));
                        return;
                    }
                    Err(invalid) => error!(
                        "The stored value {SECRET_VALUE} {invalid}: processes cannot ring each other until it is \
                         removed, or ring-secret is configured"
                    ),
                },
                Err(fault) => warn!("The doorbell secret is not known yet: {}", chain(&fault)),
            }
            world.sleep(backoff.next(world)).await;
        }
    }
}

/// Returns the stored secret. If there is none, tries to store a new one first.
async fn agree(sync: &dyn SyncStore, world: &dyn World) -> Result<SecretString, StoreFault> {
    if let Some(stored) = sync.get(SECRET_VALUE).await? {
        return Ok(SecretString::from(stored.value));
    }
    let made = format!("{}{}", world.uuid().simple(), world.uuid().simple());
    match sync.swap(SECRET_VALUE, None, &made).await? {
        Swapped::Done(_) => {
            info!("Generated the doorbell secret");
            Ok(SecretString::from(made))
        }
        Swapped::Conflict => {
            let stored = sync.get(SECRET_VALUE).await?;
            Ok(stored.map_or_else(SecretString::default, |stored| SecretString::from(stored.value)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::system::SystemWorld;

    #[tokio::test]
    async fn processes_that_start_at_the_same_time_agree_on_a_secret() {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        let store = MemoryStore::empty(Arc::clone(&world));
        let processes: Vec<_> = (0..8).map(|_| (store.ports().sync, DoorbellSecret::new(None))).collect();
        let establish = processes.iter().map(|(sync, secret)| async {
            secret.establish(&**sync, &*world).await;
            secret.get().await.first().secret.expose_secret().to_owned()
        });
        let secrets = futures::future::join_all(establish).await;
        let first = secrets.first().unwrap();
        assert!(first.len() >= 64 && secrets.iter().all(|secret| secret == first));

        let configured = DoorbellKeys::parse("0123456789abcdef").unwrap();
        let with_configured = DoorbellSecret::new(Some(&configured));
        with_configured.establish(&*store.ports().sync, &*world).await;
        assert_eq!(with_configured.get().await.first().secret.expose_secret(), "0123456789abcdef");
    }

    #[test]
    fn processes_understand_each_other_during_every_step_of_a_rotation() {
        const OLD: &str = "0123456789abcdef";
        const NEW: &str = "fedcba9876543210";
        let steps = [OLD, &format!("{OLD},{NEW}"), &format!("{NEW},{OLD}"), NEW];
        let keys: Vec<DoorbellKeys> = steps.iter().map(|text| DoorbellKeys::parse(text).unwrap()).collect();
        let understands =
            |one: &DoorbellKeys, other: &DoorbellKeys| one.verify(&[b"a", b"b"], &other.sign(&[b"ab"]));
        for (before, after) in keys.iter().zip(keys.iter().skip(1)) {
            assert!(understands(before, after) && understands(after, before), "while a step is rolled out");
        }
        let (first, last) = (keys.first().unwrap(), keys.last().unwrap());
        assert!(!understands(first, last) && !understands(last, first), "the old secret is invalid then");
        assert!(!keys.iter().any(|keys| keys.verify(&[b"ab"], &first.sign(&[b"abc"]))));
        assert!(!keys.iter().any(|keys| keys.verify(&[b"ab"], b"")));
    }

    #[test]
    fn only_usable_secrets_are_parsed() {
        let long = "0123456789abcdef";
        for valid in [long.to_owned(), format!("{long},{long}")] {
            assert!(DoorbellKeys::parse(&valid).is_ok(), "{valid}");
        }
        let three = format!("{long},{long},{long}");
        let second_short = format!("{long},short");
        let semicolon = format!("{long};{long}");
        for wrong in
            ["", ",", "short", "0123456789 abcdef", "0123456789abcdef,", &three, &second_short, &semicolon]
        {
            assert_eq!(DoorbellKeys::parse(wrong).unwrap_err(), DoorbellKeysError, "{wrong}");
        }
    }
}
