//! Terms of a partner: validation of values from the command line or the API, and their application to the partner record.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use ed25519_dalek::VerifyingKey;
use postonce_shared::domain::credit::CreditCeilings;
use postonce_shared::domain::ids::{AccountKey, UserId};
use postonce_shared::domain::money::{Currency, OverdraftLimit};
use postonce_shared::domain::partner::{
    ACTIVE_KEYS_MAX, Partner, PartnerStatus, REACH_NAMES_MAX, Reach, RequestRate, SignatureAlgorithm,
    SignatureKey,
};
use postonce_shared::domain::time::Timestamp;

use crate::access::scopes::Scope;
use crate::error::Code;
use crate::formats;

/// Minimum length of an HMAC secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 32;
/// Maximum length of an HMAC secret, in bytes.
pub const SECRET_BYTES_MAX: usize = 256;

/// DER prefix of an Ed25519 public key (RFC 8410, section 4), before its 32 bytes.
const ED25519_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Reason why a change of a partner is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartnerChangeError {
    /// The partner has the maximum number of keys.
    #[error("{0} keys are active, and the maximum is {ACTIVE_KEYS_MAX}: revoke one first")]
    TooManyKeys(usize),
    /// The partner has no key with this id.
    #[error("the partner has no key with this id")]
    NoSuchKey,
    /// The partner has a different signature key with the same id.
    #[error("the partner has another signature key with this id: choose a new id for a new key")]
    SignatureKeyExists,
    /// Signatures are required, but the partner would have no signature key.
    #[error("signatures are required, so the partner needs at least one signature key")]
    SignatureKeyNeeded,
    /// The change would give the partner, or through it the caller, more rights than the caller's key has.
    #[error("{0}")]
    BeyondCaller(String),
    /// The keys of the partner changed between the check of the caller's rights and the change.
    #[error("the keys of the partner were changed at the same time: repeat the request")]
    ChangedMeanwhile,
    /// The partner differs from the version that the operator read.
    #[error("the partner was changed concurrently: read it again")]
    ConcurrentChange,
}

impl PartnerChangeError {
    /// Returns the published error code.
    pub const fn code(&self) -> Code {
        match self {
            Self::TooManyKeys(_) => Code::KeysTooMany,
            Self::NoSuchKey => Code::KeyUnknown,
            Self::SignatureKeyExists => Code::SignatureKeyExists,
            Self::SignatureKeyNeeded => Code::SignatureKeyNeeded,
            Self::BeyondCaller(_) => Code::ScopeMissing,
            Self::ChangedMeanwhile => Code::StorageUnavailable,
            Self::ConcurrentChange => Code::PreconditionFailed,
        }
    }
}

/// Terms of a new API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKeyTerms {
    /// Scopes of the key.
    pub scopes: Vec<Scope>,
    /// Time from which the key is refused; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
}

/// Change to the terms of a partner. Fields that are `None` keep their value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TermsChange {
    /// The accounts that the partner may access.
    pub reach: Option<Reach>,
    /// Active or suspended.
    pub status: Option<PartnerStatus>,
    /// Default format; `Some(None)` removes it.
    pub format: Option<Option<String>>,
    /// Request rate; `Some(None)` selects the configured rate.
    pub rate: Option<Option<RequestRate>>,
    /// Highest overdraft limits that the partner may give to its accounts.
    pub credit_ceilings: Option<CreditCeilings>,
    /// Whether requests must be signed.
    pub signature_required: Option<bool>,
}

