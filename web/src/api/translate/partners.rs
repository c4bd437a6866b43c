//! Conversion of documents about partners and their keys to domain values.

use std::collections::{BTreeMap, BTreeSet};

use postonce_schemas::json::{self as wire, DecimalText, PartnerRate, PartnerReach, Scopes};
use postonce_shared::domain::credit::CreditCeilings;
use postonce_shared::domain::ids::{AccountKey, parse_hyphenated};
use postonce_shared::domain::partner::{PartnerStatus, Reach, RequestRate, SignatureAlgorithm, SignatureKey};
use postonce_shared::domain::time::Timestamp;

use super::InboundDocument;
use super::content::{known, later_time};
use crate::access::partner_terms::{
    NewKeyTerms, TermsChange, credit_ceiling, format_name, named_reach, signature_material,
};
use crate::access::scopes::Scope;
use crate::error::ApiError;
use crate::formats::members::Members;

/// Parses the terms of a partner.
///
/// # Errors
/// [`ApiError`] with status 400, 415 or 422, and every violation.
pub fn partner_terms(document: &InboundDocument) -> Result<TermsChange, ApiError> {
    let mut members = document.members_of_json()?;
    let wire::PartnerTerms { reach, status, format, rate, credit_ceilings, signature_required } =
        members.read()?;
    members.refuse_unknown();
    members.report("reach");
    let reach = self::reach(&mut members, reach);
    members.report("status");
    let status = known(status, PartnerStatus::from_code);
    let format = format.map(|format| {
        let named = format.map(|name| format_name(&name)).transpose();
        named.map_err(|rule| members.refuse("format", format!("{rule}, or null"))).ok().flatten()
    });
    members.report("rate");
    let rate =
        rate.map(|rate| rate.map(|PartnerRate { per_second, burst }| RequestRate { per_second, burst }));
    let credit_ceilings = credit_ceilings.map(|ceilings| self::credit_ceilings(&mut members, ceilings));
    let parts = reach.zip(status).map(|(reach, status)| TermsChange {
        reach: Some(reach),
        status,
        format,
        rate,
        credit_ceilings,
        signature_required,
    });
    members.finish(parts)
}

fn credit_ceilings(members: &mut Members, ceilings: Option<BTreeMap<String, DecimalText>>) -> CreditCeilings {
    let Some(ceilings) = ceilings else { return CreditCeilings::Unlimited };
    let ceilings = ceilings.into_iter().filter_map(|(currency, DecimalText(limit))| {
        let ceiling = credit_ceiling(&currency, &limit);
        ceiling.map_err(|rule| members.refuse(&format!("credit_ceilings.{currency}"), rule)).ok()
    });
    CreditCeilings::up_to(ceilings.collect::<Vec<_>>())
}

/// Parses the terms of a new API key. An expiry must be later than `now`.
///
/// # Errors
/// [`ApiError`] with status 400, 415 or 422, and every violation.
pub fn key_terms(document: &InboundDocument, now: Timestamp) -> Result<NewKeyTerms, ApiError> {
    let mut members = document.members_of_json()?;
    let wire::PartnerKeyRequest { scopes: Scopes(codes), expires_at } = members.read()?;
    members.refuse_unknown();
    members.report("scopes");
    let scopes: Option<BTreeSet<Scope>> = codes.iter().map(|code| Scope::from_code(code)).collect();
    let expires_at = expires_at.and_then(|text| later_time(&mut members, "expires_at", &text, now));
    members.finish(scopes.map(|scopes| NewKeyTerms { scopes: scopes.into_iter().collect(), expires_at }))
}

/// Parses a new signature key.
///
/// # Errors
/// [`ApiError`] with status 400, 415 or 422, and every violation.
pub fn signature_key(document: &InboundDocument) -> Result<SignatureKey, ApiError> {
    let mut members = document.members_of_json()?;
    let wire::PartnerSignatureKeyRequest { key_id, algorithm, material } = members.read()?;
    members.refuse_unknown();
    members.report("key_id");
    members.report("algorithm");
    let algorithm = SignatureAlgorithm::from_code(&algorithm);
    let material = algorithm.and_then(|algorithm| {
        signature_material(algorithm, &material).map_err(|rule| members.refuse("material", rule)).ok()
    });
    let parts = algorithm.zip(material);
    members.finish(parts.map(|(algorithm, material)| SignatureKey { id: key_id, algorithm, material }))
}

fn reach(members: &mut Members, reach: PartnerReach) -> Option<Reach> {
    let PartnerReach { everything, users, accounts } = reach;
    if everything == Some(true) {
        return Some(Reach::Everything);
    }
    let users = list(members, "reach.users", "must be a UUID", users, |user| parse_hyphenated(&user).ok());
    let form = "must be an object with user_id and account_id, both UUIDs";
    let accounts = list(members, "reach.accounts", form, accounts, |account| {
        let user = parse_hyphenated(&account.user_id).ok()?;
        Some(AccountKey { user, account: parse_hyphenated(&account.account_id).ok()? })
    });
    named_reach(users, accounts).map_err(|rule| members.refuse("reach", rule)).ok()
}

