//! Checks the signed requests that arrive. Each request is accepted once, and only by the process that it is addressed to.
//!
//! A captured request cannot be replayed: it contains the address of its recipient, and the recipient remembers the
//! nonces of all accepted requests until their timestamps expire.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;

use super::signature::{NonceBytes, PeerRequest, Refused, SIGNATURE_AGE_MAX};
use crate::cluster::doorbell_secret::DoorbellKeys;
use crate::domain::time::Timestamp;
use crate::ports::process_registry::Address;

/// Maximum number of remembered nonces, which use at most about 50 MiB. A nonce is remembered for at most two minutes
/// (if the caller's clock is one minute ahead), so this limit allows a steady 8,700 requests per second. Each caller
/// has at most one ring and one note in flight per recipient, and each carries many items. At the limit, requests are
/// refused until the oldest nonces expire.
const NONCES_MAX: usize = 1 << 20;

/// Accepts the signed requests to one process. All HTTP servers of a process share one recipient.
pub struct Recipient {
    address: Address,
    accepted: Mutex<Accepted>,
}

/// The nonces of the accepted requests.
struct Accepted {
    /// Requests signed at or before this time are refused, because they may be replays: they were signed before the
    /// process started, or their nonces were removed.
    unknown_until: Timestamp,
    /// Signature time and nonce of each request, oldest first.
    nonces: BTreeSet<(Timestamp, NonceBytes)>,
    most: usize,
}

impl Recipient {
    /// Creates the recipient of a process with this address and start time. Requests signed before the start are
    /// refused, because an earlier process at the same address may have accepted them.
    pub fn new(address: Address, started_at: Timestamp) -> Self {
        let unknown_until = started_at.before(Duration::from_millis(1));
        let accepted = Accepted { unknown_until, nonces: BTreeSet::new(), most: NONCES_MAX };
        Self { address, accepted: Mutex::new(accepted) }
    }

    /// Returns the address of this process.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Accepts a request once, if a process of the bank signed it recently for this recipient.
    ///
    /// # Errors
    /// [`Refused`] when the request must not be accepted.
    pub fn take(
        &self,
        request: &PeerRequest<'_>,
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
            // Requests of this age are refused from now on, even if the clock is set back.
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

    /// Returns a signed request with this nonce and time.
    fn request(number: u128, seconds: i64, to: &Address) -> (Stamp, String) {
        let stamp = Stamp::new(uuid::Uuid::from_u128(number), at(seconds), to);
        let signature = stamp.on("POST", "/internal/ring", b"{}").sign(&keys());
        (stamp, signature)
    }

    fn take(recipient: &Recipient, (stamp, signature): &(Stamp, String), now: i64) -> Result<(), Refused> {
        recipient.take(&stamp.on("POST", "/internal/ring", b"{}"), signature, &keys(), at(now))
    }

    #[test]
    fn a_request_is_accepted_once_until_it_expires() {
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
        // Another nonce with the same time, and the same nonce with another time, are different requests.
        assert_eq!(take(&recipient, &request(3, 120, &address()), 121), Ok(()));
        assert_eq!(take(&recipient, &request(3, 121, &address()), 121), Ok(()));
        assert_eq!(recipient.accepted.lock().nonces.len(), 2, "expired nonces are removed");
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
    fn requests_that_cannot_be_checked_are_refused() {
        let recipient = Recipient::new(address(), at(0));
        assert_eq!(take(&recipient, &request(1, -1, &address()), 0), Err(Refused::BeforeStart));
        let taken = request(2, 10, &address());
        assert_eq!(take(&recipient, &taken, 10), Ok(()));
        // The clock advances until the nonce is removed, and is then set back.
        assert_eq!(take(&recipient, &request(3, 100, &address()), 100), Ok(()));
        assert_eq!(take(&recipient, &taken, 10), Err(Refused::BeforeStart));
        assert_eq!(
            take(&recipient, &request(4, 11, &address()), 11),
            Ok(()),
            "later nonces were not removed"
        );
    }

    #[test]
    fn at_the_limit_new_requests_are_refused_and_no_nonce_is_removed() {
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
