//! The seal of a message: proof that a process of the bank wrote it.
//!
//! Anyone with write access to a queue can put a message there, and the items of a message decide what is posted. The bank
//! therefore authenticates each body that it sends (HMAC-SHA256), and trusts only bodies with a valid code
//! ([`Seal::verify`]). A message without one only *names* transactions ([`super::Names`]), and the worker reads their rows.
//!
//! The frame is the same for every version of the envelope:
//!
//! ```text
//! {"seal":"<64 hexadecimal digits>",<the rest of the JSON object>
//! ```
//!
//! The code covers every byte after the comma and the purpose of the body. A worker can therefore check the seal of a
//! newer envelope before it reads the version.
//!
//! The key is derived from the secret of the bank with a separate label ([`DoorbellKeys::seal`]).
//!
//! [`DoorbellKeys::seal`]: crate::cluster::doorbell_secret::DoorbellKeys::seal

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::select;

use crate::cluster::doorbell_secret::{CODE_BYTES, DoorbellSecret};
use crate::ports::world::World;

/// The name of the member that contains the seal.
pub(crate) const SEAL_MEMBER: &str = "seal";
/// The start of a sealed body.
const HEAD: &[u8] = b"{\"seal\":\"";
/// The text between the digits of the code and the rest of the object.
const TAIL: &[u8] = b"\",";
/// Number of bytes that a seal adds to a body, including the brace that it replaces.
pub(super) const SEAL_BYTES: usize = HEAD.len() + 2 * CODE_BYTES + TAIL.len();

/// Longest wait for the secret before a body is sent without a seal.
const SECRET_WAIT_MAX: Duration = Duration::from_secs(2);

/// The purpose of a sealed body. A seal for one purpose is not valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// A queue message or the body of a dead letter.
    Message,
    /// The content of the payload with this name.
    Payload(&'a str),
    /// The statement that all work of the payload with this name is final.
    Settled(&'a str),
    /// The outcome of a chunk of a batch, in a queue message.
    ChunkOutcome,
    /// The attempts in a queue message, which otherwise only names a batch.
    Attempts,
}

impl Purpose<'_> {
    /// Returns the text that is authenticated before the body. The name of a payload has no line break.
    fn prefix(self) -> Cow<'static, str> {
        match self {
            Self::Message => "message\n".into(),
            Self::Payload(name) => format!("payload {name}\n").into(),
            Self::Settled(name) => format!("settled payload {name}\n").into(),
            Self::ChunkOutcome => "chunk outcome\n".into(),
            Self::Attempts => "attempts\n".into(),
        }
    }
}

/// Seals and verifies bodies with the secret of the bank. Until this process knows it, bodies are written without a seal
/// and no seal is valid. Posting still works, at the cost of reading rows.
#[derive(Clone)]
pub struct Seal {
    secret: Arc<DoorbellSecret>,
    /// Whether [`Self::ready`] has already waited for the secret.
    waited: Arc<AtomicBool>,
}

impl Seal {
    /// Creates the seal of a process.
    pub fn new(secret: &Arc<DoorbellSecret>) -> Self {
        Self { secret: Arc::clone(secret), waited: Arc::default() }
    }

