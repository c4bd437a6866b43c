//! The secret that the processes of one bank share: configured, or made on first use and kept in the
//! store, where all of them find it.
//!
//! While it is being changed there are two of them, written `new,old` ([`DoorbellKeys`]).

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::backoff::STORE_NEEDED;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::{World, WorldExt as _};

/// Shortest secret, in characters.
pub const RING_SECRET_CHARS_MIN: usize = 16;
/// Most secrets at the same time.
const SECRETS_MAX: usize = 2;
/// The name of the value in the store.
const SECRET_VALUE: &str = "ring-secret";

/// What the key of seals is derived with (HKDF-Expand of RFC 5869, one block): no other code that is made
/// with the secret is the seal of a message, and a seal is no other code.
const SEAL_LABEL: &[u8] = b"postonce seal of queue messages and payloads, version 1";

/// Bytes of a code.
pub const CODE_BYTES: usize = 32;

/// The secrets that are good now. The first one signs, and each of them verifies: so a new one can be
/// brought in while processes run that know only the old one.
#[derive(Debug, Clone)]
pub struct DoorbellKeys(Arc<[Key]>);

/// One secret, and the key that is derived from it for seals.
struct Key {
    secret: SecretString,
    /// With the derived key in it, so that it is not set up anew for each message.
    seal: Hmac<Sha256>,
}

impl Key {
    fn of(secret: &str) -> Self {
        let derived = mac(secret.as_bytes(), &[SEAL_LABEL, &[1]]).finalize().into_bytes();
        Self { secret: SecretString::from(secret), seal: mac(&derived, &[]) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// The text holds no secrets that could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not one secret of at least {RING_SECRET_CHARS_MIN} visible ASCII characters without spaces, or two with a \
     comma between them"
)]
pub struct InvalidDoorbellKeys;

impl DoorbellKeys {
    /// Reads one secret, or two as `new,old`.
    ///
    /// # Errors
    /// [`InvalidDoorbellKeys`]
    pub fn parse(text: &str) -> Result<Self, InvalidDoorbellKeys> {
        let secrets: Vec<&str> = text.split(',').collect();
        let sound = |secret: &&str| {
            secret.len() >= RING_SECRET_CHARS_MIN && secret.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if secrets.len() > SECRETS_MAX || !secrets.iter().all(sound) {
            return Err(InvalidDoorbellKeys);
        }
        Ok(Self(secrets.into_iter().map(Key::of).collect()))
    }

    fn first(&self) -> &Key {
        self.0.first().expect("there is at least one")
    }

    /// The code of a message in these parts (HMAC-SHA256).
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        mac(self.first().secret.expose_secret().as_bytes(), parts).finalize().into_bytes().into()
    }

    /// Whether that is the code of these parts by any of the secrets. Takes as long for a wrong one.
    pub fn verify(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        let verifies =
            |key: &Key| mac(key.secret.expose_secret().as_bytes(), parts).verify_slice(code).is_ok();
        self.0.iter().any(verifies)
    }

    /// As [`Self::sign`], with the key that is derived for seals; see [`crate::messaging::envelope::seal`].
    pub fn seal(&self, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        updated(self.first().seal.clone(), parts).finalize().into_bytes().into()
    }

    /// As [`Self::verify`], with the keys that are derived for seals.
    pub fn verify_seal(&self, parts: &[&[u8]], code: &[u8]) -> bool {
        self.0.iter().any(|key| updated(key.seal.clone(), parts).verify_slice(code).is_ok())
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    updated(Hmac::new_from_slice(key).expect("a key of any length will do"), parts)
}

fn updated(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> Hmac<Sha256> {
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// The secret, as soon as it is known.
#[derive(Debug)]
pub struct DoorbellSecret(watch::Sender<Option<DoorbellKeys>>);

impl DoorbellSecret {
    /// The configured secret; without one it has to be established.
    pub fn new(configured: Option<&DoorbellKeys>) -> Self {
        Self(watch::Sender::new(configured.cloned()))
    }

    /// The secret, if it is known by now.
    pub fn known(&self) -> Option<DoorbellKeys> {
        self.0.borrow().clone()
    }

    /// The secret. Waits until it is known.
    pub async fn get(&self) -> DoorbellKeys {
        let mut known = self.0.subscribe();
        let secret = known.wait_for(Option::is_some).await.ok().and_then(|secret| secret.clone());
        // The sender lives as long as `self`.
        match secret {
            Some(secret) => secret,
            None => futures::future::pending().await,
        }
    }

    /// Finds the secret in the store, or puts one there: processes that start at once agree on it.
    /// Goes on until the store can be used.
    pub async fn establish(&self, sync: &dyn SyncStore, world: &dyn World) {
        let mut backoff = STORE_NEEDED.start();
        while self.known().is_none() {
            match agree(sync, world).await {
                Ok(secret) => match DoorbellKeys::parse(secret.expose_secret()) {
                    Ok(keys) => {
                        self.0.send_replace(Some(keys));
                        return;
                    }
                    Err(invalid) => error!(
                        "The stored value {SECRET_VALUE} {invalid}: nothing rings until it is removed, or \
                         ring-secret is configured"
                    ),
                },
                Err(fault) => warn!("The secret of the doorbell is not known yet: {}", chain(&fault)),
            }
            world.sleep(backoff.next(world)).await;
        }
    }
}

/// The stored secret. Whatever becomes of the write, what is read afterwards is what all agree on.
async fn agree(sync: &dyn SyncStore, world: &dyn World) -> Result<SecretString, StoreFault> {
    if let Some(stored) = sync.get(SECRET_VALUE).await? {
        return Ok(SecretString::from(stored.value));
    }
    let made = format!("{}{}", world.uuid().simple(), world.uuid().simple());
    match sync.swap(SECRET_VALUE, None, &made).await? {
        Swapped::Done(_) => {
            info!("Made the secret of the doorbell");
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
    async fn processes_that_start_at_once_agree_on_a_secret() {
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
        let with_its_own = DoorbellSecret::new(Some(&configured));
        with_its_own.establish(&*store.ports().sync, &*world).await;
        assert_eq!(with_its_own.get().await.first().secret.expose_secret(), "0123456789abcdef");
    }

    #[test]
    fn a_secret_is_changed_without_a_moment_in_which_processes_do_not_understand_each_other() {
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
        assert!(!understands(first, last) && !understands(last, first), "the old one is worth nothing then");
        assert!(!keys.iter().any(|keys| keys.verify(&[b"ab"], &first.sign(&[b"abc"]))));
        assert!(!keys.iter().any(|keys| keys.verify(&[b"ab"], b"")));
    }

    #[test]
    fn only_secrets_that_could_be_used_are_read() {
        let long = "0123456789abcdef";
        for sound in [long.to_owned(), format!("{long},{long}")] {
            assert!(DoorbellKeys::parse(&sound).is_ok(), "{sound}");
        }
        let three = format!("{long},{long},{long}");
        let second_short = format!("{long},short");
        for wrong in ["", ",", "short", "0123456789 abcdef", "0123456789abcdef,", &three, &second_short] {
            assert_eq!(DoorbellKeys::parse(wrong).unwrap_err(), InvalidDoorbellKeys, "{wrong}");
        }
    }
}
