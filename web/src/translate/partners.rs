//! What operators send about partners, from JSON to the domain.

use std::collections::BTreeSet;

use postonce_shared::domain::ids::{AccountKey, parse_hyphenated};
use postonce_shared::domain::partner::{PartnerStatus, Reach, RequestRate, SignatureKey};
use serde_json::Value;

use crate::error::ApiError;
use crate::formats::members::{Members, Wanted};
use crate::partner_terms::{
    TermsChange, format_name, named_reach, requests, signature_algorithm, signature_key_id,
    signature_material,
};
use crate::scopes::Scope;

/// Most scopes that a body may name.
const SCOPES_MAX: usize = 20;

/// The terms of a partner in a body.
///
/// # Errors
/// [`ApiError`] of status 400 or 422.
pub fn terms(body: &[u8]) -> Result<TermsChange, ApiError> {
    let mut members = Members::parse(body)?;
    let reach = reach(&mut members);
    let status = match members.take("status") {
        None => None,
        Some(Value::String(code)) if PartnerStatus::from_code(&code).is_some() => {
            PartnerStatus::from_code(&code)
        }
        Some(_) => {
            members.refuse("status", "must be \"active\" or \"suspended\"");
            None
        }
    };
    let format = match members.take("format") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(value) => {
            let named = format_name(value.as_str().unwrap_or_default());
            named.map_err(|rule| members.refuse("format", format!("{rule}, or null"))).ok().map(Some)
        }
    };
    let rate = match members.take("rate") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(value) => rate(&mut members, &value).map(Some),
    };
    let signature_required = match members.take("signature_required") {
        None => None,
        Some(Value::Bool(required)) => Some(required),
        Some(_) => {
            members.refuse("signature_required", "must be true or false");
            None
        }
    };
    members.refuse_the_rest();
    let parts =
        reach.map(|reach| TermsChange { reach: Some(reach), status, format, rate, signature_required });
    members.finish(parts)
}

/// The scopes of a new key in a body.
///
/// # Errors
/// [`ApiError`] of status 400 or 422.
pub fn key_scopes(body: &[u8]) -> Result<Vec<Scope>, ApiError> {
    let mut members = Members::parse(body)?;
    let must = || format!("must be a list of at least one of {}", Scope::codes());
    let scopes = match members.take("scopes") {
        Some(Value::Array(codes)) if (1..=SCOPES_MAX).contains(&codes.len()) => {
            let known = |code: &Value| code.as_str().and_then(Scope::of_code);
            for (index, code) in codes.iter().enumerate() {
                if known(code).is_none() {
                    members.refuse(&format!("scopes[{index}]"), format!("must be one of {}", Scope::codes()));
                }
            }
            let scopes: BTreeSet<Scope> = codes.iter().filter_map(known).flatten().copied().collect();
            Some(scopes.into_iter().collect())
        }
        Some(_) => {
            members.refuse("scopes", must());
            None
        }
        None => {
            members.refuse("scopes", format!("is missing; it {}", must()));
            None
        }
    };
    members.refuse_the_rest();
    members.finish(scopes)
}

/// A new key to sign with in a body.
///
/// # Errors
/// [`ApiError`] of status 400 or 422.
pub fn signature_key(body: &[u8]) -> Result<SignatureKey, ApiError> {
    let mut members = Members::parse(body)?;
    let id = members.text("key_id", Wanted::Text);
    let algorithm = members.text("algorithm", Wanted::Text);
    let material = members.text("material", Wanted::Text);
    members.refuse_the_rest();
    let id = id.and_then(|id| signature_key_id(&id).map_err(|rule| members.refuse("key_id", rule)).ok());
    let algorithm = algorithm
        .and_then(|code| signature_algorithm(&code).map_err(|rule| members.refuse("algorithm", rule)).ok());
    let material = algorithm.zip(material).and_then(|(algorithm, text)| {
        signature_material(algorithm, &text).map_err(|rule| members.refuse("material", rule)).ok()
    });
    let parts = id.zip(algorithm).zip(material);
    members.finish(parts.map(|((id, algorithm), material)| SignatureKey { id, algorithm, material }))
}

fn reach(members: &mut Members) -> Option<Reach> {
    let Some(mut inner) = members.optional_object("reach") else {
        members.refuse_missing("reach", "say {\"everything\": true}, or name users and accounts");
        return None;
    };
    let everything = match inner.take("everything") {
        None | Some(Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(_) => {
            inner.refuse("everything", "must be true or false");
            false
        }
    };
    let (users, accounts) = (inner.take("users"), inner.take("accounts"));
    let names_something = users.is_some() || accounts.is_some();
    let reach = if everything && names_something {
        inner.refuse("everything", "must not stand beside users or accounts");
        None
    } else if everything {
        Some(Reach::Everything)
    } else if names_something {
        let users = list(&mut inner, "users", users, "a UUID", |user| parse_hyphenated(user.as_str()?).ok());
        let form = "an object with user_id and account_id, both UUIDs";
        let accounts = list(&mut inner, "accounts", accounts, form, account);
        named_reach(users, accounts).map_err(|rule| inner.refuse_itself(rule)).ok()
    } else {
        inner.refuse_itself("must be {\"everything\": true}, or name users, accounts or both");
        None
    };
    members.close(inner);
    reach
}

fn account(value: &Value) -> Option<AccountKey> {
    let members = value.as_object().filter(|members| members.len() == 2)?;
    let user = parse_hyphenated(members.get("user_id")?.as_str()?).ok()?;
    let account = parse_hyphenated(members.get("account_id")?.as_str()?).ok()?;
    Some(AccountKey { user, account })
}

/// The items of a list that may be absent; each that is none is told.
fn list<T: Ord>(
    members: &mut Members,
    name: &str,
    value: Option<Value>,
    form: &str,
    item: impl Fn(&Value) -> Option<T>,
) -> BTreeSet<T> {
    let mut items = BTreeSet::new();
    match value {
        None => {}
        Some(Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                match item(value) {
                    Some(item) => drop(items.insert(item)),
                    None => members.refuse(&format!("{name}[{index}]"), format!("must be {form}")),
                }
            }
        }
        Some(_) => members.refuse(name, format!("must be a list, each item {form}")),
    }
    items
}

