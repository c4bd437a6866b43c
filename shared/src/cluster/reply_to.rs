//! Where to reply, as it travels with the work: an address, until when somebody waits there, and the
//! proof that a process of the bank wrote it.
//!
//! A queue carries what anybody put there who may write to it. Without the proof such a producer
//! could make a worker call any address of its network, and learn there what became of a transaction.
//! So nothing gives the address away but [`ReplySeal::open`]. The proof covers address and time, not
//! the work: envelopes are split and sent anew, and whoever copies a proof to other work only has a
//! process of the bank told of what it does not wait for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::doorbell_secret::{CODE_BYTES, DoorbellKeys, DoorbellSecret};
use crate::domain::time::Timestamp;
use crate::ports::process_registry::Address;
use crate::ports::world::World;

/// How long a reply is wanted: nobody waits for more than half a minute, and clocks may be as far apart
/// as they may be for a signed request.
const WANTED_FOR: Duration = Duration::from_secs(90);

/// What is signed begins with that, in place of the method of a request: the one is never taken for
/// the other.
const PURPOSE: &str = "reply-to";

/// Most characters of a written proof: a time, a point and a code in hexadecimal.
pub const PROOF_CHARS_MAX: usize = 20 + 1 + 2 * CODE_BYTES;

/// Where to reply, and the proof.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyTo {
    /// Not to be called before the proof was checked.
    address: Address,
    until: Timestamp,
    code: [u8; CODE_BYTES],
}

/// Why nobody is told there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// This process does not know the secret yet.
    #[error("the secret of the bank is not known yet")]
    NoSecret,
    /// Whoever waited has given up.
    #[error("nobody waits there any more")]
    Late,
    /// Another secret, or somebody who knows none.
    #[error("no process of the bank asked for a reply there; all of them need the same ring-secret")]
    Forged,
}

impl ReplyTo {
    /// What stands in a queue message. `None` for what is no address or no proof, and for addresses without one:
    /// older processes write those. Whoever waits reads the row then.
    pub fn read(address: Option<&str>, proof: Option<&str>) -> Option<Self> {
        let (until, code) = proof?.split_once('.')?;
        let code = hex::decode(code).ok()?.try_into().ok()?;
        let (address, until) = (Address::parse(address?).ok()?, Timestamp::from_unix_ms(until.parse().ok()?));
        Some(Self { address, until, code })
    }

    /// What is to stand in a queue message: the address and the proof.
    pub fn write(asked: Option<&Self>) -> (Option<String>, Option<String>) {
        let Some(Self { address, until, code }) = asked else { return (None, None) };
        (Some(address.to_string()), Some(format!("{}.{}", until.unix_ms(), hex::encode(code))))
    }

    /// Whether that is the address of a process that knows its own.
    pub fn is_at(&self, own: &Address) -> bool {
        self.address == *own
    }
}

/// What is signed. Neither of the two can hold a line break.
fn signed(address: &Address, until: Timestamp) -> Vec<u8> {
    format!("{PURPOSE}\n{address}\n{}\n", until.unix_ms()).into_bytes()
}

/// Asks for replies, and opens what others ask, with the secret of the bank.
#[derive(Clone)]
pub struct ReplySeal {
    secret: Arc<DoorbellSecret>,
    world: Arc<dyn World>,
}

impl ReplySeal {
    /// The seal of a process.
    pub fn new(secret: &Arc<DoorbellSecret>, world: &Arc<dyn World>) -> Self {
        Self { secret: Arc::clone(secret), world: Arc::clone(world) }
    }

    /// Asks for a reply at an address, from now on for a while; `None` while the secret is not known.
    pub fn ask(&self, address: &Address) -> Option<ReplyTo> {
        let keys: DoorbellKeys = self.secret.known()?;
        let until = self.world.now().after(WANTED_FOR);
        let code = keys.sign(&[&signed(address, until)]);
        Some(ReplyTo { address: address.clone(), until, code })
    }

    /// The address, if a process of the bank asked for a reply there and may still wait.
    ///
    /// # Errors
    /// [`Unproven`]
    pub fn open<'a>(&self, to: &'a ReplyTo) -> Result<&'a Address, Unproven> {
        let keys = self.secret.known().ok_or(Unproven::NoSecret)?;
        if !keys.verify(&[&signed(&to.address, to.until)], &to.code) {
            return Err(Unproven::Forged);
        }
        if self.world.now() > to.until {
            return Err(Unproven::Late);
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
        ReplySeal::new(&Arc::new(DoorbellSecret::new(keys.as_ref())), &world)
    }

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn only_who_knows_the_secret_is_replied_to_and_not_for_ever() {
        let world = Arc::new(TestWorld::new(1));
        let (own, other) = (seal(Some("0123456789abcdef"), &world), seal(Some("0123456789abcdeg"), &world));
        let (web, thief) = (address("http://10.0.0.7:8080"), address("http://10.0.0.8:8080"));
        let asked = own.ask(&web).unwrap();
        assert_eq!(own.open(&asked), Ok(&web));
        assert_eq!(other.open(&asked), Err(Unproven::Forged), "another bank");
        let elsewhere = ReplyTo { address: thief, ..asked.clone() };
        assert_eq!(own.open(&elsewhere), Err(Unproven::Forged));
        let longer = ReplyTo { until: asked.until.after(Duration::from_millis(1)), ..asked.clone() };
        assert_eq!(own.open(&longer), Err(Unproven::Forged));
        let unknown = seal(None, &world);
        assert_eq!((unknown.ask(&web), unknown.open(&asked)), (None, Err(Unproven::NoSecret)));
        world.advance(WANTED_FOR);
        assert_eq!(own.open(&asked), Ok(&web));
        world.advance(Duration::from_millis(1));
        assert_eq!(own.open(&asked), Err(Unproven::Late));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is_read() {
        let world = Arc::new(TestWorld::new(1));
        let asked = seal(Some("0123456789abcdef"), &world).ask(&address("http://10.0.0.7:8080")).unwrap();
        let (Some(at), Some(proof)) = ReplyTo::write(Some(&asked)) else { panic!("both are written") };
        assert!(proof.len() <= PROOF_CHARS_MAX);
        assert_eq!(ReplyTo::read(Some(&at), Some(&proof)), Some(asked));
        assert_eq!(ReplyTo::read(Some(&at), None), None, "as older processes ask");
        assert_eq!(ReplyTo::read(None, Some(&proof)), None);
        assert_eq!(ReplyTo::read(Some("https://thief.example/"), Some(&proof)), None);
        let cut = proof.get(..proof.len().saturating_sub(2)).unwrap();
        for wrong in ["", ".", "1.", ".00", "now.00", cut, &format!("{proof}00")] {
            assert_eq!(ReplyTo::read(Some(&at), Some(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn a_signed_request_is_no_proof_and_a_proof_no_signed_request() {
        let world = Arc::new(TestWorld::new(1));
        let keys = DoorbellKeys::parse("0123456789abcdef").unwrap();
        let asked = seal(Some("0123456789abcdef"), &world).ask(&address("http://10.0.0.7:8080")).unwrap();
        let (path, time) = (asked.address.to_string(), asked.until.unix_ms().to_string());
        for method in ["GET", "POST", "PUT"] {
            let (nonce, addressee) = (&"0".repeat(32), &path);
            let request = PeerRequest { method, path: &path, timestamp: &time, nonce, addressee, body: b"" };
            let code = hex::encode(asked.code);
            assert!(request.verify(&keys, &code, asked.until).is_err(), "{method}");
        }
    }
}
