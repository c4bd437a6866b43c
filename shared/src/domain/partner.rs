//! A partner: who may call, what of the bank it may touch, and on what terms.

use std::collections::BTreeSet;

use super::ids::{AccountId, AccountKey, PartnerId, UserId};
use super::time::Timestamp;

/// Most keys of a partner that work at the same time: an old and a new one, for rotation.
pub const ACTIVE_KEYS_MAX: usize = 2;
/// Most users and accounts that a partner's reach names one by one.
pub const REACH_NAMES_MAX: usize = 1000;

/// Whether a partner may call at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartnerStatus {
    /// It may.
    Active,
    /// Not for now: its keys are kept and refused.
    Suspended,
}

impl PartnerStatus {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    /// The status with that code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Active, Self::Suspended].into_iter().find(|status| status.code() == code)
    }
}

/// The users and accounts that a partner may touch. Others do not exist for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Every account of the bank.
    Everything,
    /// What is named.
    Named {
        /// All accounts of these users, future ones included.
        users: BTreeSet<UserId>,
        /// These accounts.
        accounts: BTreeSet<AccountKey>,
    },
}

impl Reach {
    /// Whether an account is within it.
    pub fn has_account(&self, key: AccountKey) -> bool {
        match self {
            Self::Everything => true,
            Self::Named { users, accounts } => users.contains(&key.user) || accounts.contains(&key),
        }
    }

    /// How many users and accounts it names; none when it is everything.
    pub fn names(&self) -> usize {
        match self {
            Self::Everything => 0,
            Self::Named { users, accounts } => users.len().saturating_add(accounts.len()),
        }
    }

    /// Which accounts of a user are within it.
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

/// The accounts of one user that a partner may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithinUser {
    /// All of them.
    All,
    /// These; none when it is empty.
    Only(BTreeSet<AccountId>),
}

/// How many requests a partner may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests in a second, over time; at least 1.
    pub per_second: u32,
    /// Requests at once after a rest; at least 1.
    pub burst: u32,
}

/// A way to sign requests (RFC 9421, section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// `hmac-sha256`: one secret that both sides know.
    HmacSha256,
    /// `ed25519`: the bank knows the public key only.
    Ed25519,
}

impl SignatureAlgorithm {
    /// Its name in the registry of RFC 9421.
    pub const fn code(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::Ed25519 => "ed25519",
        }
    }

    /// The algorithm of that name.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::HmacSha256, Self::Ed25519].into_iter().find(|algorithm| algorithm.code() == code)
    }
}

/// A key that a partner signs requests with.
#[derive(Clone, PartialEq, Eq)]
pub struct SignatureKey {
    /// The `keyid` in its signatures.
    pub id: String,
    /// How it is used.
    pub algorithm: SignatureAlgorithm,
    /// The secret of HMAC, at least 32 bytes, or the 32 bytes of a public key of Ed25519.
    pub material: Vec<u8>,
}

impl std::fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The material may be a secret.
        let Self { id, algorithm, material: _ } = self;
        write!(f, "SignatureKey({id}, {})", algorithm.code())
    }
}

/// An API key of a partner that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveKey {
    /// Names it, as in [`crate::ports::api_keys`].
    pub id: String,
    /// Since when.
    pub created_at: Timestamp,
}

/// A partner, as the store keeps it.
///
/// Invariant: no key is added while [`ACTIVE_KEYS_MAX`] or more work. There are more only where a partner
/// had them before there were records of partners. A key that is not listed here does not work, whatever
/// else the store holds about it: so one guarded write decides about keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    /// Its name for the bank.
    pub id: PartnerId,
    /// Whether it may call.
    pub status: PartnerStatus,
    /// What it may touch.
    pub reach: Reach,
    /// The format that it reads and writes when its requests do not say, by name (`json`, `xml`…).
    pub format: Option<String>,
    /// How many requests it may make, where that differs from the configuration.
    pub rate: Option<RequestRate>,
    /// Whether a request without a signature is refused.
    pub signature_required: bool,
    /// What it may sign with; at most [`ACTIVE_KEYS_MAX`].
    pub signature_keys: Vec<SignatureKey>,
    /// Its API keys that work.
    pub keys: Vec<ActiveKey>,
    /// Since when it is known.
    pub created_at: Timestamp,
    /// When its terms or keys changed last.
    pub changed_at: Timestamp,
}

impl Partner {
    /// A partner that may call, without keys and on the terms of the configuration.
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

    /// Whether it has the key of that id.
    pub fn lists(&self, key_id: &str) -> bool {
        self.keys.iter().any(|key| key.id == key_id)
    }

    /// Whether it may call with the key of that id.
    pub fn admits(&self, key_id: &str) -> bool {
        self.status == PartnerStatus::Active && self.lists(key_id)
    }
}
