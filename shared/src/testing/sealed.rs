//! Sealed bodies for tests: the seal of a bank with a known secret, and changes that an outsider could make to a body.
#![expect(clippy::unwrap_used, reason = "test code")]

use crate::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
use crate::domain::ids::TransactionKey;
use crate::messaging::envelope::seal::{Purpose, Seal};
use crate::messaging::envelope::{Body, Content, Envelope};

/// The secret of test banks.
pub const SECRET: &str = "the-secret-of-the-tests";

/// Returns the seal of test banks.
pub fn seal() -> Seal {
    seal_of(SECRET)
}

/// Returns the seal for another secret, or for two secrets as `new,old`.
pub fn seal_of(secrets: &str) -> Seal {
    Seal::new(&DoorbellSecret::new(Some(&DoorbellKeys::parse(secrets).unwrap())))
}

/// Returns the work in a sealed body.
pub fn envelope_in(body: &[u8]) -> Envelope {
    match Body::decode(body, &seal()) {
        Ok(Body::Content(Content::Work(envelope))) => envelope,
        other => panic!("not sealed work: {other:?}"),
    }
}

/// Returns the transactions in a letter with this body; none if the body is not sealed work.
pub fn held_in(body: &[u8]) -> Vec<TransactionKey> {
    match Body::decode(body, &seal()) {
        Ok(Body::Content(Content::Work(envelope))) => {
            envelope.items.into_iter().map(|work| work.submission.key).collect()
        }
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// Removes the seal of a body, if any.
pub fn unsealed(body: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(body).unwrap();
    match text.strip_prefix("{\"seal\":\"").and_then(|rest| rest.split_once("\",")) {
        Some((_, rest)) => format!("{{{rest}").into_bytes(),
        None => body.to_vec(),
    }
}

/// Replaces the seal of a body with a valid one.
pub fn resealed(body: &[u8]) -> Vec<u8> {
    seal().seal(Purpose::Message, unsealed(body))
}
