//! A partner: a client of the bank, with its permissions, keys and limits.

use std::collections::BTreeSet;

use super::ids::{AccountId, AccountKey, PartnerId, UserId};
use super::time::Timestamp;

/// Largest number of active keys of a partner: an old and a new one, for rotation.
pub const ACTIVE_KEYS_MAX: usize = 2;
/// Largest number of users and accounts that the reach of a partner can list.
pub const REACH_NAMES_MAX: usize = 1000;

/// Whether a partner may send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartnerStatus {
    /// Requests are allowed.
    Active,
    /// Requests are refused for now; the keys are kept.
    Suspended,
}

impl PartnerStatus {
    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    /// Returns the status with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Active, Self::Suspended].into_iter().find(|status| status.code() == code)
    }
}

/// The users and accounts that a partner may access. All others do not exist for this partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Every account of the bank.
    Everything,
    /// Only the listed users and accounts.
    Named {
        /// All accounts of these users, including future ones.
        users: BTreeSet<UserId>,
        /// These accounts.
        accounts: BTreeSet<AccountKey>,
    },
}

impl Reach {
    /// Returns whether the account is within the reach.
    pub fn has_account(&self, key: AccountKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Named { users, accounts } => users.contains(&key.user) || accounts.contains(&key),
        }
    }

    /// Returns the number of listed users and accounts; 0 for [`Self::Everything`].
    pub fn names(&self) -> usize {
        match self {
            Self::Everything => 0,
            Self::Named { users, accounts } => users.len().saturating_add(accounts.len()),
        }
    }

    /// Returns the accounts of a user that are within the reach.
    pub fn of_user(&self, user: UserId) -> WithinUser {
        match self {
            Self::Everything => WithinUser::All,
            Self::Named { users, .. } if users.contains(&user) => WithinUser::All,
            Self::Named { accounts, .. } => {
                let named = accounts.iter().filter(|key| key.user == user).map(|key| key.account);
                WithinUser::Only(named.collect())
            }
        }
    }
}

/// The accounts of one user that a partner may access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithinUser {
    /// All accounts of the user.
    All,
    /// These accounts; no account when the set is empty.
    Only(BTreeSet<AccountId>),
}

/// The request rate that a partner is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// Sustained requests per second; at least 1.
    pub per_second: u32,
    /// Largest number of requests in a burst; at least 1.
    pub burst: u32,
}

/// An algorithm for request signatures (RFC 9421, section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// `hmac-sha256`: a secret that both sides know.
    HmacSha256,
    /// `ed25519`: the bank knows only the public key.
    Ed25519,
}

impl SignatureAlgorithm {
    /// Returns the name in the registry of RFC 9421.
    pub const fn code(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Returns the algorithm with this name.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::HmacSha256, Self::Ed25519].into_iter().find(|algorithm| algorithm.code() == code)
    }
}

/// A key that a partner signs requests with.
#[derive(Clone, PartialEq, Eq)]
pub struct SignatureKey {
    /// The `keyid` of the signatures.
    pub id: String,
    /// The algorithm that the key is for.
    pub algorithm: SignatureAlgorithm,
    /// The HMAC secret, at least 32 bytes, or the 32 bytes of an Ed25519 public key.
    pub material: Vec<u8>,
}

impl std::fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The material may be a secret.
        let Self { id, algorithm, material: _ } = self;
        write!(f, "SignatureKey({id}, {})", algorithm.code())
    }
}

/// An active API key of a partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveKey {
    /// The id of the key, as in [`crate::ports::api_keys`].
    pub id: String,
    /// The time when the key was created.
    pub created_at: Timestamp,
}

/// A partner, as the store keeps it.
///
/// Invariant: no key is added while [`ACTIVE_KEYS_MAX`] keys are active. A partner has more keys only when they
/// were created before partners had records. A key that is not listed here is inactive, whatever else the store
/// holds about it, so that one guarded write is enough to activate or revoke a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    /// Identifies the partner.
    pub id: PartnerId,
    /// Whether the partner may send requests.
    pub status: PartnerStatus,
    /// The users and accounts that it may access.
    pub reach: Reach,
    /// The name of the format (`json`, `xml`…) for requests that do not specify one.
    pub format: Option<String>,
    /// The request rate, where it differs from the configured one.
    pub rate: Option<RequestRate>,
    /// Whether requests without a signature are refused.
    pub signature_required: bool,
    /// The keys for request signatures; at most [`ACTIVE_KEYS_MAX`].
    pub signature_keys: Vec<SignatureKey>,
    /// The active API keys.
    pub keys: Vec<ActiveKey>,
    /// The time when the partner was created.
    pub created_at: Timestamp,
    /// The time of the latest change of terms or keys.
    pub changed_at: Timestamp,
}

impl Partner {
    /// Creates an active partner without keys, on the configured terms.
    pub const fn active(id: PartnerId, reach: Reach, now: Timestamp) -> Self {
        Self {
            id,
            status: PartnerStatus::Active,
            reach,
            format: None,
            rate: None,
            signature_required: false,
            signature_keys: Vec::new(),
            keys: Vec::new(),
            created_at: now,
            changed_at: now,
        }
    }

    /// Returns whether the partner has the key with this id.
    pub fn has_key(&self, key_id: &str) -> bool {
        self.keys.iter().any(|key| key.id == key_id)
    }

    /// Returns whether the partner may send requests with the key of this id.
    pub fn admits(&self, key_id: &str) -> bool {
        self.status == PartnerStatus::Active && self.has_key(key_id)
    }
}