/// A whole number, also when it is written with a point, such as `50.0`: to JSON that is the same.
fn whole_number(value: &Value) -> Option<u64> {
    let text = value.as_number()?.to_string();
    text.strip_suffix(".0").unwrap_or(&text).parse().ok()
}

fn rate(members: &mut Members, value: &Value) -> Option<RequestRate> {
    let Some(parts) = value.as_object() else {
        members.refuse("rate", "must be an object with per_second and burst, or null");
        return None;
    };
    let mut number = |name: &str| {
        let count = parts.get(name).and_then(whole_number).unwrap_or(0);
        requests(count).map_err(|rule| members.refuse(&format!("rate.{name}"), rule)).ok()
    };
    let (per_second, burst) = (number("per_second"), number("burst"));
    for name in parts.keys().filter(|name| !["per_second", "burst"].contains(&name.as_str())) {
        members.refuse(&format!("rate.{}", name.escape_default()), "is not known here");
    }
    per_second.zip(burst).map(|(per_second, burst)| RequestRate { per_second, burst })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";

    fn fields<T: std::fmt::Debug>(answer: Result<T, ApiError>) -> Vec<String> {
        answer.unwrap_err().fields().map(str::to_owned).collect()
    }

    #[test]
    fn the_reach_is_said_whole_or_the_terms_are_refused() {
        let check = |body: &str, expected: &[&str]| {
            assert_eq!(fields(terms(body.as_bytes())), expected, "{body}");
        };
        check("{}", &["reach"]);
        check(r#"{"reach":null}"#, &["reach"]);
        check(r#"{"reach":"everything"}"#, &["reach"]);
        check(r#"{"reach":{}}"#, &["reach"]);
        check(r#"{"reach":{"everything":false}}"#, &["reach"]);
        check(r#"{"reach":{"everything":"yes"}}"#, &["reach.everything", "reach"]);
        check(r#"{"reach":{"everything":true,"users":[]}}"#, &["reach.everything"]);
        check(r#"{"reach":{"users":["7"],"accounts":{}}}"#, &["reach.users[0]", "reach.accounts"]);
        check(&format!(r#"{{"reach":{{"accounts":[{{"user_id":"{USER}"}}]}}}}"#), &["reach.accounts[0]"]);
        check(r#"{"reach":{"everything":true,"all":true}}"#, &["reach.all"]);
        check(
            r#"{"reach":{"users":[]},"status":"asleep","format":"csv","rate":{"per_second":0,"much":1},"more":1}"#,
            &["status", "format", "rate.per_second", "rate.burst", "rate.much", "more"],
        );
        let many: Vec<String> = (0..1001).map(|n| format!("\"0b1c6f0a-54f2-4f0c-9c64-{n:012}\"")).collect();
        check(&format!(r#"{{"reach":{{"users":[{}]}}}}"#, many.join(",")), &["reach"]);
    }

    #[test]
    fn what_is_left_out_stays_and_null_takes_away() {
        let bare = terms(br#"{"reach":{"everything":true}}"#).unwrap();
        assert_eq!(bare, TermsChange { reach: Some(Reach::Everything), ..TermsChange::default() });
        let body = format!(
            r#"{{"reach":{{"users":["{USER}"],"accounts":[{{"user_id":"{USER}","account_id":"{USER}"}}]}},
                "status":"suspended","format":null,"rate":null,"signature_required":true}}"#
        );
        let full = terms(body.as_bytes()).unwrap();
        assert_eq!((full.format, full.rate), (Some(None), Some(None)));
        assert_eq!((full.status, full.signature_required), (Some(PartnerStatus::Suspended), Some(true)));
        assert_eq!(full.reach.unwrap().names(), 2);
    }

    #[test]
    fn scopes_of_keys_are_known_ones() {
        let check = |body: &str, expected: &[&str]| {
            assert_eq!(fields(key_scopes(body.as_bytes())), expected, "{body}");
        };
        check("{}", &["scopes"]);
        check(r#"{"scopes":[]}"#, &["scopes"]);
        check(r#"{"scopes":"read"}"#, &["scopes"]);
        check(r#"{"scopes":["read","fly",7]}"#, &["scopes[1]", "scopes[2]"]);
        let scopes = key_scopes(br#"{"scopes":["transactions:write","read","read"]}"#).unwrap();
        assert_eq!(scopes, [Scope::Deposit, Scope::Withdraw, Scope::Read]);
    }

    #[test]
    fn material_is_never_in_a_refusal() {
        let body = br#"{"key_id":"a b","algorithm":"hmac-sha256","material":"c2VjcmV0"}"#;
        let error = signature_key(body).unwrap_err();
        assert_eq!(error.fields().collect::<Vec<_>>(), ["key_id", "material"]);
        assert!(!format!("{error:?}").contains("c2VjcmV0"));
        assert_eq!(fields(signature_key(b"{}")), ["key_id", "algorithm", "material"]);
    }
}