impl TermsChange {
    /// Applies the change. A suspension records the scope `with`, whose sufficiency [`crate::access::management_rights`] checks.
    ///
    /// # Errors
    /// [`PartnerChangeError::SignatureKeyNeeded`]
    pub fn apply(&self, partner: &mut Partner, with: Scope) -> Result<(), PartnerChangeError> {
        let Self { reach, status, format, rate, credit_ceilings, signature_required } = self.clone();
        partner.reach = reach.unwrap_or_else(|| partner.reach.clone());
        match status {
            Some(PartnerStatus::Suspended) => partner.suspend(with),
            Some(PartnerStatus::Active) => partner.resume(),
            None => {}
        }
        partner.format = format.unwrap_or_else(|| partner.format.clone());
        partner.rate = rate.unwrap_or(partner.rate);
        partner.credit_ceilings = credit_ceilings.unwrap_or_else(|| partner.credit_ceilings.clone());
        partner.signature_required = signature_required.unwrap_or(partner.signature_required);
        if partner.signature_required && partner.signature_keys.is_empty() {
            return Err(PartnerChangeError::SignatureKeyNeeded);
        }
        Ok(())
    }
}

/// Adds a signature key. Adding the same key again has no effect.
///
/// # Errors
/// [`PartnerChangeError`] when the maximum is reached, or a different key has the same id.
pub fn add_signature_key(partner: &mut Partner, key: &SignatureKey) -> Result<(), PartnerChangeError> {
    if let Some(known) = partner.signature_keys.iter().find(|known| known.id == key.id) {
        return if known == key { Ok(()) } else { Err(PartnerChangeError::SignatureKeyExists) };
    }
    if partner.signature_keys.len() >= ACTIVE_KEYS_MAX {
        return Err(PartnerChangeError::TooManyKeys(partner.signature_keys.len()));
    }
    partner.signature_keys.push(key.clone());
    Ok(())
}

/// Removes a signature key.
///
/// # Errors
/// [`PartnerChangeError`] when no key has this id, or it is the last key of a partner that must sign.
pub fn remove_signature_key(partner: &mut Partner, id: &str) -> Result<(), PartnerChangeError> {
    let before = partner.signature_keys.len();
    partner.signature_keys.retain(|key| key.id != id);
    if partner.signature_keys.len() == before {
        return Err(PartnerChangeError::NoSuchKey);
    }
    if partner.signature_required && partner.signature_keys.is_empty() {
        return Err(PartnerChangeError::SignatureKeyNeeded);
    }
    Ok(())
}

/// Builds a reach from users and accounts, within the maximum number of names.
///
/// # Errors
/// A message with the maximum number of names.
pub fn named_reach(users: BTreeSet<UserId>, accounts: BTreeSet<AccountKey>) -> Result<Reach, String> {
    let reach = Reach::Named { users, accounts };
    match reach.names() {
        names if names > REACH_NAMES_MAX => {
            Err(format!("must name at most {REACH_NAMES_MAX} users and accounts together, but names {names}"))
        }
        _ => Ok(reach),
    }
}

/// Validates the name of a format.
///
/// # Errors
/// A message with the supported values.
pub fn format_name(text: &str) -> Result<String, String> {
    let format = formats::named(text).map(|format| format.name().to_owned());
    format.ok_or_else(|| format!("must be one of {}", formats::names().join(", ")))
}

/// Parses the credit ceiling of a currency.
///
/// # Errors
/// A message with the allowed form.
pub fn credit_ceiling(currency: &str, limit: &str) -> Result<OverdraftLimit, String> {
    let currency = Currency::parse(currency).map_err(|error| error.to_string())?;
    OverdraftLimit::parse(limit, currency).map_err(|error| error.to_string())
}

