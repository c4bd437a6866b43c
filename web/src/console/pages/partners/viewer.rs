//! Rights of the viewer, and texts that the pages of partners share.

use postonce_schemas::json::{PartnerKey, PartnerReach};
use postonce_shared::domain::time::Timestamp;

use crate::access::scopes::Scope;
use crate::console::html::format::counted;

/// Remaining validity below which a key needs attention, in seconds.
const EXPIRES_SOON_S: u64 = 14 * 86_400;

/// Signed-in operator on the pages of partners.
#[derive(Debug, Clone)]
pub struct Viewer<'a> {
    /// Token for forms.
    pub csrf: &'a str,
    /// Id of the partner that owns the viewer's key.
    pub partner: &'a str,
    /// Id of the viewer's key.
    pub key_id: &'a str,
    /// Scopes that the viewer can grant to keys of other partners.
    pub grants: Vec<Scope>,
    /// Current time.
    pub now: Timestamp,
}

impl Viewer<'_> {
    /// Returns whether the key may manage all partners.
    pub fn is_admin(&self) -> bool {
        self.grants.contains(&Scope::Admin)
    }
}

/// Remaining validity of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// The key does not expire.
    Unlimited,
    /// The key expires, but not soon.
    Limited,
    /// The key expires soon: remaining seconds.
    EndsSoon(u64),
    /// The key has expired.
    Ended,
}

impl Validity {
    /// Returns the validity of a key. An expiry that cannot be parsed counts as past.
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

/// Describes a reach.
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

    /// Returns the partner `shop` with changed members.
    pub fn shop(changes: &Value) -> Partner {
        let mut partner = json!({
            "partner_id": "shop", "status": "active", "reach": { "everything": true }, "signature_required": false,
            "signature_keys": [], "keys": [key("aaaa000011112222", None)],
            "created_at": "2026-11-01T08:00:00.000Z", "changed_at": "2026-11-02T08:00:00.000Z"
        });
        partner.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(partner).unwrap()
    }

    /// Returns a key with this expiry.
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

    /// Returns the viewer of the partner `ops` who can grant these scopes.
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
