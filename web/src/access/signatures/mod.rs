//! Signed requests (RFC 9421), and the digest that binds the body to the signature (RFC 9530).
//!
//! A signature proves that a request is unchanged since the partner signed it, even if a proxy terminates TLS. It is
//! verified from the headers alone, as soon as the partner is known. It must cover the digest of the body; every
//! reader of a body compares that digest ([`digest`]). A signed request with an id of its own can be replayed within
//! its lifetime, but moves no money twice. The signature of any other request that changes state is accepted once:
//! [`VerifiedSignature::uses`] are recorded before the request has any effect.

mod base;
pub mod digest;
mod input;

use std::time::Duration;

use actix_web::HttpMessage as _;
use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use ed25519_dalek::{Signature, VerifyingKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use postonce_shared::access::used_signatures::SignatureUse;
use postonce_shared::config::{PublicAddress, SignatureTerms};
use postonce_shared::domain::partner::{Partner, SignatureAlgorithm, SignatureKey};
use postonce_shared::domain::time::Timestamp;
use sha2::{Digest as _, Sha256};

use self::base::Message;
use self::input::RequestSignature;
use crate::error::{ApiError, Code};
use crate::headers::IDEMPOTENCY_KEY;

/// Header with the signatures.
pub const SIGNATURE: &str = "signature";
/// Header with the covered components, the key id and the creation time of each signature.
pub const SIGNATURE_INPUT: &str = "signature-input";
/// Maximum time by which the creation time of a signature may be in the future.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// Verifies request signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier {
    /// The configured terms.
    pub terms: SignatureTerms,
    /// Whether this process terminates TLS.
    pub is_tls: bool,
}

/// Request extension that marks a request with a valid signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedSignature {
    /// Whether a signature covers the digest of the body.
    pub covers_body: bool,
    /// All valid signatures of the request. Each must be recorded, because each alone would authenticate a repetition.
    pub uses: Vec<SignatureUse>,
}

impl Verifier {
    /// Returns the address at which clients reach the service. Behind a proxy that terminates TLS, it must be
    /// configured: headers such as `Forwarded` are not trusted.
    pub fn address(&self, request: &HttpRequest) -> PublicAddress {
        self.terms.public_address.clone().unwrap_or_else(|| self.requested_address(request))
    }

    /// Returns the address that a request names in its target or `Host` header.
    pub fn requested_address(&self, request: &HttpRequest) -> PublicAddress {
        let scheme = if self.is_tls { "https" } else { "http" };
        let of_header = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(|authority| authority.as_str()).or_else(of_header);
        let authority = host.unwrap_or_default().trim().to_ascii_lowercase();
        let usual_port = if self.is_tls { ":443" } else { ":80" };
        let authority = authority.strip_suffix(usual_port).unwrap_or(&authority).to_owned();
        PublicAddress { scheme: scheme.to_owned(), authority }
    }

    /// Verifies the signatures of a request; one valid signature is enough. They are optional unless the partner must
    /// sign, and ignored if the partner has no signature keys and need not sign.
    ///
    /// # Errors
    /// [`ApiError`] with status 401.
    pub fn check(&self, request: &HttpRequest, partner: &Partner, now: Timestamp) -> Result<(), ApiError> {
        let headers = request.headers();
        let is_signed = [SIGNATURE, SIGNATURE_INPUT].iter().any(|name| headers.contains_key(*name));
        if !is_signed && partner.signature_required {
            let detail = "The partner must sign its requests (RFC 9421): send Signature-Input and Signature.";
            return Err(ApiError::new(Code::SignatureMissing, detail));
        }
        if !is_signed || (partner.signature_keys.is_empty() && !partner.signature_required) {
            return Ok(());
        }
        let message = Message::of(request, self);
        let signed = input::read(headers, &partner.signature_keys)?;
        // One valid signature by the partner is enough.
        let (mut covers_body, mut uses, mut refused) = (false, Vec::new(), None);
        for signed in &signed {
            match self.check_one(signed, &message, now) {
                Ok(with_body) => {
                    covers_body |= with_body;
                    uses.push(signature_use(signed, partner));
                }
                Err(error) => refused = Some(error),
            }
        }
        if uses.is_empty() {
            let unknown = || invalid("No signature uses a key of this partner: check keyid.");
            return Err(refused.unwrap_or_else(unknown));
        }
        request.extensions_mut().insert(VerifiedSignature { covers_body, uses });
        Ok(())
    }