/// Decodes the key material of a signature key: a secret in base64, or an Ed25519 public key in base64 or PEM.
/// Surrounding white space is ignored.
///
/// # Errors
/// A message with the required form. It never contains the input.
pub fn signature_material(algorithm: SignatureAlgorithm, text: &str) -> Result<Vec<u8>, String> {
    match algorithm {
        SignatureAlgorithm::HmacSha256 => base64(text)
            .filter(|secret| (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()))
            .ok_or_else(|| {
                format!("must be a secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, in base64")
            }),
        SignatureAlgorithm::Ed25519 => {
            let refused = "must be an Ed25519 public key: 32 bytes in base64, or PEM with BEGIN PUBLIC KEY";
            let bytes = pem(text).or_else(|| base64(text)).ok_or(refused)?;
            let raw = bytes.strip_prefix(ED25519_DER.as_slice()).unwrap_or(&bytes);
            let raw: [u8; 32] = raw.try_into().map_err(|_| refused)?;
            // Anyone can create valid signatures for a weak key.
            let key = VerifyingKey::from_bytes(&raw).ok().filter(|key| !key.is_weak());
            key.map(|key| key.to_bytes().to_vec()).ok_or_else(|| refused.to_owned())
        }
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    BASE64_STANDARD.decode(text).or_else(|_| BASE64_STANDARD_NO_PAD.decode(text)).ok()
}

fn pem(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix("-----BEGIN PUBLIC KEY-----")?;
    let body = body.strip_suffix("-----END PUBLIC KEY-----")?;
    let body: String = body.split_ascii_whitespace().collect();
    BASE64_STANDARD.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use SignatureAlgorithm::{Ed25519, HmacSha256};
    use postonce_shared::domain::ids::PartnerId;

    use super::*;

    #[test]
    fn key_material_is_decoded_from_base64_and_pem() {
        let check = |algorithm, text: &str, bytes: Option<usize>| {
            assert_eq!(signature_material(algorithm, text).ok().map(|it| it.len()), bytes, "{text}");
        };
        let secret = |bytes: usize| BASE64_STANDARD.encode(vec![7; bytes]);
        check(HmacSha256, &secret(32), Some(32));
        check(HmacSha256, &format!(" {}\n", secret(256)), Some(256));
        check(HmacSha256, secret(32).trim_end_matches('='), Some(32));
        check(HmacSha256, &secret(31), None);
        check(HmacSha256, &secret(257), None);
        check(HmacSha256, "a secret that is no base64, however long it may be", None);
        check(HmacSha256, "", None);
        // The key of RFC 9421, appendix B.1.4.
        let key = "MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=";
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n");
        check(Ed25519, &pem, Some(32));
        check(Ed25519, key, Some(32));
        check(Ed25519, "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=", Some(32));
        check(Ed25519, &pem.replace("PUBLIC", "PRIVATE"), None);
        check(Ed25519, &secret(31), None);
        // The identity element is a weak key: anyone can sign for it.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        check(Ed25519, &BASE64_STANDARD.encode(neutral), None);
        check(Ed25519, "", None);
    }

    #[test]
    fn a_partner_that_must_sign_keeps_a_signature_key() {
        let id = PartnerId::parse("shop").unwrap();
        let mut partner = Partner::active(id, Reach::Everything, Timestamp::from_unix_ms(0));
        let require = TermsChange { signature_required: Some(true), ..TermsChange::default() };
        assert_eq!(
            require.apply(&mut partner.clone(), Scope::Admin),
            Err(PartnerChangeError::SignatureKeyNeeded)
        );
        let key = |id: &str| SignatureKey { id: id.to_owned(), algorithm: HmacSha256, material: vec![0; 32] };
        add_signature_key(&mut partner, &key("1")).unwrap();
        add_signature_key(&mut partner, &key("1")).unwrap();
        let other = SignatureKey { material: vec![1; 32], ..key("1") };
        assert_eq!(add_signature_key(&mut partner, &other), Err(PartnerChangeError::SignatureKeyExists));
        require.apply(&mut partner, Scope::Admin).unwrap();
        assert_eq!(
            remove_signature_key(&mut partner.clone(), "1"),
            Err(PartnerChangeError::SignatureKeyNeeded)
        );
        add_signature_key(&mut partner, &key("2")).unwrap();
        assert_eq!(add_signature_key(&mut partner, &key("3")), Err(PartnerChangeError::TooManyKeys(2)));
        remove_signature_key(&mut partner, "1").unwrap();
        assert_eq!(remove_signature_key(&mut partner, "1"), Err(PartnerChangeError::NoSuchKey));
        assert_eq!(partner.signature_keys, [key("2")]);
    }
}
