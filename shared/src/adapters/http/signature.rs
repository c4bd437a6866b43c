//! Requests between processes are signed, so that the secret itself never travels: HMAC-SHA256 over
//! the method, the path, the time and the body. An old request is refused; one that is repeated
//! within the time does no harm, since rings, replies and questions can all be repeated.

use std::time::Duration;

use crate::domain::time::Timestamp;
use crate::ring_secret::RingKeys;

/// The header with the time at which a request was signed, in milliseconds since 1970.
pub const TIMESTAMP_HEADER: &str = "x-postonce-timestamp";
/// The header with the signature, in hexadecimal.
pub const SIGNATURE_HEADER: &str = "x-postonce-signature";

/// How far the clock of whoever signed may be from ours, either way.
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(60);

/// What is signed of a request, apart from its time.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// Upper case.
    pub method: &'a str,
    /// The path, with its query if there is one.
    pub path: &'a str,
    /// The whole body.
    pub body: &'a [u8],
}

/// Why a request is not listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header is missing or cannot be read.
    #[error("the request is not signed")]
    Unsigned,
    /// The clocks are too far apart, or somebody repeats an old request.
    #[error("the request was signed more than {} s from now", SIGNATURE_AGE_MAX.as_secs())]
    Stale,
    /// Another secret, or another request than the one that was signed.
    #[error("the signature is wrong; all processes of a bank need the same ring-secret")]
    Wrong,
}

impl Signed<'_> {
    /// The two headers: time and signature.
    pub fn sign(&self, keys: &RingKeys, now: Timestamp) -> (String, String) {
        let timestamp = now.unix_ms().to_string();
        let signature = hex::encode(keys.sign(&[&self.head(&timestamp), self.body]));
        (timestamp, signature)
    }

    /// Whether whoever sent the request with these headers knows the secret.
    ///
    /// # Errors
    /// [`Refused`] when not, or when it was long ago.
    pub fn verify(
        &self,
        keys: &RingKeys,
        now: Timestamp,
        timestamp: &str,
        signature: &str,
    ) -> Result<(), Refused> {
        let signed_at = timestamp.parse().map(Timestamp::from_unix_ms).map_err(|_| Refused::Unsigned)?;
        let signature = hex::decode(signature).map_err(|_| Refused::Unsigned)?;
        let apart = Duration::from_millis(now.unix_ms().abs_diff(signed_at.unix_ms()));
        if apart > SIGNATURE_AGE_MAX {
            return Err(Refused::Stale);
        }
        if keys.verify(&[&self.head(timestamp), self.body], &signature) {
            return Ok(());
        }
        Err(Refused::Wrong)
    }

    /// What is signed before the body.
    fn head(&self, timestamp: &str) -> Vec<u8> {
        let Self { method, path, body: _ } = self;
        // None of the three can hold a line break.
        format!("{method}\n{path}\n{timestamp}\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Signed<'_> = Signed { method: "POST", path: "/internal/ring", body: b"{}" };

    fn keys(text: &str) -> RingKeys {
        RingKeys::parse(text).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(1_795_248_000_000_i64.saturating_add(seconds.saturating_mul(1000)))
    }

    #[test]
    fn only_the_request_that_was_signed_is_listened_to() {
        let (secret, other) = (keys("0123456789abcdef"), keys("0123456789abcdeg"));
        let (time, signature) = REQUEST.sign(&secret, at(0));
        let check = |request: &Signed<'_>, secret, now, time: &str, signature: &str, expected| {
            assert_eq!(
                request.verify(secret, now, time, signature),
                expected,
                "{request:?} {time} {signature}"
            );
        };
        check(&REQUEST, &secret, at(0), &time, &signature, Ok(()));
        for seconds in [-60, 60] {
            check(&REQUEST, &secret, at(seconds), &time, &signature, Ok(()));
        }
        for seconds in [-61, 61, 1_000_000_000] {
            check(&REQUEST, &secret, at(seconds), &time, &signature, Err(Refused::Stale));
        }
        check(&REQUEST, &other, at(0), &time, &signature, Err(Refused::Wrong));
        for changed in [
            Signed { method: "GET", ..REQUEST },
            Signed { path: "/internal/status", ..REQUEST },
            Signed { body: b"{} ", ..REQUEST },
        ] {
            check(&changed, &secret, at(0), &time, &signature, Err(Refused::Wrong));
        }
        let later = at(1).unix_ms().to_string();
        check(&REQUEST, &secret, at(0), &later, &signature, Err(Refused::Wrong));
        check(&REQUEST, &secret, at(0), &time, "", Err(Refused::Wrong));
        check(&REQUEST, &secret, at(0), &time, signature.get(..32).unwrap(), Err(Refused::Wrong));
        check(&REQUEST, &secret, at(0), &time, "no hexadecimal", Err(Refused::Unsigned));
        for no_time in ["", "now", "1.5"] {
            check(&REQUEST, &secret, at(0), no_time, &signature, Err(Refused::Unsigned));
        }
    }

    #[test]
    fn the_signature_is_the_one_that_other_programs_compute() {
        // printf 'POST\n/internal/ring\n1795248000000\n{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let (time, signature) = REQUEST.sign(&keys("0123456789abcdef"), at(0));
        assert_eq!(time, "1795248000000");
        assert_eq!(signature, "73154e2da6068336a8de8e9f2f0843f14164f64531a10bf216e88eaa8787ceef");
    }
}
