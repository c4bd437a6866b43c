//! Signed requests (RFC 9421), and the digest that binds the body to the signature (RFC 9530).
//!
//! A signature proves that a request is as a partner's machine made it, whatever ends TLS in between. It is
//! looked at as soon as the partner is known, from the headers alone: it must cover the digest of the body,
//! and the digest is compared when the body is read ([`digest`]), on every path that reads one. A signed
//! request that is repeated within its time is let in again, and moves no money twice: it has the same
//! `Idempotency-Key`.

mod base;
pub mod digest;
mod input;

use std::time::Duration;

use actix_web::HttpMessage as _;
use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use ed25519_dalek::{Signature, VerifyingKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use postonce_shared::config::{PublicAddress, SignatureTerms};
use postonce_shared::domain::partner::{Partner, SignatureAlgorithm, SignatureKey};
use postonce_shared::domain::time::Timestamp;
use sha2::Sha256;

use self::base::Message;
use self::input::Signed;
use crate::error::{ApiError, Code};
use crate::headers::IDEMPOTENCY_KEY;

/// The header with the signatures.
pub const SIGNATURE: &str = "signature";
/// The header that says what was signed, by whom and when.
pub const SIGNATURE_INPUT: &str = "signature-input";
/// How far a client's clock may be ahead of ours.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// How signatures are held against a request: the terms, and the scheme that is spoken here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verifier {
    /// The configured terms.
    pub terms: SignatureTerms,
    /// Whether the process itself speaks TLS.
    pub is_tls: bool,
}

/// Left with a request whose signature was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proven {
    /// Whether it covers the digest of the body.
    pub covers_body: bool,
}

impl Verifier {
    /// Where the client of a request reaches the service. Where a proxy ends TLS, only the configuration
    /// knows what the client wrote into its address bar: what headers such as `Forwarded` say is anybody's
    /// word.
    pub fn address(&self, request: &HttpRequest) -> PublicAddress {
        if let Some(address) = &self.terms.public_address {
            return address.clone();
        }
        let scheme = if self.is_tls { "https" } else { "http" };
        let of_header = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(|authority| authority.as_str()).or_else(of_header);
        let authority = host.unwrap_or_default().trim().to_ascii_lowercase();
        let usual_port = if self.is_tls { ":443" } else { ":80" };
        let authority = authority.strip_suffix(usual_port).unwrap_or(&authority).to_owned();
        PublicAddress { scheme: scheme.to_owned(), authority }
    }

    /// Checks the signature of a request of that partner. One that need not sign may leave it out; what a
    /// partner without keys calls a signature is of no interest.
    ///
    /// # Errors
    /// [`ApiError`] of status 401.
    pub fn check(&self, request: &HttpRequest, partner: &Partner, now: Timestamp) -> Result<(), ApiError> {
        let headers = request.headers();
        let is_signed = [SIGNATURE, SIGNATURE_INPUT].iter().any(|name| headers.contains_key(*name));
        if !is_signed && partner.signature_required {
            let detail = "Partner must sign its requests (RFC 9421): send Signature-Input and Signature.";
            return Err(ApiError::new(Code::SignatureMissing, detail));
        }
        if !is_signed || (partner.signature_keys.is_empty() && !partner.signature_required) {
            return Ok(());
        }
        let message = Message::of(request, self);
        let signed = input::read(headers, &partner.signature_keys)?;
        // Of several signatures by the partner one that is right is enough.
        let mut refused = None;
        for signed in &signed {
            match self.check_one(signed, &message, now) {
                Ok(proven) => {
                    request.extensions_mut().insert(proven);
                    return Ok(());
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| invalid("No signature is by a key of this partner: check keyid.")))
    }

    fn check_one(
        &self,
        signed: &Signed<'_>,
        message: &Message<'_>,
        now: Timestamp,
    ) -> Result<Proven, ApiError> {
        let covers_body = require_components(signed, message)?;
        self.require_time(signed, now)?;
        if signed.algorithm.as_deref().is_some_and(|named| named != signed.key.algorithm.code()) {
            let expected = signed.key.algorithm.code();
            return Err(invalid(format!("The key is for {expected}, and alg says something else.")));
        }
        let base = base::signature_base(&signed.components, &signed.params, message)?;
        if is_right(signed.key, base.as_bytes(), &signed.signature) {
            return Ok(Proven { covers_body });
        }
        Err(invalid("The signature is not that of this request with this key."))
    }

    fn require_time(&self, signed: &Signed<'_>, now: Timestamp) -> Result<(), ApiError> {
        let expired = |detail: String| Err(ApiError::new(Code::SignatureExpired, detail));
        let now_s = now.unix_ms().div_euclid(1000);
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let (age_max, ahead_max) = (seconds(self.terms.age_max), seconds(AHEAD_MAX));
        let age = now_s.saturating_sub(signed.created);
        if age > age_max {
            return expired(format!("The signature was created {age} s ago; {age_max} s are allowed."));
        }
        if age < ahead_max.saturating_neg() {
            let ahead = age.saturating_neg();
            return expired(format!(
                "The signature is created {ahead} s from now; {ahead_max} s are allowed."
            ));
        }
        if signed.expires.is_some_and(|expires| now_s > expires) {
            return expired("The signature has expired, as its own expires says.".to_owned());
        }
        Ok(())
    }
}

/// Whether all is covered that must be; tells whether the body is.
fn require_components(signed: &Signed<'_>, message: &Message<'_>) -> Result<bool, ApiError> {
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

/// Whether the head says that a body follows. Over HTTP/2 it need not; so the reader of a body asks for
/// [`Proven::covers_body`] again.
fn announces_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.is_some_and(|length| length.trim() != "0") || headers.contains_key(header::TRANSFER_ENCODING)
}

fn is_right(key: &SignatureKey, base: &[u8], signature: &[u8]) -> bool {
    match key.algorithm {
        // In constant time.
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
