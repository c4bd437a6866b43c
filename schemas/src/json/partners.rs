//! Requests and responses of the operations on partners and their keys. No response contains a secret, except for
//! the response with a new API key.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::{Validate, ValidationError, ValidationErrors};

use super::optional::not_null;
use super::rules::RATE_MAX;
use super::{DecimalText, codes, rules};

/// A partner, with its reach, terms and keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partner {
    /// The id of the partner.
    #[schema(example = "shop", pattern = "^[a-z][a-z0-9_]{0,31}$")]
    pub partner_id: String,
    /// `active` or `suspended`. All requests of a suspended partner are refused.
    #[schema(example = "active", pattern = "^(active|suspended)$")]
    #[serde(deserialize_with = "codes::partner_status")]
    pub status: Cow<'static, str>,
    /// While the partner is suspended, the scope that a key needs to resume it: `partners`, or `admin` if it was suspended with a
    /// key of that scope or on the command line, or if that is not known. If absent, the partner is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "admin", pattern = "^(partners|admin)$")]
    pub resume_needs: Option<Cow<'static, str>>,
    /// The accounts that the partner may access.
    pub reach: PartnerReach,
    /// The default format of requests and responses; if absent, the default of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "json")]
    pub format: Option<String>,
    /// The rate limit; if absent, the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<PartnerRate>,
    /// The highest overdraft limit of an account that the partner may set, by currency; in other currencies none. If
    /// absent, there is no ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"EUR": "1000.00"}))]
    pub credit_ceilings: Option<BTreeMap<String, String>>,
    /// Whether a request without a signature is refused.
    pub signature_required: bool,
    /// The keys with which the partner may sign requests.
    pub signature_keys: Vec<PartnerSignatureKey>,
    /// The active API keys.
    pub keys: Vec<PartnerKey>,
    /// The time when the partner was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// The time of the latest change of its terms or keys.
    #[schema(format = DateTime)]
    pub changed_at: String,
}

/// The accounts that a partner may access: all of them, or those listed. For the partner, other users and accounts
/// do not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"users": ["0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11"], "accounts": []}))]
#[validate(schema(function = "everything_or_named"))]
pub struct PartnerReach {
    /// `true` means every account of the bank; then users and accounts must be absent.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub everything: Option<bool>,
    /// All accounts of these users, including future ones. At most 1000 users and accounts together.
    #[schema(value_type = Option<Vec<Uuid>>)]
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Individual accounts.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub accounts: Option<Vec<PartnerAccount>>,
}

fn everything_or_named(reach: &PartnerReach) -> Result<(), ValidationError> {
    let names_something = reach.users.is_some() || reach.accounts.is_some();
    match (reach.everything.unwrap_or(false), names_something) {
        (true, false) | (false, true) => Ok(()),
        (true, true) => {
            let error = rules::broken("reach_combined", "must not be combined with users or accounts");
            Err(rules::of_part(error, ".everything"))
        }
        (false, false) => {
            let message = "must be {\"everything\": true}, or name users, accounts or both";
            Err(rules::broken("reach_missing", message))
        }
    }
}

/// An account that a partner may access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartnerAccount {
    /// The user that the account belongs to.
    #[schema(format = Uuid)]
    pub user_id: String,
    /// The account of that user.
    #[schema(format = Uuid)]
    pub account_id: String,
}

/// The rate limit of a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"per_second": 50, "burst": 200}))]
pub struct PartnerRate {
    /// The sustained number of requests per second.
    #[schema(minimum = 1, maximum = 1000000)]
    #[validate(range(min = 1, max = RATE_MAX))]
    pub per_second: u32,
    /// The number of requests that the partner may send at once after a pause.
    #[schema(minimum = 1, maximum = 1000000)]
    #[validate(range(min = 1, max = RATE_MAX))]
    pub burst: u32,
}

/// A key with which a partner signs requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartnerSignatureKey {
    /// The `keyid` in its signatures.
    #[schema(example = "2026-11")]
    pub key_id: String,
    /// `hmac-sha256` or `ed25519`.
    #[schema(example = "ed25519", pattern = "^(hmac-sha256|ed25519)$")]
    #[serde(deserialize_with = "codes::signature_algorithm")]
    pub algorithm: Cow<'static, str>,
}

/// An API key of a partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartnerKey {
    /// Identifies the key; it is not the key itself.
    #[schema(example = "9f86d081884c7d65")]
    pub key_id: String,
    /// The permissions of the key.
    #[schema(example = json!(["deposit", "read"]))]
    pub scopes: Vec<Cow<'static, str>>,
    /// The time when the key was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// The time from which on the key is refused; absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// A time at which the key was used, at most about a day before its last use; absent if it was not used since this is
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub last_used_at: Option<String>,
}

