//! Where signed requests arrive: takes each of them once, and only those that are meant for this process.
//!
//! A captured request is worth nothing: it names the process that it is for, and that process remembers
//! the nonces of all requests that it took for as long as their time would be good.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;

use super::signature::{NonceBytes, Refused, SIGNATURE_AGE_MAX, Signed};
use crate::cluster::doorbell_secret::DoorbellKeys;
use crate::domain::time::Timestamp;
use crate::ports::process_registry::Address;

/// Most nonces that are remembered. A nonce is remembered for at most two minutes, where the clock of the
/// caller is a minute ahead, so this is enough for 8,700 requests a second without a pause. The callers
/// have at most one ring and one note in flight for each process, and each carries many. Takes at most
/// about 50 MiB. When it is reached, requests are refused until the oldest nonces expire.
const NONCES_MAX: usize = 1 << 20;

/// Takes the signed requests to one process. One for each process, shared by all of its servers.
pub struct Recipient {
    address: Address,
    accepted: Mutex<Accepted>,
}

/// The requests that were taken.
struct Accepted {
    /// Nothing is known of requests that were signed until then: the process had not started, or their
    /// nonces were forgotten.
    unknown_until: Timestamp,
    /// When each was signed, and its nonce. The oldest ones are first.
    nonces: BTreeSet<(Timestamp, NonceBytes)>,
    most: usize,
}

impl Recipient {
    /// The process that others call at `address`, and that started at that time. Requests that were signed
    /// before are refused: a process that ran at the same address may have taken them.
    pub fn new(address: Address, started_at: Timestamp) -> Self {
        let unknown_until = started_at.before(Duration::from_millis(1));
        let accepted = Accepted { unknown_until, nonces: BTreeSet::new(), most: NONCES_MAX };
        Self { address, accepted: Mutex::new(accepted) }
    }

    /// Where others call this process.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Takes a request, once: another process of the bank signed it, lately, and for this process.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn take(
        &self,
        request: &Signed<'_>,
        signature: &str,
        keys: &DoorbellKeys,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let (signed_at, nonce) = request.verify(keys, signature, now)?;
        if request.addressee != self.address.as_str() {
            return Err(Refused::Elsewhere);
        }
        self.accepted.lock().add(signed_at, nonce, now)
    }
}

impl Accepted {
    fn add(&mut self, signed_at: Timestamp, nonce: NonceBytes, now: Timestamp) -> Result<(), Refused> {
        self.forget_expired(now);
        if signed_at <= self.unknown_until {
            return Err(Refused::BeforeStart);
        }
        if self.nonces.contains(&(signed_at, nonce)) {
            return Err(Refused::Repeated);
        }
        if self.nonces.len() >= self.most {
            return Err(Refused::TooMany);
        }
        self.nonces.insert((signed_at, nonce));
        Ok(())
    }

    fn forget_expired(&mut self, now: Timestamp) {
        let good_since = now.before(SIGNATURE_AGE_MAX);
        while let Some(&(signed_at, _)) = self.nonces.first()
            && signed_at < good_since
        {
            // Refused from now on, also if the clock is set back and its time is good again.
            self.unknown_until = signed_at;
            self.nonces.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::http::signature::Stamp;

    const START: i64 = 1_795_248_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(START.saturating_add(seconds.saturating_mul(1000)))
    }

    fn keys() -> DoorbellKeys {
        DoorbellKeys::parse("0123456789abcdef").unwrap()
    }

    fn address() -> Address {
        Address::parse("http://10.0.0.7:8081").unwrap()
    }

    /// A request of that time with a nonce of that number.
    fn request(number: u128, seconds: i64, to: &Address) -> (Stamp, String) {
        let stamp = Stamp::new(uuid::Uuid::from_u128(number), at(seconds), to);
        let signature = stamp.on("POST", "/internal/ring", b"{}").sign(&keys());
        (stamp, signature)
    }

    fn take(recipient: &Recipient, (stamp, signature): &(Stamp, String), now: i64) -> Result<(), Refused> {
        recipient.take(&stamp.on("POST", "/internal/ring", b"{}"), signature, &keys(), at(now))
    }

    #[test]
    fn a_request_is_taken_once_for_as_long_as_its_time_is_good_and_not_after() {
        let recipient = Recipient::new(address(), at(-3600));
        let (now, ahead) = (request(1, 0, &address()), request(2, 60, &address()));
        for one in [&now, &ahead] {
            assert_eq!(take(&recipient, one, 0), Ok(()));
            assert_eq!(take(&recipient, one, 0), Err(Refused::Repeated));
        }
        assert_eq!(take(&recipient, &now, 60), Err(Refused::Repeated));
        assert_eq!(take(&recipient, &now, 61), Err(Refused::Stale));
        assert_eq!(take(&recipient, &ahead, 120), Err(Refused::Repeated));
        assert_eq!(take(&recipient, &ahead, 121), Err(Refused::Stale));
        // Many at the same time, and one nonce at another time, are other requests.
        assert_eq!(take(&recipient, &request(3, 120, &address()), 121), Ok(()));
        assert_eq!(take(&recipient, &request(3, 121, &address()), 121), Ok(()));
        assert_eq!(recipient.accepted.lock().nonces.len(), 2, "what is too old takes no memory");
    }

    #[test]
    fn a_request_for_another_process_is_refused_and_not_remembered() {
        let recipient = Recipient::new(address(), at(0));
        for other in ["http://10.0.0.7:8082", "http://10.0.0.8:8081"] {
            let elsewhere = request(1, 0, &Address::parse(other).unwrap());
            assert_eq!(take(&recipient, &elsewhere, 0), Err(Refused::Elsewhere));
        }
        assert_eq!(take(&recipient, &request(1, 0, &address()), 0), Ok(()));
    }

    #[test]
    fn what_a_process_does_not_remember_it_refuses() {
        let recipient = Recipient::new(address(), at(0));
        assert_eq!(take(&recipient, &request(1, -1, &address()), 0), Err(Refused::BeforeStart));
        let taken = request(2, 10, &address());
        assert_eq!(take(&recipient, &taken, 10), Ok(()));
        // The clock goes on until the request is forgotten, and is then set back.
        assert_eq!(take(&recipient, &request(3, 100, &address()), 100), Ok(()));
        assert_eq!(take(&recipient, &taken, 10), Err(Refused::BeforeStart));
        assert_eq!(
            take(&recipient, &request(4, 11, &address()), 11),
            Ok(()),
            "nothing was forgotten of then"
        );
    }

    #[test]
    fn when_too_many_are_remembered_new_ones_are_refused_and_none_is_forgotten() {
        let recipient = Recipient::new(address(), at(0));
        recipient.accepted.lock().most = 2;
        let taken = [request(1, 0, &address()), request(2, 1, &address())];
        for one in &taken {
            assert_eq!(take(&recipient, one, 1), Ok(()));
        }
        assert_eq!(take(&recipient, &request(3, 1, &address()), 1), Err(Refused::TooMany));
        for one in &taken {
            assert_eq!(take(&recipient, one, 1), Err(Refused::Repeated));
        }
        assert_eq!(take(&recipient, &request(3, 1, &address()), 61), Ok(()), "the first one has expired");
    }
}
