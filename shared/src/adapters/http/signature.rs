//! Signatures of requests between processes. A signature is an HMAC-SHA256 over the method, path, time, nonce, address
//! of the recipient, and body, so the shared secret itself is never sent. [`super::Recipient`] refuses requests that
//! are too old, repeated, or addressed to another process.

use std::time::Duration;

use uuid::Uuid;

use crate::cluster::doorbell_secret::DoorbellKeys;
use crate::domain::time::Timestamp;
use crate::ports::process_registry::Address;

/// The header with the time at which a request was signed, in milliseconds since 1970.
pub const TIMESTAMP_HEADER: &str = "x-postonce-timestamp";
/// The header with the nonce: 32 hexadecimal characters, unique to the request.
pub const NONCE_HEADER: &str = "x-postonce-nonce";
/// The header with the address of the recipient, as in the process registry.
pub const ADDRESSEE_HEADER: &str = "x-postonce-addressee";
/// The header with the id of the intended process, if the caller knows it. It is not signed: a request without it is
/// accepted by any process that listens at the address.
pub const RECIPIENT_HEADER: &str = "x-postonce-recipient";
/// The header with the signature, in hexadecimal.
pub const SIGNATURE_HEADER: &str = "x-postonce-signature";

/// Maximum difference between the clocks of caller and recipient.
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(60);

/// Number of characters of a nonce.
const NONCE_CHARS: usize = 32;

/// A nonce in binary form.
pub type NonceBytes = [u8; NONCE_CHARS / 2];

/// The values that make a request valid once, for a limited time, and for one process: the text of all signature
/// headers except the signature.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// Time of the signature, in milliseconds since 1970.
    pub timestamp: String,
    /// The nonce, in hexadecimal.
    pub nonce: String,
    /// The address of the recipient.
    pub addressee: String,
}

/// The signed parts of a request, in the form in which they are sent.
#[derive(Debug, Clone, Copy)]
pub struct PeerRequest<'a> {
    /// The method in upper case.
    pub method: &'a str,
    /// The path, with its query if there is one.
    pub path: &'a str,
    /// The timestamp of the [`Stamp`].
    pub timestamp: &'a str,
    /// The nonce of the [`Stamp`].
    pub nonce: &'a str,
    /// The addressee of the [`Stamp`].
    pub addressee: &'a str,
    /// The whole body.
    pub body: &'a [u8],
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A signature header is missing or cannot be parsed.
    #[error("the request has no signature, or no time, nonce and addressee")]
    Unsigned,
    /// The clocks differ too much, or an old request was replayed.
    #[error("the request was signed more than {} s from now", SIGNATURE_AGE_MAX.as_secs())]
    Stale,
    /// The request was signed with another secret, or changed after it was signed.
    #[error("the signature is wrong; all processes of a bank need the same ring-secret")]
    Wrong,
    /// The request is addressed to another process.
    #[error("the request is for another address than the one that this process advertises")]
    Elsewhere,
    /// An earlier process at this address may have accepted the request.
    #[error("the request was signed before this process started, or before its clock was set back")]
    BeforeStart,
    /// The request was accepted before.
    #[error("a request with this nonce was received before")]
    Repeated,
    /// The request is valid, but its nonce cannot be remembered, so it could be replayed.
    #[error("more requests arrived within a minute than this process can remember")]
    TooMany,
}

impl Stamp {
    /// Creates the stamp of a request to the process at `to`, signed at `now`. The nonce must be unique.
    pub fn new(nonce: Uuid, now: Timestamp, to: &Address) -> Self {
        let timestamp = now.unix_ms().to_string();
        Self { timestamp, nonce: nonce.simple().to_string(), addressee: to.to_string() }
    }

    /// Returns the signed parts of a request with this stamp.
    pub fn on<'a>(&'a self, method: &'a str, path: &'a str, body: &'a [u8]) -> PeerRequest<'a> {
        let Self { timestamp, nonce, addressee } = self;
        PeerRequest { method, path, timestamp, nonce, addressee, body }
    }
}

