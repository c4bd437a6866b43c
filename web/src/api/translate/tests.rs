use actix_web::ResponseError as _;
use postonce_schemas::json as wire;
use postonce_schemas::json::{codes, rules};
use postonce_shared::cluster::gate::GateState;
use postonce_shared::domain::batch::{HindranceReason, ItemStatus, OnInvalid, Phase};
use postonce_shared::domain::instruction::{
    METADATA_BYTES_MAX, METADATA_ENTRIES_MAX, REFERENCE_CHARS_MAX, TransactionKind, UNKNOWN_MEMBERS_BYTES_MAX,
};
use postonce_shared::domain::partner::{PartnerStatus, SignatureAlgorithm};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::scope::Scope;
use postonce_shared::domain::time::Timestamp;
use serde_json::Value;
use utoipa::PartialSchema;

use super::*;

pub fn document(body: impl AsRef<[u8]>) -> InboundDocument {
    InboundDocument::of(&json::Json, Bytes::copy_from_slice(body.as_ref()), XmlLimits::default())
}

/// Returns the violations of a refused body, as `field: message`.
async fn violations(error: &ApiError) -> Vec<String> {
    let body = actix_web::body::to_bytes(error.error_response().into_body()).await.unwrap();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    let violations = problem["violations"].as_array().cloned().unwrap_or_default();
    let text = |violation: &Value, name: &str| violation[name].as_str().unwrap().to_owned();
    violations.iter().map(|it| format!("{}: {}", text(it, "field"), text(it, "message"))).collect()
}

async fn refused(body: &str) -> Vec<String> {
    violations(&instruction(TransactionKind::Deposit, &document(body)).unwrap_err()).await
}