    /// Verifies a signature. Returns whether it covers the digest of the body.
    fn check_one(
        &self,
        signed: &RequestSignature<'_>,
        message: &Message<'_>,
        now: Timestamp,
    ) -> Result<bool, ApiError> {
        let covers_body = require_components(signed, message)?;
        self.require_time(signed, now)?;
        if signed.algorithm.as_deref().is_some_and(|named| named != signed.key.algorithm.code()) {
            let expected = signed.key.algorithm.code();
            return Err(invalid(format!("The key requires {expected}, but alg names another algorithm.")));
        }
        let base = base::signature_base(&signed.components, &signed.params, message)?;
        if is_valid(signed.key, base.as_bytes(), &signed.signature) {
            return Ok(covers_body);
        }
        Err(invalid("The signature does not match the request and the key."))
    }

    fn require_time(&self, signed: &RequestSignature<'_>, now: Timestamp) -> Result<(), ApiError> {
        let expired = |detail: String| Err(ApiError::new(Code::SignatureExpired, detail));
        let now_s = now.unix_ms().div_euclid(1000);
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let (age_max, ahead_max) = (seconds(self.terms.age_max), seconds(AHEAD_MAX));
        let age = now_s.saturating_sub(signed.created);
        if age > age_max {
            return expired(format!("The signature was created {age} s ago; the maximum is {age_max} s."));
        }
        if age < ahead_max.saturating_neg() {
            let ahead = age.saturating_neg();
            return expired(format!(
                "The signature was created {ahead} s in the future; the maximum is {ahead_max} s."
            ));
        }
        if signed.expires.is_some_and(|expires| now_s > expires) {
            return expired("The signature has expired, according to its parameter expires.".to_owned());
        }
        Ok(())
    }
}

/// Identifies a signature by its partner and bytes. Equal signatures of two partners are different uses.
fn signature_use(signed: &RequestSignature<'_>, partner: &Partner) -> SignatureUse {
    let created_at = Timestamp::from_unix_ms(signed.created.saturating_mul(1000));
    // A partner id contains no zero byte, so it cannot run into the signature.
    let hash =
        Sha256::new().chain_update(partner.id.as_str()).chain_update([0]).chain_update(&signed.signature);
    SignatureUse { created_at, hash: hash.finalize().into() }
}

/// Checks that all required components are covered. Returns whether the body is covered.
fn require_components(signed: &RequestSignature<'_>, message: &Message<'_>) -> Result<bool, ApiError> {
    let covers = |name: &str| signed.components.iter().any(|component| component == name);
    let mut missing = Vec::new();
    let mut require = |name: &'static str| {
        if !covers(name) {
            missing.push(name);
        }
    };
    require("@method");
    if !covers("@target-uri") {
        require("@authority");
        require("@path");
        if message.query.is_some() {
            require("@query");
        }
    }
    if announces_body(message.headers) {
        require(digest::CONTENT_DIGEST);
    }
    if message.headers.contains_key(IDEMPOTENCY_KEY) {
        require(IDEMPOTENCY_KEY);
    }
    if missing.is_empty() {
        return Ok(covers(digest::CONTENT_DIGEST));
    }
    let detail = format!("The signature must also cover {}.", missing.join(", "));
    Err(ApiError::new(Code::SignatureIncomplete, detail))
}

/// Returns whether the headers announce a body. An HTTP/2 body needs no announcement, so the reader of the body
/// checks [`VerifiedSignature::covers_body`] again.
fn announces_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.is_some_and(|length| length.trim() != "0") || headers.contains_key(header::TRANSFER_ENCODING)
}

fn is_valid(key: &SignatureKey, base: &[u8], signature: &[u8]) -> bool {
    match key.algorithm {
        // `verify_slice` compares in constant time.
        SignatureAlgorithm::HmacSha256 => Hmac::<Sha256>::new_from_slice(&key.material)
            .is_ok_and(|mac| mac.chain_update(base).verify_slice(signature).is_ok()),
        SignatureAlgorithm::Ed25519 => {
            let material: Option<[u8; 32]> = key.material.as_slice().try_into().ok();
            let key = material.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
            let signature = Signature::from_slice(signature).ok();
            key.zip(signature).is_some_and(|(key, signature)| key.verify_strict(base, &signature).is_ok())
        }
    }
}

fn invalid(detail: impl Into<String>) -> ApiError {
    ApiError::new(Code::SignatureInvalid, detail)
}

#[cfg(test)]
mod tests;
