//! The terms of a partner as an operator states them, on the command line or over the API: what is allowed, and
//! how it is read.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use ed25519_dalek::VerifyingKey;
use postonce_shared::domain::ids::{AccountKey, UserId};
use postonce_shared::domain::partner::{
    ACTIVE_KEYS_MAX, Partner, PartnerStatus, REACH_NAMES_MAX, Reach, RequestRate, SignatureAlgorithm,
    SignatureKey,
};

use crate::error::Code;
use crate::formats;

/// Most requests in a second, and most at once, that can be granted.
pub const RATE_MAX: u32 = 1_000_000;
/// Longest id of a signature key, in characters.
pub const SIGNATURE_KEY_ID_CHARS_MAX: usize = 64;
/// Fewest bytes of a secret for HMAC.
pub const SECRET_BYTES_MIN: usize = 32;
/// Most bytes of a secret for HMAC.
pub const SECRET_BYTES_MAX: usize = 256;

/// What a public key of Ed25519 begins with in DER (RFC 8410, section 4), before its 32 bytes.
const ED25519_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A wish that does not fit the partner as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A key cannot be added.
    #[error("{0} keys work already, and at most {ACTIVE_KEYS_MAX} may: revoke one first")]
    TooManyKeys(usize),
    /// There is no such key of that partner.
    #[error("the partner has no key with that id")]
    NoSuchKey,
    /// There is another signature key of that id.
    #[error("the partner has another signature key with that id: choose a new id for a new key")]
    SignatureKeyExists,
    /// Signatures cannot be required of who has nothing to sign with.
    #[error("signatures are required of the partner, for which it needs a signature key")]
    SignatureKeyNeeded,
    /// It is not as the operator saw it.
    #[error("the partner was changed meanwhile: look at it again")]
    Changed,
}

impl Unfit {
    /// What it is published as.
    pub const fn code(&self) -> Code {
        match self {
            Self::TooManyKeys(_) => Code::KeysTooMany,
            Self::NoSuchKey => Code::KeyUnknown,
            Self::SignatureKeyExists => Code::SignatureKeyExists,
            Self::SignatureKeyNeeded => Code::SignatureKeyNeeded,
            Self::Changed => Code::PreconditionFailed,
        }
    }
}

/// New terms of a partner. What is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TermsChange {
    /// What it may touch.
    pub reach: Option<Reach>,
    /// Whether it may call.
    pub status: Option<PartnerStatus>,
    /// Its format, or that it has none of its own.
    pub format: Option<Option<String>>,
    /// Its rate, or that it has that of the configuration.
    pub rate: Option<Option<RequestRate>>,
    /// Whether its requests have to be signed.
    pub signature_required: Option<bool>,
}

impl TermsChange {
    /// Changes a partner so.
    ///
    /// # Errors
    /// [`Unfit::SignatureKeyNeeded`]
    pub fn apply(&self, partner: &mut Partner) -> Result<(), Unfit> {
        let Self { reach, status, format, rate, signature_required } = self.clone();
        partner.reach = reach.unwrap_or_else(|| partner.reach.clone());
        partner.status = status.unwrap_or(partner.status);
        partner.format = format.unwrap_or_else(|| partner.format.clone());
        partner.rate = rate.unwrap_or(partner.rate);
        partner.signature_required = signature_required.unwrap_or(partner.signature_required);
        if partner.signature_required && partner.signature_keys.is_empty() {
            return Err(Unfit::SignatureKeyNeeded);
        }
        Ok(())
    }
}

/// Adds a key to sign with. The same key again changes nothing.
///
/// # Errors
/// [`Unfit`] when there are so many, or another one of that id.
pub fn add_signature_key(partner: &mut Partner, key: &SignatureKey) -> Result<(), Unfit> {
    if let Some(known) = partner.signature_keys.iter().find(|known| known.id == key.id) {
        return if known == key { Ok(()) } else { Err(Unfit::SignatureKeyExists) };
    }
    if partner.signature_keys.len() >= ACTIVE_KEYS_MAX {
        return Err(Unfit::TooManyKeys(partner.signature_keys.len()));
    }
    partner.signature_keys.push(key.clone());
    Ok(())
}

/// Removes a key to sign with.
///
/// # Errors
/// [`Unfit`] when there is none of that id, or it is the last one of a partner that has to sign.
pub fn remove_signature_key(partner: &mut Partner, id: &str) -> Result<(), Unfit> {
    let before = partner.signature_keys.len();
    partner.signature_keys.retain(|key| key.id != id);
    if partner.signature_keys.len() == before {
        return Err(Unfit::NoSuchKey);
    }
    if partner.signature_required && partner.signature_keys.is_empty() {
        return Err(Unfit::SignatureKeyNeeded);
    }
    Ok(())
}

