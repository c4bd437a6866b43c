//! The return address that travels with the work: an address, the end of the waiting time, and a proof that a process
//! of the bank wrote both.
//!
//! Other programs can also write to a queue. Without the proof they could make a worker call any address in its network
//! and disclose the outcome of a transaction to it. Therefore only [`ReplySeal::verify`] returns the address. The proof
//! covers address and time but not the work, because envelopes are split and sent again. A proof copied to other work
//! only causes a useless reply to a process of the bank.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::doorbell_secret::{CODE_BYTES, DoorbellKeys, DoorbellSecret};
use crate::domain::time::Timestamp;
use crate::ports::process_registry::Address;
use crate::ports::world::World;

/// How long a reply is accepted. Requests wait for at most half a minute, and clocks may differ as much as for a signed
/// request.
const WANTED_FOR: Duration = Duration::from_secs(90);

/// Prefix of the signed text, in place of the HTTP method, so that a proof is never valid as a signed request, and vice
/// versa.
const PURPOSE: &str = "reply-to";

/// Maximum length of a proof in characters: a time, a dot and a code in hexadecimal.
pub const PROOF_CHARS_MAX: usize = 20 + 1 + 2 * CODE_BYTES;

/// A return address with its proof.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyTo {
    /// Must not be called before the proof is verified.
    address: Address,
    until: Timestamp,
    code: [u8; CODE_BYTES],
}

/// Why no reply is sent to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyProofError {
    /// This process does not know the secret yet.
    #[error("the secret of the bank is not known yet")]
    NoSecret,
    /// The waiting time has ended.
    #[error("the waiting time of the request has ended")]
    Expired,
    /// The code was made with another secret, or without one.
    #[error("no process of the bank signed this reply address; all processes need the same ring-secret")]
    Forged,
}

impl ReplyTo {
    /// Decodes the fields of a queue message. Returns `None` if the address or the proof is missing or not valid; the
    /// request then reads the transaction row.
    pub fn read(address: Option<&str>, proof: Option<&str>) -> Option<Self> {
        let (until, code) = proof?.split_once('.')?;
        let code = hex::decode(code).ok()?.try_into().ok()?;
        let (address, until) = (Address::parse(address?).ok()?, Timestamp::from_unix_ms(until.parse().ok()?));
        Some(Self { address, until, code })
    }

    /// Encodes address and proof for a queue message.
    pub fn write(reply_to: Option<&Self>) -> (Option<String>, Option<String>) {
        let Some(Self { address, until, code }) = reply_to else { return (None, None) };
        (Some(address.to_string()), Some(format!("{}.{}", until.unix_ms(), hex::encode(code))))
    }

    /// Returns whether this is the address `own`.
    pub fn is_at(&self, own: &Address) -> bool {
        self.address == *own
    }
}

/// Returns the signed text. Neither part can contain a line break.
fn signed_text(address: &Address, until: Timestamp) -> Vec<u8> {
    format!("{PURPOSE}\n{address}\n{}\n", until.unix_ms()).into_bytes()
}

/// Signs return addresses, and verifies them for other processes, with the secret of the bank.
#[derive(Clone)]
pub struct ReplySeal {
    secret: Arc<DoorbellSecret>,
    world: Arc<dyn World>,
}

impl ReplySeal {
    /// Creates the seal of a process.
    pub fn new(secret: &Arc<DoorbellSecret>, world: &Arc<dyn World>) -> Self {
        Self { secret: Arc::clone(secret), world: Arc::clone(world) }
    }

    /// Signs a return address that is valid from now; `None` while the secret is not known.
    pub fn sign(&self, address: &Address) -> Option<ReplyTo> {
        let keys: DoorbellKeys = self.secret.known()?;
        let until = self.world.now().after(WANTED_FOR);
        let code = keys.sign(&[&signed_text(address, until)]);
        Some(ReplyTo { address: address.clone(), until, code })
    }

