//! `Content-Digest` (RFC 9530): whoever sends one wants to be sure that the body arrived as it was, so it
//! is compared whether the request is signed or not.

use actix_web::HttpMessage as _;
use actix_web::HttpRequest;
use sfv::{Dictionary, ListEntry, Parser};
use sha2::{Digest as _, Sha256, Sha512};

use super::Proven;
use super::base::field_value;
use crate::error::{ApiError, Code};

/// The header with the digests of the body.
pub const CONTENT_DIGEST: &str = "content-digest";

/// Compares a body that was read whole with what its request says of it.
///
/// # Errors
/// [`ApiError`] of status 400 when the digest cannot be read or is another one, and of status 401 when the
/// request is signed and the signature leaves the body open.
pub fn check(request: &HttpRequest, body: &[u8]) -> Result<(), ApiError> {
    let proven = request.extensions().get::<Proven>().copied();
    if proven.is_some_and(|proven| !proven.covers_body) && !body.is_empty() {
        let detail = "There is a body, so the signature must also cover content-digest.";
        return Err(ApiError::new(Code::SignatureIncomplete, detail));
    }
    if !request.headers().contains_key(CONTENT_DIGEST) {
        return Ok(());
    }
    compare(&field_value(request.headers(), CONTENT_DIGEST).unwrap_or_default(), body)
}

fn compare(header: &str, body: &[u8]) -> Result<(), ApiError> {
    let invalid = |detail: &str| ApiError::new(Code::ContentDigestInvalid, detail);
    let digests: Dictionary = Parser::new(header)
        .parse()
        .map_err(|_| invalid("Content-Digest must be a dictionary of RFC 9651, such as sha-256=:…:."))?;
    let mut compared = false;
    for (algorithm, digest) in &digests {
        let computed = match algorithm.as_str() {
            "sha-256" => Sha256::digest(body).to_vec(),
            "sha-512" => Sha512::digest(body).to_vec(),
            // A client may send others beside it, for others.
            _ => continue,
        };
        let ListEntry::Item(digest) = digest else {
            return Err(invalid("A digest must be a byte sequence, such as sha-256=:…:."));
        };
        let sent = digest.bare_item.as_byte_sequence();
        let sent = sent.ok_or_else(|| invalid("A digest must be a byte sequence, such as sha-256=:…:."))?;
        if sent != computed.as_slice() {
            let detail = "The body is not the one that Content-Digest was made of.";
            return Err(ApiError::new(Code::ContentDigestMismatch, detail));
        }
        compared = true;
    }
    if compared { Ok(()) } else { Err(invalid("Send a digest by sha-256 or sha-512.")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared_as_the_rfc_has_them() {
        let body = br#"{"hello": "world"}"#;
        let sha_256 = "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:";
        let sha_512 = "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:";
        let check = |header: &str, body: &[u8], expected: Option<Code>| {
            assert_eq!(compare(header, body).err().map(|error| error.code()), expected, "{header}");
        };
        check(sha_256, body, None);
        check(sha_512, body, None);
        check(&format!("{sha_512}, {sha_256}, md5=:AAAA:"), body, None);
        check(sha_256, b"{\"hello\": \"world\"} ", Some(Code::ContentDigestMismatch));
        // One that is wrong is not made up for by one that is right.
        check(&format!("{sha_512}, {}", sha_256.replace('X', "Y")), body, Some(Code::ContentDigestMismatch));
        for unusable in ["", "md5=:AAAA:", "sha-256", "sha-256=abc", "sha-256=(:AAAA:)", "sha-256=:AA", "§"]
        {
            check(unusable, body, Some(Code::ContentDigestInvalid));
        }
    }
}