/// A reach of names.
///
/// # Errors
/// Says how many names there may be.
pub fn named_reach(users: BTreeSet<UserId>, accounts: BTreeSet<AccountKey>) -> Result<Reach, String> {
    let reach = Reach::Named { users, accounts };
    match reach.names() {
        names if names > REACH_NAMES_MAX => {
            Err(format!("must name at most {REACH_NAMES_MAX} users and accounts together, but names {names}"))
        }
        _ => Ok(reach),
    }
}

/// The name of a format.
///
/// # Errors
/// Says which there are.
pub fn format_name(text: &str) -> Result<String, String> {
    let format = formats::named(text).map(|format| format.name().to_owned());
    format.ok_or_else(|| format!("must be one of {}", formats::names().join(", ")))
}

/// How many requests, in a second or at once.
///
/// # Errors
/// Says how many there may be.
pub fn requests(count: u64) -> Result<u32, String> {
    let count = u32::try_from(count).ok().filter(|count| (1..=RATE_MAX).contains(count));
    count.ok_or_else(|| format!("must be a whole number from 1 to {RATE_MAX}"))
}

/// The id of a signature key.
///
/// # Errors
/// Says what it may consist of.
pub fn signature_key_id(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=SIGNATURE_KEY_ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    Err(format!("must have 1 to {SIGNATURE_KEY_ID_CHARS_MAX} letters, digits, -, _ or ."))
}

/// The algorithm of that name.
///
/// # Errors
/// Says which there are.
pub fn signature_algorithm(text: &str) -> Result<SignatureAlgorithm, String> {
    SignatureAlgorithm::from_code(text).ok_or_else(|| {
        let (hmac, ed25519) = (SignatureAlgorithm::HmacSha256.code(), SignatureAlgorithm::Ed25519.code());
        format!("must be {hmac} or {ed25519}")
    })
}

/// What signatures are checked with, as it is written down: a secret in base64, or a public key of Ed25519 in
/// base64 or as PEM. White space around it is of no interest.
///
/// # Errors
/// Says what it must be; never what it was.
pub fn signature_material(algorithm: SignatureAlgorithm, text: &str) -> Result<Vec<u8>, String> {
    match algorithm {
        SignatureAlgorithm::HmacSha256 => base64(text)
            .filter(|secret| (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()))
            .ok_or_else(|| {
                format!("must be a secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, in base64")
            }),
        SignatureAlgorithm::Ed25519 => {
            let refused = "must be a public key of Ed25519: 32 bytes in base64, or PEM with BEGIN PUBLIC KEY";
            let bytes = pem(text).or_else(|| base64(text)).ok_or(refused)?;
            let raw = bytes.strip_prefix(ED25519_DER.as_slice()).unwrap_or(&bytes);
            let raw: [u8; 32] = raw.try_into().map_err(|_| refused)?;
            // A weak key is one under which anybody can sign something.
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
    use postonce_shared::domain::time::Timestamp;

    use super::*;

    #[test]
    fn material_is_read_as_people_write_it_down() {
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
        // The neutral element: anybody can sign for it.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        check(Ed25519, &BASE64_STANDARD.encode(neutral), None);
        check(Ed25519, "", None);
    }

    #[test]
    fn who_has_to_sign_has_something_to_sign_with() {
        let id = PartnerId::parse("shop").unwrap();
        let mut partner = Partner::active(id, Reach::Everything, Timestamp::from_unix_ms(0));
        let require = TermsChange { signature_required: Some(true), ..TermsChange::default() };
        assert_eq!(require.apply(&mut partner.clone()), Err(Unfit::SignatureKeyNeeded));
        let key = |id: &str| SignatureKey { id: id.to_owned(), algorithm: HmacSha256, material: vec![0; 32] };
        add_signature_key(&mut partner, &key("1")).unwrap();
        add_signature_key(&mut partner, &key("1")).unwrap();
        let other = SignatureKey { material: vec![1; 32], ..key("1") };
        assert_eq!(add_signature_key(&mut partner, &other), Err(Unfit::SignatureKeyExists));
        require.apply(&mut partner).unwrap();
        assert_eq!(remove_signature_key(&mut partner.clone(), "1"), Err(Unfit::SignatureKeyNeeded));
        add_signature_key(&mut partner, &key("2")).unwrap();
        assert_eq!(add_signature_key(&mut partner, &key("3")), Err(Unfit::TooManyKeys(2)));
        remove_signature_key(&mut partner, "1").unwrap();
        assert_eq!(remove_signature_key(&mut partner, "1"), Err(Unfit::NoSuchKey));
        assert_eq!(partner.signature_keys, [key("2")]);
    }
}