    /// Returns the address if a process of the bank signed it and a request may still wait there.
    ///
    /// # Errors
    /// [`ReplyProofError`]
    pub fn verify<'a>(&self, to: &'a ReplyTo) -> Result<&'a Address, ReplyProofError> {
        let keys = self.secret.known().ok_or(ReplyProofError::NoSecret)?;
        if !keys.verify(&[&signed_text(&to.address, to.until)], &to.code) {
            return Err(ReplyProofError::Forged);
        }
        if self.world.now() > to.until {
            return Err(ReplyProofError::Expired);
        }
        Ok(&to.address)
    }
}

impl fmt::Debug for ReplySeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplySeal").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::http::signature::PeerRequest;
    use crate::adapters::memory::world::TestWorld;

    fn seal(secret: Option<&str>, world: &Arc<TestWorld>) -> ReplySeal {
        let keys = secret.map(|text| DoorbellKeys::parse(text).unwrap());
        let world: Arc<dyn World> = world.clone();
        ReplySeal::new(&DoorbellSecret::new(keys.as_ref()), &world)
    }

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn replies_go_only_to_signed_addresses_and_for_a_limited_time() {
        let world = Arc::new(TestWorld::new(1));
        let (own, other) = (seal(Some("0123456789abcdef"), &world), seal(Some("0123456789abcdeg"), &world));
        let (web, attacker) = (address("http://10.0.0.7:8080"), address("http://10.0.0.8:8080"));
        let reply_to = own.sign(&web).unwrap();
        assert_eq!(own.verify(&reply_to), Ok(&web));
        assert_eq!(other.verify(&reply_to), Err(ReplyProofError::Forged), "another bank");
        let elsewhere = ReplyTo { address: attacker, ..reply_to.clone() };
        assert_eq!(own.verify(&elsewhere), Err(ReplyProofError::Forged));
        let longer = ReplyTo { until: reply_to.until.after(Duration::from_millis(1)), ..reply_to.clone() };
        assert_eq!(own.verify(&longer), Err(ReplyProofError::Forged));
        let unknown = seal(None, &world);
        assert_eq!((unknown.sign(&web), unknown.verify(&reply_to)), (None, Err(ReplyProofError::NoSecret)));
        world.advance(WANTED_FOR);
        assert_eq!(own.verify(&reply_to), Ok(&web));
        world.advance(Duration::from_millis(1));
        assert_eq!(own.verify(&reply_to), Err(ReplyProofError::Expired));
    }

    #[test]
    fn only_encoded_addresses_with_a_proof_are_decoded() {
        let world = Arc::new(TestWorld::new(1));
        let reply_to = seal(Some("0123456789abcdef"), &world).sign(&address("http://10.0.0.7:8080")).unwrap();
        let (Some(at), Some(proof)) = ReplyTo::write(Some(&reply_to)) else { panic!("both are written") };
        assert!(proof.len() <= PROOF_CHARS_MAX);
        assert_eq!(ReplyTo::read(Some(&at), Some(&proof)), Some(reply_to));
        assert_eq!(ReplyTo::read(Some(&at), None), None);
        assert_eq!(ReplyTo::read(None, Some(&proof)), None);
        assert_eq!(ReplyTo::read(Some("https://thief.example/"), Some(&proof)), None);
        let cut = proof.get(..proof.len().saturating_sub(2)).unwrap();
        for wrong in ["", ".", "1.", ".00", "now.00", cut, &format!("{proof}00")] {
            assert_eq!(ReplyTo::read(Some(&at), Some(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_signed_request_is_not_a_valid_proof_and_the_reverse() {
        let world = Arc::new(TestWorld::new(1));
        let keys = DoorbellKeys::parse("0123456789abcdef").unwrap();
        let reply_to = seal(Some("0123456789abcdef"), &world).sign(&address("http://10.0.0.7:8080")).unwrap();
        let (path, time) = (reply_to.address.to_string(), reply_to.until.unix_ms().to_string());
        for method in ["GET", "POST", "PUT"] {
            let (nonce, addressee) = (&"0".repeat(32), &path);
            let request = PeerRequest { method, path: &path, timestamp: &time, nonce, addressee, body: b"" };
            let code = hex::encode(reply_to.code);
            assert!(request.verify(&keys, &code, reply_to.until).is_err(), "{method}");
        }
    }
}