    /// Waits until the secret is known, once per process and only for a short time, since the stored value may be invalid.
    pub async fn ready(&self, world: &dyn World) {
        if self.secret.known().is_none() && !self.waited.load(Ordering::Relaxed) {
            select(std::pin::pin!(self.secret.get()), world.sleep(SECRET_WAIT_MAX)).await;
            self.waited.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the secret is known.
    pub fn can_verify(&self) -> bool {
        self.secret.known().is_some()
    }

    /// Adds a seal to a JSON object. Returns it unchanged while the secret is not known.
    pub fn seal(&self, purpose: Purpose<'_>, object: Vec<u8>) -> Vec<u8> {
        let (Some(keys), Some((b'{', rest))) = (self.secret.known(), object.split_first()) else {
            return object;
        };
        let code = keys.seal(&[purpose.prefix().as_bytes(), rest]);
        let mut sealed = Vec::with_capacity(SEAL_BYTES.saturating_add(rest.len()));
        sealed.extend_from_slice(HEAD);
        sealed.extend_from_slice(hex::encode(code).as_bytes());
        sealed.extend_from_slice(TAIL);
        sealed.extend_from_slice(rest);
        sealed
    }

    /// Returns whether the body has a valid seal of the bank for this purpose. The codes are compared in constant time.
    pub fn verify(&self, purpose: Purpose<'_>, body: &[u8]) -> bool {
        let Some((code, rest)) = split(body) else { return false };
        let Some(keys) = self.secret.known() else { return false };
        keys.verify_seal(&[purpose.prefix().as_bytes(), rest], &code)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

/// Splits a sealed body into the code and the bytes that it covers; `None` without a valid frame. Only lower-case
/// digits are accepted, so that a body has only one sealed form.
fn split(body: &[u8]) -> Option<([u8; CODE_BYTES], &[u8])> {
    let (digits, rest) = body.strip_prefix(HEAD)?.split_at_checked(2 * CODE_BYTES)?;
    if !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut code = [0; CODE_BYTES];
    hex::decode_to_slice(digits, &mut code).ok()?;
    Some((code, rest.strip_prefix(TAIL)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::http::signature::Stamp;
    use crate::cluster::doorbell_secret::DoorbellKeys;
    use crate::domain::time::Timestamp;

    const OLD: &str = "0123456789abcdef";
    const NEW: &str = "fedcba9876543210";
    const BODY: &[u8] = br#"{"v":1,"items":[]}"#;

    fn seal(secrets: &str) -> Seal {
        Seal::new(&DoorbellSecret::new(Some(&DoorbellKeys::parse(secrets).unwrap())))
    }

    fn sealed(secrets: &str) -> Vec<u8> {
        seal(secrets).seal(Purpose::Message, BODY.to_vec())
    }

    #[test]
    fn a_sealed_body_has_the_same_members() {
        let sealed = sealed(OLD);
        assert_eq!(sealed.len(), BODY.len() + SEAL_BYTES - 1);
        let mut read: serde_json::Value = serde_json::from_slice(&sealed).unwrap();
        assert!(read.as_object_mut().unwrap().remove("seal").is_some());
        assert_eq!(read, serde_json::from_slice::<serde_json::Value>(BODY).unwrap());
    }

    #[test]
    fn any_changed_byte_breaks_the_seal() {
        let sealed = sealed(OLD);
        assert!(seal(OLD).verify(Purpose::Message, &sealed));
        for place in 0..sealed.len() {
            for change in [1, 0x20, 0x80] {
                let mut changed = sealed.clone();
                changed[place] ^= change;
                assert!(!seal(OLD).verify(Purpose::Message, &changed), "byte {place} ^ {change}");
            }
            assert!(!seal(OLD).verify(Purpose::Message, &sealed[..place]), "cut at {place}");
        }
        let longer = [sealed.as_slice(), b" "].concat();
        assert!(!seal(OLD).verify(Purpose::Message, &longer));
        for foreign in [b"".as_slice(), BODY, HEAD, b"<x/>"] {
            assert!(!seal(OLD).verify(Purpose::Message, foreign));
        }
    }

    #[test]
    fn a_seal_is_valid_for_one_purpose() {
        let payload = seal(OLD).seal(Purpose::Payload("work-1"), BODY.to_vec());
        assert!(seal(OLD).verify(Purpose::Payload("work-1"), &payload));
        assert!(!seal(OLD).verify(Purpose::Payload("work-2"), &payload));
        assert!(!seal(OLD).verify(Purpose::Message, &payload));
        assert!(!seal(OLD).verify(Purpose::Payload("work-1"), &sealed(OLD)));
    }

    #[test]
    fn during_a_rotation_both_secrets_verify_and_the_first_one_seals() {
        let both = format!("{NEW},{OLD}");
        assert!(seal(&both).verify(Purpose::Message, &sealed(OLD)));
        assert!(seal(&both).verify(Purpose::Message, &sealed(NEW)));
        assert!(seal(NEW).verify(Purpose::Message, &sealed(&both)));
        assert!(!seal(OLD).verify(Purpose::Message, &sealed(&both)));
        assert!(!seal(NEW).verify(Purpose::Message, &sealed(OLD)));
    }

    #[test]
    fn without_the_secret_nothing_is_sealed_and_nothing_verifies() {
        let unknown = Seal::new(&DoorbellSecret::new(None));
        assert_eq!(unknown.seal(Purpose::Message, BODY.to_vec()), BODY);
        assert!(!unknown.verify(Purpose::Message, &sealed(OLD)));
    }

    #[test]
    fn a_signed_request_or_another_code_of_the_secret_is_not_a_seal() {
        let (keys, sealed) = (DoorbellKeys::parse(OLD).unwrap(), sealed(OLD));
        let (code, rest) = split(&sealed).unwrap();
        let parts: [&[u8]; 2] = [b"message\n", rest];
        assert_ne!(keys.sign(&parts), code, "the keys differ");
        let nonce = "0".repeat(32);
        let stamp = Stamp { timestamp: "0".to_owned(), nonce, addressee: String::new() };
        let request = stamp.on("message", "", rest);
        assert!(request.verify(&keys, &hex::encode(code), Timestamp::from_unix_ms(0)).is_err());
    }

    #[test]
    fn the_seal_matches_an_independent_computation() {
        // key: printf '%s\001' "$SEAL_LABEL" | openssl dgst -sha256 -hmac 0123456789abcdef -binary
        // code: printf 'message\n%s' '"v":1,"items":[]}' | openssl dgst -sha256 -mac HMAC -macopt hexkey:$key
        let (code, _) = split(&sealed(OLD)).map(|(code, rest)| (hex::encode(code), rest.len())).unwrap();
        assert_eq!(code, "4c383b6bbfc020ef5c6bd9d4406b4986644fb01979c2ee81d478a0b68b8ab7ae");
    }
}
