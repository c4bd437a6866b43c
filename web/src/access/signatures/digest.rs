//! `Content-Digest` (RFC 9530). The digest is verified for signed and unsigned requests alike: a client that
//! sends one wants to detect a modified body.

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
    /// Only if the request has digests.
    hashes: Option<Box<(Sha256, Sha512)>>,
    is_empty: bool,
}

impl BodyDigest {
    /// Starts before the first byte of the body.
    pub fn of(request: &HttpRequest) -> Self {
        let hashes = request.headers().contains_key(CONTENT_DIGEST).then(Box::default);
        Self { hashes, is_empty: true }
    }

    /// Adds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.is_empty &= bytes.is_empty();
        if let Some(hashes) = &mut self.hashes {
            hashes.0.update(bytes);
            hashes.1.update(bytes);
        }
    }

    /// Compares the digests at the end of the body.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(self, request: &HttpRequest) -> Result<(), ApiError> {
        let signature = request.extensions().get::<VerifiedSignature>().copied();
        if signature.is_some_and(|signature| !signature.covers_body) && !self.is_empty {
            let detail = "The request has a body, so the signature must also cover content-digest.";
            return Err(ApiError::new(Code::SignatureIncomplete, detail));
        }
        let Some(hashes) = self.hashes else { return Ok(()) };
        compare(&field_value(request.headers(), CONTENT_DIGEST).unwrap_or_default(), *hashes)
    }
}

fn compare(header: &str, (sha_256, sha_512): (Sha256, Sha512)) -> Result<(), ApiError> {
    let invalid = |detail: &str| ApiError::new(Code::ContentDigestInvalid, detail);
    let digests: Dictionary = Parser::new(header)
        .parse()
        .map_err(|_| invalid("Content-Digest must be a dictionary (RFC 9651), such as sha-256=:…:."))?;
    let (sha_256, sha_512) = (sha_256.finalize(), sha_512.finalize());
    let mut compared = false;
    for (algorithm, digest) in &digests {
        let computed = match algorithm.as_str() {
            "sha-256" => sha_256.as_slice(),
            "sha-512" => sha_512.as_slice(),
            // Additional digests for other recipients are allowed.
            _ => continue,
        };
        let ListEntry::Item(digest) = digest else {
            return Err(invalid("A digest must be a byte sequence, such as sha-256=:…:."));
        };
        let sent = digest.bare_item.as_byte_sequence();
        let sent = sent.ok_or_else(|| invalid("A digest must be a byte sequence, such as sha-256=:…:."))?;
        if sent != computed {
            let detail = "The body does not match Content-Digest.";
            return Err(ApiError::new(Code::ContentDigestMismatch, detail));
        }
        compared = true;
    }
    if compared { Ok(()) } else { Err(invalid("Send a digest with sha-256 or sha-512.")) }
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
            let hashes = (Sha256::new_with_prefix(body), Sha512::new_with_prefix(body));
            assert_eq!(compare(header, hashes).err().map(|error| error.code()), expected, "{header}");
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