/// Parses an optional list, and adds a violation for each invalid item.
fn list<W, T: Ord>(
    members: &mut Members,
    field: &str,
    rule: &str,
    items: Option<Vec<W>>,
    read: impl Fn(W) -> Option<T>,
) -> BTreeSet<T> {
    let mut found = BTreeSet::new();
    for (index, item) in items.into_iter().flatten().enumerate() {
        match read(item) {
            Some(item) => drop(found.insert(item)),
            None => members.refuse(&format!("{field}[{index}]"), rule),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::translate::tests::document;

    const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";

    fn fields<T: std::fmt::Debug>(answer: Result<T, ApiError>) -> Vec<String> {
        answer.unwrap_err().fields().map(str::to_owned).collect()
    }

    #[test]
    fn terms_with_an_incomplete_reach_are_refused() {
        let check = |body: &str, expected: &[&str]| {
            assert_eq!(fields(partner_terms(&document(body))), expected, "{body}");
        };
        check("{}", &["reach"]);
        check(r#"{"reach":null}"#, &["reach"]);
        check(r#"{"reach":"everything"}"#, &["reach"]);
        check(r#"{"reach":{}}"#, &["reach"]);
        check(r#"{"reach":{"everything":false}}"#, &["reach"]);
        check(r#"{"reach":{"everything":"yes"}}"#, &["reach.everything", "reach"]);
        check(r#"{"reach":{"everything":true,"users":[]}}"#, &["reach.everything"]);
        check(r#"{"reach":{"users":["7"],"accounts":{}}}"#, &["reach.accounts", "reach.users[0]"]);
        check(&format!(r#"{{"reach":{{"accounts":[{{"user_id":"{USER}"}}]}}}}"#), &["reach.accounts[0]"]);
        check(r#"{"reach":{"everything":true,"all":true}}"#, &["reach.all"]);
        check(
            r#"{"reach":{"users":[]},"status":"asleep","format":"csv","rate":{"per_second":0,"much":1},"more":1}"#,
            &["rate.burst", "rate.much", "more", "status", "format", "rate.per_second"],
        );
        let many: Vec<String> = (0..1001).map(|n| format!("\"0b1c6f0a-54f2-4f0c-9c64-{n:012}\"")).collect();
        check(&format!(r#"{{"reach":{{"users":[{}]}}}}"#, many.join(",")), &["reach"]);
    }

    #[test]
    fn missing_members_keep_their_value_and_null_removes_it() {
        let bare = partner_terms(&document(r#"{"reach":{"everything":true}}"#)).unwrap();
        assert_eq!(bare, TermsChange { reach: Some(Reach::Everything), ..TermsChange::default() });
        let body = format!(
            r#"{{"reach":{{"users":["{USER}"],"accounts":[{{"user_id":"{USER}","account_id":"{USER}"}}]}},
                "status":"suspended","format":null,"rate":null,"credit_ceilings":null,"signature_required":true}}"#
        );
        let full = partner_terms(&document(body)).unwrap();
        assert_eq!((full.format, full.rate), (Some(None), Some(None)));
        assert_eq!(full.credit_ceilings, Some(CreditCeilings::Unlimited));
        assert_eq!((full.status, full.signature_required), (Some(PartnerStatus::Suspended), Some(true)));
        assert_eq!(full.reach.unwrap().names(), 2);
    }

    #[test]
    fn credit_ceilings_are_limits_by_currency() {
        let body = r#"{"reach":{"everything":true},"credit_ceilings":{"EUR":"100","JPY":"5000"}}"#;
        let read = partner_terms(&document(body)).unwrap();
        let expected =
            [("EUR", "100.00"), ("JPY", "5000")].map(|(code, limit)| credit_ceiling(code, limit).unwrap());
        assert_eq!(read.credit_ceilings, Some(CreditCeilings::up_to(expected)));
        let check = |ceilings: &str, expected: &[&str]| {
            let body = format!(r#"{{"reach":{{"everything":true}},"credit_ceilings":{ceilings}}}"#);
            assert_eq!(fields(partner_terms(&document(body))), expected, "{ceilings}");
        };
        check("100", &["credit_ceilings"]);
        check(r#"{"EUR":100}"#, &["credit_ceilings.EUR"]);
        check(
            r#"{"EUR":"1.001","JPY":"-1","euro":"1"}"#,
            &["credit_ceilings.EUR", "credit_ceilings.JPY", "credit_ceilings.euro"],
        );
    }

    #[test]
    fn unknown_scopes_and_past_expiries_are_refused() {
        let now = Timestamp::parse("2026-11-23T06:00:00Z").unwrap();
        let key_terms = |document: &InboundDocument| key_terms(document, now);
        let check = |body: &str, expected: &[&str]| {
            assert_eq!(fields(key_terms(&document(body))), expected, "{body}");
        };
        check("{}", &["scopes"]);
        check(r#"{"scopes":[]}"#, &["scopes"]);
        check(r#"{"scopes":"read"}"#, &["scopes"]);
        check(r#"{"scopes":["read","fly",7]}"#, &["scopes[2]", "scopes[1]"]);
        let body = document(r#"{"scopes":["withdraw","deposit","read","read"]}"#);
        let terms = key_terms(&body).unwrap();
        assert_eq!(terms.scopes, [Scope::Deposit, Scope::Withdraw, Scope::Read]);
        assert_eq!(terms.expires_at, None);
        for wrong in [r#""2026-11-23T06:00:00Z""#, r#""tomorrow""#, "7"] {
            check(&format!(r#"{{"scopes":["read"],"expires_at":{wrong}}}"#), &["expires_at"]);
        }
        let body = document(r#"{"scopes":["read"],"expires_at":"2026-11-23T07:00:01+01:00"}"#);
        assert_eq!(key_terms(&body).unwrap().expires_at, Timestamp::parse("2026-11-23T06:00:01Z"));
    }

    #[test]
    fn errors_never_contain_key_material() {
        let body = br#"{"key_id":"a b","algorithm":"hmac-sha256","material":"c2VjcmV0"}"#;
        let error = signature_key(&document(body)).unwrap_err();
        assert_eq!(error.fields().collect::<Vec<_>>(), ["key_id", "material"]);
        assert!(!format!("{error:?}").contains("c2VjcmV0"));
        assert_eq!(fields(signature_key(&document("{}"))), ["key_id", "algorithm", "material"]);
    }
}
