//! Requests and responses of the operations for partners and their keys. No response contains a secret, except for
//! the response with a new API key.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::optional::not_null;

/// A partner: who may call, what it may touch, and on what terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Partner {
    /// Its name for the bank.
    #[schema(example = "shop", pattern = "^[a-z][a-z0-9_]{0,31}$")]
    pub partner_id: String,
    /// `active`, or `suspended`: then all its requests are refused.
    #[schema(example = "active", pattern = "^(active|suspended)$")]
    pub status: &'static str,
    /// What it may touch.
    pub reach: PartnerReach,
    /// The format that it reads and writes when its requests do not say; that of the API where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "json")]
    pub format: Option<String>,
    /// How many requests it may make; what the configuration says where it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<PartnerRate>,
    /// Whether a request without a signature is refused.
    pub signature_required: bool,
    /// What it may sign with.
    pub signature_keys: Vec<PartnerSignatureKey>,
    /// Its API keys that work.
    pub keys: Vec<PartnerKey>,
    /// Since when it is known.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When its terms or keys changed last.
    #[schema(format = DateTime)]
    pub changed_at: String,
}

/// What a partner may touch: everything, or what is named. Other users and accounts do not exist for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"users": ["0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11"], "accounts": []}))]
pub struct PartnerReach {
    /// `true`: every account of the bank. Then nothing is named.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub everything: Option<bool>,
    /// All accounts of these users, future ones included. With the accounts at most 1000.
    #[schema(value_type = Option<Vec<Uuid>>)]
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// These accounts.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub accounts: Option<Vec<PartnerAccount>>,
}

/// An account that a partner may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartnerAccount {
    /// Whose account.
    #[schema(format = Uuid)]
    pub user_id: String,
    /// Which of the user's accounts.
    #[schema(format = Uuid)]
    pub account_id: String,
}

/// How many requests a partner may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"per_second": 50, "burst": 200}))]
pub struct PartnerRate {
    /// Requests in a second, over time.
    #[schema(minimum = 1, maximum = 1000000)]
    pub per_second: u32,
    /// Requests at once after a rest.
    #[schema(minimum = 1, maximum = 1000000)]
    pub burst: u32,
}

/// A key that a partner signs its requests with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PartnerSignatureKey {
    /// The `keyid` in its signatures.
    #[schema(example = "2026-11")]
    pub key_id: String,
    /// `hmac-sha256` or `ed25519`.
    #[schema(example = "ed25519", pattern = "^(hmac-sha256|ed25519)$")]
    pub algorithm: &'static str,
}

/// An API key of a partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PartnerKey {
    /// Names it; it is not the key.
    #[schema(example = "9f86d081884c7d65")]
    pub key_id: String,
    /// What it allows.
    pub scopes: Vec<&'static str>,
    /// Since when.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// A page of partners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PartnerPage {
    /// By name.
    pub partners: Vec<Partner>,
    /// Where the next page starts; `null` at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A new API key. It is shown here, and never again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NewPartnerKey {
    /// Whose it is.
    #[schema(example = "shop")]
    pub partner_id: String,
    /// Names it.
    #[schema(example = "9f86d081884c7d65")]
    pub key_id: String,
    /// The key itself, for `Authorization: Bearer`.
    pub key: String,
    /// What it allows.
    pub scopes: Vec<&'static str>,
}

/// What a partner is to be. Members that are left out stay as they are; a new partner is active, has no format
/// and no rate of its own, and need not sign.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reach": {"users": ["0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11"], "accounts": []}, "rate": {"per_second": 50, "burst": 200}}))]
pub struct PartnerTerms {
    /// What it may touch. Always there, and always said whole: nobody reaches everything by accident.
    pub reach: PartnerReach,
    /// `active` or `suspended`.
    #[schema(nullable = false, pattern = "^(active|suspended)$")]
    #[serde(default, deserialize_with = "not_null")]
    pub status: Option<String>,
    /// The name of a format; `null` for none of its own.
    #[schema(value_type = Option<String>)]
    #[serde(default, deserialize_with = "not_null")]
    pub format: Option<Option<String>>,
    /// `null` for what the configuration says.
    #[schema(value_type = Option<PartnerRate>)]
    #[serde(default, deserialize_with = "not_null")]
    pub rate: Option<Option<PartnerRate>>,
    /// Whether its requests have to be signed. It needs a signature key first.
    #[schema(nullable = false)]
    #[serde(default, deserialize_with = "not_null")]
    pub signature_required: Option<bool>,
}

/// A wish for a new API key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"scopes": ["deposit", "withdraw", "read"]}))]
pub struct PartnerKeyRequest {
    /// What it is to allow: at least one of `deposit`, `withdraw`, `read`, `accounts`, `metrics`, `admin`.
    #[schema(min_items = 1, max_items = 20)]
    pub scopes: Vec<String>,
}

/// A wish for a new key to sign with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"key_id": "2026-11", "algorithm": "ed25519", "material": "JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs="}))]
pub struct PartnerSignatureKeyRequest {
    /// The `keyid` of signatures: 1 to 64 letters, digits, `-`, `_` or `.`.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    pub key_id: String,
    /// `hmac-sha256` or `ed25519`.
    #[schema(pattern = "^(hmac-sha256|ed25519)$")]
    pub algorithm: String,
    /// For HMAC a secret of 32 to 256 bytes in base64; for Ed25519 the public key, as 32 bytes in base64 or as
    /// PEM. It is never given back.
    #[schema(min_length = 1)]
    pub material: String,
}
