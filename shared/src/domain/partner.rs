//! A partner: a client of the bank, with its permissions, keys and limits.

use std::collections::BTreeSet;

use super::credit::CreditCeilings;
use super::ids::{AccountId, AccountKey, PartnerId, UserId};
use super::scope::Scope;
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
    /// Returns the stable code: `active` or `suspended`.
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

    /// Returns whether `other` contains all accounts of this reach, including future ones.
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Everything) => true,
            (Self::Everything, Self::Named { .. }) => false,
            (Self::Named { users, accounts }, Self::Named { users: other_users, .. }) => {
                users.is_subset(other_users) && accounts.iter().all(|key| other.has_account(*key))
            }
        }
    }

    /// Returns the number of listed users and accounts; 0 for [`Self::Everything`].
    pub fn names(&self) -> usize {
        match self {
            Self::Everything => 0,
            Self::Named { users, accounts } => users.len().saturating_add(accounts.len()),
        }
    }

    /// Returns the reach that has exactly the accounts within both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let (Self::Named { users, accounts }, Self::Named { users: other_users, accounts: other_accounts }) =
            (self, other)
        else {
            return if *self == Self::Everything { other.clone() } else { self.clone() };
        };
        let own = accounts.iter().filter(|key| other.has_account(**key));
        let others = other_accounts.iter().filter(|key| users.contains(&key.user));
        Self::Named {
            users: users.intersection(other_users).copied().collect(),
            accounts: own.chain(others).copied().collect(),
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

/// The limits on the requests of a partner.
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

/// A key that verifies the signed requests of a partner.
#[derive(Clone, PartialEq, Eq)]
pub struct SignatureKey {
    /// The value of `keyid` in the signatures.
    pub id: String,
    /// The algorithm of the signatures.
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

/// The stored record of a partner.
///
/// Invariant: no key is added while [`ACTIVE_KEYS_MAX`] keys are active. A key that is not listed here is inactive, whatever
/// else the store holds about it, so that one guarded write is enough to activate or revoke a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partner {
    /// The name of the partner.
    pub id: PartnerId,
    /// Scope needed to resume the partner while it is suspended: a lower right must not undo a suspension by a higher one.
    pub suspended_with: Option<Scope>,
    /// The users and accounts that it may access.
    pub reach: Reach,
    /// The name of the format (`json`, `xml`…) for requests that do not specify one.
    pub format: Option<String>,
    /// The request rate, if it differs from the configured one.
    pub rate: Option<RequestRate>,
    /// The highest overdraft limits that it may give its accounts.
    pub credit_ceilings: CreditCeilings,
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
    pub fn active(id: PartnerId, reach: Reach, now: Timestamp) -> Self {
        Self {
            id,
            suspended_with: None,
            reach,
            format: None,
            rate: None,
            credit_ceilings: CreditCeilings::Unlimited,
            signature_required: false,
            signature_keys: Vec::new(),
            keys: Vec::new(),
            created_at: now,
            changed_at: now,
        }
    }

    /// Returns this partner without the rights that a later state of its record lacks. The result is suspended or must
    /// sign requests if either state requires it. It has the accounts, the credit and the keys that both states have.
    /// Rights that were added later are not added.
    #[must_use]
    pub fn restricted_to(&self, later: &Self) -> Self {
        let Self {
            id,
            suspended_with: _,
            reach,
            format,
            rate,
            credit_ceilings,
            signature_required,
            signature_keys,
            keys,
            created_at,
            changed_at,
        } = self;
        let suspensions = [self, later].into_iter().filter_map(|state| state.suspended_with);
        let suspended_with = suspensions.reduce(|one, other| if one.includes(other) { one } else { other });
        let mut restricted = Self {
            id: id.clone(),
            suspended_with,
            reach: reach.intersection(&later.reach),
            format: format.clone(),
            rate: *rate,
            credit_ceilings: credit_ceilings.lower_of(&later.credit_ceilings),
            signature_required: *signature_required || later.signature_required,
            signature_keys: signature_keys
                .iter()
                .filter(|key| later.signature_keys.contains(key))
                .cloned()
                .collect(),
            keys: keys.iter().filter(|key| later.has_key(&key.id)).cloned().collect(),
            created_at: *created_at,
            changed_at: *changed_at,
        };
        if restricted != *self {
            restricted.changed_at = restricted.changed_at.max(later.changed_at);
        }
        restricted
    }

    /// Suspends the partner with the right of a scope. If it was suspended before, the higher scope is needed to resume it.
    pub fn suspend(&mut self, with: Scope) {
        let before = self.suspended_with.filter(|before| before.includes(with));
        self.suspended_with = Some(before.unwrap_or(with));
    }

    /// Resumes the partner. The caller checks [`Self::suspended_with`].
    pub const fn resume(&mut self) {
        self.suspended_with = None;
    }

    /// Returns whether the partner may send requests.
    pub const fn status(&self) -> PartnerStatus {
        match self.suspended_with {
            None => PartnerStatus::Active,
            Some(_) => PartnerStatus::Suspended,
        }
    }

    /// Returns whether the partner has the key with this id.
    pub fn has_key(&self, key_id: &str) -> bool {
        self.keys.iter().any(|key| key.id == key_id)
    }

    /// Returns whether the partner may send requests with the key of this id.
    pub fn admits(&self, key_id: &str) -> bool {
        self.suspended_with.is_none() && self.has_key(key_id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_reach_is_within_another_one_that_has_all_its_accounts() {
        let named = |users: &[u128], accounts: &[(u128, u128)]| Reach::Named {
            users: users.iter().map(|it| user(*it)).collect(),
            accounts: accounts.iter().map(|(of, number)| account(*of, *number)).collect(),
        };
        let check = |one: &Reach, other: &Reach, expected: bool| {
            assert_eq!(one.is_within(other), expected, "{one:?} {other:?}");
        };
        let (nothing, wide) = (named(&[], &[]), named(&[1, 2], &[(3, 1)]));
        check(&Reach::Everything, &Reach::Everything, true);
        check(&Reach::Everything, &wide, false);
        check(&wide, &Reach::Everything, true);
        check(&nothing, &nothing, true);
        check(&wide, &wide, true);
        check(&named(&[2], &[(1, 7), (3, 1)]), &wide, true);
        check(&named(&[3], &[]), &wide, false);
        check(&named(&[], &[(3, 2)]), &wide, false);
        check(&wide, &nothing, false);
    }

    fn user(number: u128) -> UserId {
        UserId::from_uuid(Uuid::from_u128(number))
    }

    fn account(of: u128, number: u128) -> AccountKey {
        AccountKey { user: user(of), account: AccountId::from_uuid(Uuid::from_u128(number)) }
    }

    #[test]
    fn a_suspension_by_a_higher_right_is_not_lowered() {
        use Scope::{Admin, Partners};
        let check = |by: &[Scope], expected: Option<Scope>| {
            let shop = PartnerId::parse("shop").unwrap();
            let mut partner = Partner::active(shop, Reach::Everything, Timestamp::from_unix_ms(0));
            let active = partner.clone();
            by.iter().for_each(|scope| partner.suspend(*scope));
            assert_eq!(partner.suspended_with, expected, "{by:?}");
            for restored in [partner.restricted_to(&active), active.restricted_to(&partner)] {
                assert_eq!(restored.suspended_with, expected, "{by:?}");
            }
            partner.resume();
            assert_eq!(partner, active);
        };
        check(&[], None);
        check(&[Partners], Some(Partners));
        check(&[Partners, Partners], Some(Partners));
        check(&[Admin], Some(Admin));
        check(&[Partners, Admin], Some(Admin));
        check(&[Admin, Partners], Some(Admin));
    }

    #[test]
    fn an_account_is_within_an_intersection_if_it_is_within_both() {
        let named = |users: &[u128], accounts: &[(u128, u128)]| Reach::Named {
            users: users.iter().map(|number| user(*number)).collect(),
            accounts: accounts.iter().map(|(of, number)| account(*of, *number)).collect(),
        };
        let reaches = [
            Reach::Everything,
            named(&[], &[]),
            named(&[1], &[]),
            named(&[1, 2], &[(3, 1)]),
            named(&[2], &[(1, 1), (1, 2), (3, 2)]),
            named(&[3], &[(1, 2), (3, 1)]),
        ];
        for one in &reaches {
            assert_eq!(one.intersection(one), *one);
            for other in &reaches {
                let both = one.intersection(other);
                for key in (1..=3).flat_map(|of| (1..=3).map(move |number| account(of, number))) {
                    let expected = one.has_account(key) && other.has_account(key);
                    assert_eq!(both.has_account(key), expected, "{one:?} and {other:?}: {key}");
                }
            }
        }
    }
}