/// The API key of the request, and what it grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The partner that the key belongs to.
    #[schema(example = "shop", pattern = "^[a-z][a-z0-9_]{0,31}$")]
    pub partner_id: String,
    /// Identifies the key; it is not the key itself.
    #[schema(example = "9f86d081884c7d65")]
    pub key_id: String,
    /// The permissions of the key. Some include others: `admin`, for example, includes `operate`, which includes `metrics`.
    #[schema(value_type = Vec<String>, example = json!(["deposit", "read"]))]
    pub scopes: Vec<Cow<'static, str>>,
    /// The time from which on the key is refused; absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// A page of partners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartnerPage {
    /// The partners, by id.
    pub partners: Vec<Partner>,
    /// The `cursor` of the next page; `null` at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A new API key. Only this response contains it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewPartnerKey {
    /// The partner that the key belongs to.
    #[schema(example = "shop")]
    pub partner_id: String,
    /// Identifies the key.
    #[schema(example = "9f86d081884c7d65")]
    pub key_id: String,
    /// The key, for `Authorization: Bearer`.
    #[schema(example = "po_glTDKakoUPbVOd03b0gW7idkUX2l4CNVFK9DMWRIDXo")]
    pub key: String,
    /// The permissions of the key.
    #[schema(example = json!(["deposit", "read"]))]
    pub scopes: Vec<Cow<'static, str>>,
    /// The time from which on the key is refused; absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// The requested terms of a partner. Absent members keep their value. A new partner is active, has the default format
/// and rate limit, and need not sign.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reach": {"users": ["0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11"], "accounts": []}, "rate": {"per_second": 50, "burst": 200}}))]
pub struct PartnerTerms {
    /// The accounts that the partner may access. Required, and always complete, so that no partner can access every
    /// account by mistake.
    #[validate(nested)]
    pub reach: PartnerReach,
    /// `active` or `suspended`.
    #[schema(nullable = false, pattern = "^(active|suspended)$")]
    #[validate(custom(function = "codes::is_partner_status"))]
    #[serde(default, deserialize_with = "not_null")]
    pub status: Option<String>,
    /// The name of the default format; `null` for the default of the API.
    #[schema(value_type = Option<String>)]
    #[serde(default, deserialize_with = "not_null")]
    pub format: Option<Option<String>>,
    /// The rate limit; `null` for the configured one.
    #[schema(value_type = Option<PartnerRate>)]
    #[validate(nested)]
    #[serde(default, deserialize_with = "not_null")]
    pub rate: Option<Option<PartnerRate>>,
    /// The highest overdraft limit of an account that the partner may set, by currency; in other currencies none.
    /// `null` for no ceiling. Present limits of accounts stay.
    #[schema(value_type = Option<BTreeMap<String, String>>, example = json!({"EUR": "1000.00"}))]
    #[serde(default, deserialize_with = "not_null")]
    pub credit_ceilings: Option<Option<BTreeMap<String, DecimalText>>>,
    /// Whether requests without a signature are refused. The partner must already have a signature key.
    #[schema(nullable = false)]
    #[serde(default, deserialize_with = "not_null")]
    pub signature_required: Option<bool>,
}

/// A request for a new API key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"scopes": ["deposit", "withdraw", "read"]}))]
pub struct PartnerKeyRequest {
    /// The permissions of the key: at least one.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 20)]
    #[validate(nested)]
    pub scopes: Scopes,
    /// The time from which on the key is refused, as an unknown one is (RFC 3339); by default it does not expire.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// The requested scopes of an API key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Scopes(pub Vec<String>);

impl Validate for Scopes {
    /// Returns all errors in one list, because `validator` omits the errors of items if the list itself has one.
    fn validate(&self) -> Result<(), ValidationErrors> {
        let Self(codes) = self;
        let mut errors = Vec::new();
        if !(1..=rules::SCOPES_MAX).contains(&codes.len()) {
            let (most, known) = (rules::SCOPES_MAX, codes::SCOPES.join(", "));
            errors.push(rules::broken("scopes", format!("must be a list of 1 to {most} of {known}")));
        }
        let unknown = codes.iter().enumerate().take(rules::PARTS_CHECKED_MAX).filter_map(|(index, code)| {
            codes::is_scope(code).err().map(|error| rules::of_part(error, &format!("[{index}]")))
        });
        errors.extend(unknown);
        rules::of_whole(errors)
    }
}

/// A new signature key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"key_id": "2026-11", "algorithm": "ed25519", "material": "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs="}))]
pub struct PartnerSignatureKeyRequest {
    /// The `keyid` of signatures: 1 to 64 letters, digits, `-`, `_` or `.`.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    #[validate(custom(function = "rules::signature_key_id"))]
    pub key_id: String,
    /// `hmac-sha256` or `ed25519`.
    #[schema(pattern = "^(hmac-sha256|ed25519)$")]
    #[validate(custom(function = "codes::is_signature_algorithm"))]
    pub algorithm: String,
    /// For HMAC a secret of 32 to 256 bytes in base64; for Ed25519 the public key, as 32 bytes in base64 or as
    /// PEM. No response contains it.
    #[schema(min_length = 1)]
    pub material: String,
}
