//! `Content-Digest` (RFC 9530), also verified without a signature: a client that sends it wants to detect modified bodies.

use actix_web::HttpMessage as _;
use actix_web::HttpRequest;
use sfv::{Dictionary, ListEntry, Parser};
use sha2::{Digest as _, Sha256, Sha512};

use super::VerifiedSignature;
use super::base::field_value;
use crate::error::{ApiError, Code};

/// Header with the digests of the body.
pub const CONTENT_DIGEST: &str = "content-digest";

/// Compares a complete body with the digests of its request.
///
/// # Errors
/// [`ApiError`] with status 400 when the header is malformed or a digest differs, and with status 401 when the
/// request is signed but the signature does not cover the body.
pub fn check(request: &HttpRequest, body: &[u8]) -> Result<(), ApiError> {
    let mut digest = BodyDigest::of(request);
    digest.update(body);
    digest.check(request)
}

/// Computes the digests of a body while it arrives.
pub struct BodyDigest {
    /// The digests in the header, or the reason why they cannot be used.
    expected: Result<Vec<(Hash, Vec<u8>)>, ApiError>,
    is_empty: bool,
}

enum Hash {
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl BodyDigest {
    /// Starts a digest before the first byte of the body.
    pub fn of(request: &HttpRequest) -> Self {
        let has_digests = request.headers().contains_key(CONTENT_DIGEST);
        let header = has_digests.then(|| field_value(request.headers(), CONTENT_DIGEST).unwrap_or_default());
        Self { expected: header.map_or(Ok(Vec::new()), |header| parse(&header)), is_empty: true }
    }

    /// Adds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.is_empty &= bytes.is_empty();
        for (hash, _) in self.expected.iter_mut().flatten() {
            match hash {
                Hash::Sha256(hash) => hash.update(bytes),
                Hash::Sha512(hash) => hash.update(bytes),
            }
        }
    }

    /// Compares the digests at the end of the body.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(self, request: &HttpRequest) -> Result<(), ApiError> {
        let is_uncovered =
            request.extensions().get::<VerifiedSignature>().is_some_and(|signature| !signature.covers_body);
        if is_uncovered && !self.is_empty {
            let detail = "The request has a body, so the signature must also cover content-digest.";
            return Err(ApiError::new(Code::SignatureIncomplete, detail));
        }
        self.compare()
    }

    fn compare(self) -> Result<(), ApiError> {
        let is_equal = |(hash, expected): (Hash, Vec<u8>)| match hash {
            Hash::Sha256(hash) => *hash.finalize() == *expected,
            Hash::Sha512(hash) => *hash.finalize() == *expected,
        };
        if self.expected?.into_iter().all(is_equal) {
            Ok(())
        } else {
            Err(ApiError::new(Code::ContentDigestMismatch, "The body does not match Content-Digest."))
        }
    }
}

/// Parses the supported digests. At least one is required.
fn parse(header: &str) -> Result<Vec<(Hash, Vec<u8>)>, ApiError> {
    let invalid = |detail: &str| ApiError::new(Code::ContentDigestInvalid, detail);
    let digests: Dictionary = Parser::new(header)
        .parse()
        .map_err(|_| invalid("Content-Digest must be a dictionary (RFC 9651), such as sha-256=:…:."))?;
    let mut expected = Vec::new();
    for (algorithm, digest) in &digests {
        let hash = match algorithm.as_str() {
            "sha-256" => Hash::Sha256(Sha256::new()),
            "sha-512" => Hash::Sha512(Box::default()),
            // Additional digests for other recipients are allowed.
            _ => continue,
        };
        let sent = match digest {
            ListEntry::Item(digest) => digest.bare_item.as_byte_sequence(),
            ListEntry::InnerList(_) => None,
        };
        let sent = sent.ok_or_else(|| invalid("A digest must be a byte sequence, such as sha-256=:…:."))?;
        expected.push((hash, sent.to_vec()));
    }
    if expected.is_empty() { Err(invalid("Send a digest with sha-256 or sha-512.")) } else { Ok(expected) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared_as_in_the_rfc() {
        let body = br#"{"hello": "world"}"#;
        let sha_256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
        let sha_512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:";
        let check = |header: &str, body: &[u8], expected: Option<Code>| {
            let mut digest = BodyDigest { expected: parse(header), is_empty: true };
            digest.update(body);
            assert_eq!(digest.compare().err().map(|error| error.code()), expected, "{header}");
        };
        check(sha_256, body, None);
        check(sha_512, body, None);
        check(&format!("{sha_512}, {sha_256}, md5=:AAAA:"), body, None);
        check(sha_256, b"{\"hello\": \"world\"} ", Some(Code::ContentDigestMismatch));
        // A correct digest does not compensate for a wrong one.
        check(&format!("{sha_512}, {}", sha_256.replace('X', "Y")), body, Some(Code::ContentDigestMismatch));
        for unusable in ["", "md5=:AAAA:", "sha-256", "sha-256=abc", "sha-256=(:AAAA:)", "sha-256=:AA", "§"]
        {
            check(unusable, body, Some(Code::ContentDigestInvalid));
        }
    }
}