#[actix_web::test]
async fn each_wrong_amount_has_its_own_message() {
    let check = async |amount: &str, expected: &str| {
        let body = format!(r#"{{"amount":{amount},"currency":"EUR"}}"#);
        match instruction(TransactionKind::Deposit, &document(body)) {
            Ok(instruction) => assert_eq!(instruction.amount.to_string(), expected, "{amount}"),
            Err(error) => assert_eq!(violations(&error).await, [format!("amount: {expected}")], "{amount}"),
        }
    };
    check(r#""0.1""#, "0.10").await;
    check(r#""12.50""#, "12.50").await;
    check(r#""12""#, "12.00").await;
    check(r#""1e3""#, "must not have an exponent; write all digits, such as 1000").await;
    check(r#""-5""#, "must not have a sign; the type of the transaction gives the direction").await;
    check(r#""00012.50""#, "must not have leading zeros").await;
    check(r#""12.505""#, "has more decimals than EUR has (2)").await;
    check(&format!("\"{}\"", "9".repeat(40)), "must be at most 999999999999999999 minor units").await;
    check("12.50", "must be a string such as \"12.50\"; a JSON number can lose digits").await;
    check("12.5012345678901234567890", "must be a string such as \"12.50\"; a JSON number can lose digits")
        .await;
    check(r#""１２""#, "must be written with the digits 0 to 9").await;
    check(r#""0""#, "must be greater than zero").await;
    check(r#""""#, "must not be empty; write a decimal number such as 12.50").await;
    check("null", "must be a string such as \"12.50\"").await;
    check(r#"["1"]"#, "must be a string such as \"12.50\"").await;
}

#[actix_web::test]
async fn all_violations_are_reported_at_once() {
    let body = r#"{"amount":"-5","currency":"XXX","reference":7,"metadata":{"a":1,"b":"x"},
        "fee":0.12345678901234567890}"#;
    let expected = [
        "reference: must be a string; a JSON number can lose digits",
        "metadata.a: must be a string; a JSON number can lose digits",
        "fee: contains a number that cannot be stored exactly: it has more than 18 digits before the decimal point, \
         or more digits than a double can represent; send it as a string",
        "currency: is not a currency code of ISO 4217 that money can be kept in, such as EUR",
        "amount: must not have a sign; the type of the transaction gives the direction",
    ];
    assert_eq!(refused(body).await, expected);
    let expected = [
        "amount: is missing; it must be a string such as \"12.50\"",
        "currency: is missing; it must be a currency code of ISO 4217, such as \"EUR\"",
        "reference: must have 1 to 140 characters",
    ];
    assert_eq!(refused(r#"{"reference":""}"#).await, expected);
    assert_eq!(
        refused(r#"{"amount":"1","currency":"EUR","metadata":[]}"#).await,
        ["metadata: must be an object"]
    );
}

#[actix_web::test]
async fn members_of_responses_cannot_be_sent() {
    for name in
        ["message_id", "type", "status", "accepted_at", "sequence", "posted_at", "reason", "rejected_at"]
    {
        let body = format!(r#"{{"amount":"1","currency":"EUR","{name}":"x"}}"#);
        let expected = format!("{name}: is a member of responses; it cannot be sent");
        assert_eq!(refused(&body).await, [expected]);
    }
}

#[test]
fn no_order_of_a_direct_producer_has_a_member_of_answers() {
    use postonce_shared::messaging::direct_producers;

    let own = [wire::Transaction::UNKNOWN_MEMBERS, wire::Transaction::PARTNER_ID];
    for name in super::content::names_of::<wire::Transaction>() {
        let body = format!(
            r#"{{"PartitionKey":"0b1c2d3e00004000800000000000000a|0b1c2d3e00004000800000000000000b",
            "RowKey":"0b1c2d3e00004000800000000000000c","Amount":1,"{name}":"x"}}"#
        );
        let order = direct_producers::parse(body.as_bytes()).unwrap().remove(0).order;
        // These two are never written twice.
        assert_eq!(order.is_ok(), own.contains(&name.as_str()), "{name}: {order:?}");
    }
}

#[test]
fn unknown_members_are_part_of_the_content() {
    let read = |rest: &str| {
        let body = format!(r#"{{"amount":"1","currency":"EUR"{rest}}}"#);
        instruction(TransactionKind::Deposit, &document(body)).unwrap()
    };
    let plain = read("");
    let unknown = read(r#","purpose":{"b":1,"a":[true]}"#);
    assert_eq!(unknown.details.unknown_members(), r#"{"purpose":{"a":[true],"b":1}}"#);
    assert_ne!(plain.fingerprint(), unknown.fingerprint());
    assert_eq!(plain, read(r#","reference":null,"metadata":null"#));
    assert_eq!(plain, read(r#","metadata":{}"#));
}

#[actix_web::test]
async fn unknown_members_of_account_terms_are_refused() {
    let check = async |body: &str, expected: &[&str]| match account_terms(&document(body)) {
        Ok(_) => assert!(expected.is_empty(), "{body}"),
        Err(error) => assert_eq!(violations(&error).await, expected, "{body}"),
    };
    check(r#"{"currency":"EUR"}"#, &[]).await;
    check(r#"{"currency":"JPY","overdraft_limit":"0","holder":null}"#, &[]).await;
    let body = r#"{"currency":"EUR","overdraft_limt":"5","holder":{"given_name":"","title":"Dr"}}"#;
    let expected = [
        "holder.family_name: is missing; it must be a string",
        "holder.title: is not a known field",
        "overdraft_limt: is not a known field",
        "holder.given_name: must have 1 to 140 characters",
    ];
    check(body, &expected).await;
    let body = r#"{"currency":"EUR","holder":{"given_name":"","family_name":"A\u0000"}}"#;
    let expected = [
        "holder.given_name: must have 1 to 140 characters",
        "holder.family_name: must not contain control characters",
    ];
    check(body, &expected).await;
    check(r#"{"currency":"EUR","":1}"#, &["\"\": is not a known field"]).await;
    check(
        r#"{"currency":"JPY","overdraft_limit":"0.5"}"#,
        &["overdraft_limit: has more decimals than JPY has (0)"],
    )
    .await;
}

#[actix_web::test]
async fn an_empty_change_is_refused() {
    let check = async |body: &str, expected: &[&str]| match account_change(&document(body)) {
        Ok(_) => assert!(expected.is_empty(), "{body}"),
        Err(error) => assert_eq!(violations(&error).await, expected, "{body}"),
    };
    check(r#"{"status":"closed"}"#, &[]).await;
    check(r#"{"overdraft_limit":"1.2345"}"#, &[]).await;
    check("{}", &["body: must contain a change of the limit, the status or the holder"]).await;
    check(r#"{"status":"shut"}"#, &["status: must be \"open\", \"frozen\" or \"closed\""]).await;
    check(
        r#"{"overdraft_limit":"-1","currency":"EUR"}"#,
        &[
            "currency: is not a known field",
            "overdraft_limit: must not have a sign; the type of the transaction gives the direction",
        ],
    )
    .await;
}

#[actix_web::test]
async fn violations_of_rules_have_their_place_among_those_of_the_domain() {
    let check = async |error: ApiError, expected: &[&str]| assert_eq!(violations(&error).await, expected);
    let body = r#"{"state":"released","release_at":"tomorrow","reason":""}"#;
    let expected = [
        "release_at: must be a time of RFC 3339, such as \"2027-11-23T06:00:00Z\"",
        "release_at: must not be set with state \"released\"",
        "reason: must have 1 to 200 characters in one line, without control characters",
    ];
    check(gate_change(&document(body), Timestamp::from_unix_ms(0)).unwrap_err(), &expected).await;
    let body = r#"{"overdraft_limit":"-1","status":"shut","holder":{"given_name":"","family_name":7}}"#;
    let expected = [
        "holder.family_name: must be a string; a JSON number can lose digits",
        "overdraft_limit: must not have a sign; the type of the transaction gives the direction",
        "status: must be \"open\", \"frozen\" or \"closed\"",
        "holder.given_name: must have 1 to 140 characters",
    ];
    check(account_change(&document(body)).unwrap_err(), &expected).await;
    let members = r#"{"user_id":"7","type":"fee","amount":"1","currency":"XXX","reference":"\t"}"#;
    let expected = [
        "account_id: is missing; it must be a string",
        "message_id: is missing; it must be a string",
        "user_id: is not a UUID, such as 4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
        "type: must be one of deposit, withdrawal",
        "currency: is not a currency code of ISO 4217 that money can be kept in, such as EUR",
        "reference: must not contain control characters",
    ];
    check(batch_item(json::members(members.as_bytes()).unwrap()).unwrap_err(), &expected).await;
}

/// Returns the property names in the schema of a wire struct.
fn properties<T: PartialSchema>() -> Vec<String> {
    let schema = serde_json::to_value(T::schema()).unwrap();
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn schemas_and_parsers_have_the_same_members() {
    let body = |names: &[String], values: Value| {
        let members = names.iter().map(|name| (name.clone(), values[name].clone()));
        Value::Object(members.collect()).to_string()
    };
    let values = serde_json::json!({
        "amount": "1", "currency": "EUR", "reference": "r", "metadata": {"a": "b"}, "overdraft_limit": "1",
        "holder": {"given_name": "Ada", "family_name": "Byron"}, "status": "open",
    });
    let request = body(&properties::<wire::TransactionRequest>(), values.clone());
    let read = instruction(TransactionKind::Deposit, &document(request)).unwrap();
    assert_eq!(read.details.unknown_members(), "");
    let opening = body(&properties::<wire::OpenAccountRequest>(), values.clone());
    account_terms(&document(opening)).unwrap();
    let change = body(&properties::<wire::ChangeAccountRequest>(), values);
    account_change(&document(change)).unwrap();
}

#[test]
fn the_rules_of_requests_have_the_limits_of_the_domain() {
    assert_eq!(usize::try_from(rules::LINE_CHARS_MAX), Ok(REFERENCE_CHARS_MAX));
    assert_eq!(rules::METADATA_MEMBERS_MAX, METADATA_ENTRIES_MAX);
    assert_eq!(rules::METADATA_BYTES_MAX, METADATA_BYTES_MAX);
    assert_eq!(rules::UNKNOWN_MEMBERS_BYTES_MAX, UNKNOWN_MEMBERS_BYTES_MAX);
}

fn codes_of<T: Copy>(all: &[T], code: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|one| code(*one)).collect()
}

#[test]
fn responses_have_the_codes_of_the_domain() {
    assert_eq!(wire::BatchPhase::CODES, Phase::CODES);
    assert_eq!(wire::BatchOnInvalid::CODES, codes_of(&[OnInvalid::Refuse, OnInvalid::Skip], OnInvalid::code));
    let reasons = codes_of(&HindranceReason::ALL, HindranceReason::code);
    assert_eq!(wire::BatchHindranceCode::CODES, reasons);
    assert_eq!(wire::RejectReason::CODES, codes_of(&RejectReason::ALL, RejectReason::code));
    for status in codes_of(&ItemStatus::ALL, ItemStatus::code) {
        assert!(wire::BatchItemStatus::CODES.contains(&status), "{status}");
    }
}

#[test]
fn the_rules_of_requests_have_the_codes_of_the_domain() {
    assert_eq!(codes::ACCOUNT_STATUSES, codes_of(&AccountStatus::ALL, AccountStatus::code));
    assert_eq!(codes::TRANSACTION_TYPES, codes_of(TransactionKind::ALL, TransactionKind::code));
    assert_eq!(codes::SCOPES, codes_of(Scope::ALL, Scope::code));
    let statuses = [PartnerStatus::Active, PartnerStatus::Suspended];
    assert_eq!(codes::PARTNER_STATUSES, codes_of(&statuses, PartnerStatus::code));
    let algorithms = [SignatureAlgorithm::HmacSha256, SignatureAlgorithm::Ed25519];
    assert_eq!(codes::SIGNATURE_ALGORITHMS, codes_of(&algorithms, SignatureAlgorithm::code));
    for state in codes::GATE_STATES {
        let body = document(format!(r#"{{"state":"{state}"}}"#));
        let (read, _) = gate_change(&body, Timestamp::from_unix_ms(0)).unwrap();
        let code = match read {
            GateState::Held { .. } => "held",
            GateState::Released => "released",
        };
        assert_eq!(code, *state);
    }
}