impl PeerRequest<'_> {
    /// Returns the signature in hexadecimal.
    pub fn sign(&self, keys: &DoorbellKeys) -> String {
        hex::encode(keys.sign(&[&self.head(), self.body]))
    }

    /// Checks that the caller knows the secret and signed the request recently. Returns the time of the signature and
    /// the nonce. Does not check that the request is new and addressed to this process.
    ///
    /// # Errors
    /// [`Refused`] when the request is unsigned, not recent, or signed with another secret.
    pub fn verify(
        &self,
        keys: &DoorbellKeys,
        signature: &str,
        now: Timestamp,
    ) -> Result<(Timestamp, NonceBytes), Refused> {
        let signed_at = self.timestamp.parse().map(Timestamp::from_unix_ms).map_err(|_| Refused::Unsigned)?;
        let mut nonce = NonceBytes::default();
        hex::decode_to_slice(self.nonce, &mut nonce).map_err(|_| Refused::Unsigned)?;
        let signature = hex::decode(signature).map_err(|_| Refused::Unsigned)?;
        let apart = Duration::from_millis(now.unix_ms().abs_diff(signed_at.unix_ms()));
        if apart > SIGNATURE_AGE_MAX {
            return Err(Refused::Stale);
        }
        if keys.verify(&[&self.head(), self.body], &signature) {
            return Ok((signed_at, nonce));
        }
        Err(Refused::Wrong)
    }

    /// Returns the bytes that are signed before the body.
    fn head(&self) -> Vec<u8> {
        let Self { method, path, timestamp, nonce, addressee, body: _ } = self;
        // Each value is on its own line. No value contains a line break, because each is part of the request line or a
        // header. So no character can be moved from one value to the next without changing the signature.
        format!("{method}\n{path}\n{timestamp}\n{nonce}\n{addressee}\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: PeerRequest<'_> = PeerRequest {
        method: "POST",
        path: "/internal/ring",
        timestamp: "1795248000000",
        nonce: "00112233445566778899aabbccddeeff",
        addressee: "http://10.0.0.7:8081",
        body: b"{}",
    };

    fn keys(text: &str) -> DoorbellKeys {
        DoorbellKeys::parse(text).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(1_795_248_000_000_i64.saturating_add(seconds.saturating_mul(1000)))
    }

    #[test]
    fn only_the_signed_request_is_accepted() {
        let (secret, other) = (keys("0123456789abcdef"), keys("0123456789abcdeg"));
        let signature = REQUEST.sign(&secret);
        let check = |request: &PeerRequest<'_>, secret, now, signature: &str, expected| {
            let verified = request.verify(secret, signature, now).map(drop);
            assert_eq!(verified, expected, "{request:?} {signature}");
        };
        check(&REQUEST, &secret, at(0), &signature, Ok(()));
        for seconds in [-60, 60] {
            check(&REQUEST, &secret, at(seconds), &signature, Ok(()));
        }
        for seconds in [-61, 61, 1_000_000_000] {
            check(&REQUEST, &secret, at(seconds), &signature, Err(Refused::Stale));
        }
        check(&REQUEST, &other, at(0), &signature, Err(Refused::Wrong));
        for changed in [
            PeerRequest { method: "GET", ..REQUEST },
            PeerRequest { path: "/internal/status", ..REQUEST },
            PeerRequest { timestamp: "1795248000001", ..REQUEST },
            PeerRequest { nonce: "00112233445566778899aabbccddeefe", ..REQUEST },
            PeerRequest { addressee: "http://10.0.0.8:8081", ..REQUEST },
            PeerRequest { body: b"{} ", ..REQUEST },
            // The same characters, with a line break at another position.
            PeerRequest { addressee: "http://10.0.0.7:80", body: b"81{}", ..REQUEST },
            PeerRequest { path: "/internal/ring1", timestamp: "795248000000", ..REQUEST },
        ] {
            let stale_or_wrong = changed.verify(&secret, &signature, at(0)).map(drop).unwrap_err();
            assert!([Refused::Wrong, Refused::Stale].contains(&stale_or_wrong), "{changed:?}");
        }
        check(&REQUEST, &secret, at(0), "", Err(Refused::Wrong));
        check(&REQUEST, &secret, at(0), signature.get(..32).unwrap(), Err(Refused::Wrong));
        check(&REQUEST, &secret, at(0), "no hexadecimal", Err(Refused::Unsigned));
        for no_time in ["", "now", "1.5"] {
            check(
                &PeerRequest { timestamp: no_time, ..REQUEST },
                &secret,
                at(0),
                &signature,
                Err(Refused::Unsigned),
            );
        }
        for no_nonce in ["", "00", "00112233445566778899aabbccddeef", "g0112233445566778899aabbccddeeff"] {
            let request = PeerRequest { nonce: no_nonce, ..REQUEST };
            check(&request, &secret, at(0), &request.sign(&secret), Err(Refused::Unsigned));
        }
    }

    #[test]
    fn the_signature_equals_that_of_openssl() {
        // printf 'POST\n/internal/ring\n1795248000000\n00112233445566778899aabbccddeeff\nhttp://10.0.0.7:8081\n{}' \
        //   | openssl dgst -sha256 -hmac 0123456789abcdef
        let to = Address::parse(REQUEST.addressee).unwrap();
        let nonce = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let stamp = Stamp::new(nonce, at(0), &to);
        let signature = stamp.on("POST", "/internal/ring", b"{}").sign(&keys("0123456789abcdef"));
        assert_eq!(signature, REQUEST.sign(&keys("0123456789abcdef")));
        assert_eq!(signature, "821b866bd3ed7af97269ccbc91d3302e873ececbcde6f6817eec22d5d0697a79");
    }
}
