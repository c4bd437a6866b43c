//! Who looks at the pages of partners, and when; and words that they share.

use postonce_schemas::json::{PartnerKey, PartnerReach};
use postonce_shared::domain::time::Timestamp;

use crate::access::scopes::Scope;
use crate::console::html::format::counted;

/// A key that expires within this time is shown as one that needs attention, in seconds.
const EXPIRES_SOON_S: u64 = 14 * 86_400;

/// The operator, as far as the pages depend on it.
#[derive(Debug, Clone)]
pub struct Viewer<'a> {
    /// The token of its forms.
    pub csrf: &'a str,
    /// The partner of its key.
    pub partner: &'a str,
    /// Its key.
    pub key_id: &'a str,
    /// The scopes that it can give to keys of other partners.
    pub grants: Vec<Scope>,
    /// The time.
    pub now: Timestamp,
}

impl Viewer<'_> {
    /// Returns whether the key may manage all partners.
    pub fn is_admin(&self) -> bool {
        self.grants.contains(&Scope::Admin)
    }
}

/// How long a key is still valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// It does not expire.
    Unlimited,
    /// It expires, but not soon.
    Limited,
    /// It expires soon: the seconds that are left.
    EndsSoon(u64),
    /// It has expired.
    Ended,
}

impl Validity {
    /// Returns the validity of a key. A time that cannot be read counts as one that has passed.
    pub fn of(key: &PartnerKey, now: Timestamp) -> Self {
        let Some(expires_at) = &key.expires_at else { return Self::Unlimited };
        let left = Timestamp::parse(expires_at).map_or(0, |at| at.since(now).as_secs());
        match left {
            0 => Self::Ended,
            left if left < EXPIRES_SOON_S => Self::EndsSoon(left),
            _ => Self::Limited,
        }
    }
}

/// Describes a reach in a few words.
pub fn reach_in_words(reach: &PartnerReach) -> String {
    if reach.everything == Some(true) {
        return "every account of the bank".to_owned();
    }
    let users = reach.users.as_ref().map_or(0, Vec::len);
    let accounts = reach.accounts.as_ref().map_or(0, Vec::len);
    match (users, accounts) {
        (0, 0) => "no account".to_owned(),
        (users, 0) => format!("all accounts of {}", counted(users, "user", "users")),
        (0, accounts) => counted(accounts, "account", "accounts"),
        (users, accounts) => {
            format!(
                "all accounts of {}, and {}",
                counted(users, "user", "users"),
                counted(accounts, "account", "accounts")
            )
        }
    }
}

#[cfg(test)]
pub mod tests {
    use postonce_schemas::json::Partner;
    use serde_json::{Value, json};

    use super::*;

    /// Returns the partner `shop` with these members.
    pub fn shop(changes: &Value) -> Partner {
        let mut partner = json!({
            "partner_id": "shop", "status": "active", "reach": { "everything": true }, "signature_required": false,
            "signature_keys": [], "keys": [key("aaaa000011112222", None)],
            "created_at": "2026-11-01T08:00:00.000Z", "changed_at": "2026-11-02T08:00:00.000Z"
        });
        partner.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(partner).unwrap()
    }

    /// Returns a key that expires at this time.
    pub fn key(id: &str, expires_at: Option<&str>) -> Value {
        let mut key = json!({
            "key_id": id, "scopes": ["deposit", "read"], "created_at": "2026-11-01T08:00:00.000Z",
            "last_used_at": "2026-11-20T08:00:00.000Z"
        });
        if let Some(at) = expires_at {
            key["expires_at"] = at.into();
        }
        key
    }

    /// Returns the operator `ops`, who can give these scopes.
    pub fn viewer(grants: &[Scope]) -> Viewer<'static> {
        let now = Timestamp::parse("2026-11-21T08:00:00Z").unwrap();
        Viewer { csrf: "token", partner: "ops", key_id: "0000111122223333", grants: grants.to_vec(), now }
    }

    #[test]
    fn a_reach_is_described() {
        let check = |reach: Value, words: &str| {
            assert_eq!(reach_in_words(&serde_json::from_value(reach).unwrap()), words);
        };
        check(json!({ "everything": true }), "every account of the bank");
        check(json!({ "users": [], "accounts": [] }), "no account");
        check(json!({ "users": ["u"], "accounts": [] }), "all accounts of 1 user");
        let account = json!({ "user_id": "u", "account_id": "a" });
        check(json!({ "accounts": [account, account] }), "2 accounts");
        check(
            json!({ "users": ["u", "v"], "accounts": [account] }),
            "all accounts of 2 users, and 1 account",
        );
    }

    #[test]
    fn keys_that_expire_need_attention_in_time() {
        let now = viewer(&[]).now;
        let check = |expires_at: Option<&str>, expected| {
            let key: PartnerKey = serde_json::from_value(key("k", expires_at)).unwrap();
            assert_eq!(Validity::of(&key, now), expected, "{expires_at:?}");
        };
        check(None, Validity::Unlimited);
        check(Some("2027-11-21T08:00:00.000Z"), Validity::Limited);
        check(Some("2026-11-21T09:00:00.000Z"), Validity::EndsSoon(3_600));
        check(Some("2026-11-21T08:00:00.000Z"), Validity::Ended);
        check(Some("2020-11-21T08:00:00.000Z"), Validity::Ended);
    }
}
