//! The checks of answers detect each kind of violation.

use std::fs;

use postonce_tests::contracts::{OpenApi, ReceivedAnswer, XML_SCHEMAS, XmlValidator, check, validate_xml};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

const ACCOUNT: &str =
    "/v1/users/0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11/accounts/77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";

fn account() -> Value {
    json!({
        "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11", "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22",
        "currency": "EUR", "status": "open", "balance": "12.30", "available": "12.30",
        "overdraft_limit": "0.00", "version": 7, "opened_at": "2026-11-21T08:00:00.123Z",
    })
}

/// The contract violations of an answer to a request for the account.
fn violations(method: &str, status: u16, headers: &[(&'static str, &'static str)], body: &Value) -> String {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    let body = body.to_string();
    let given = ReceivedAnswer { method, path: ACCOUNT, status, headers: &headers, body: body.as_bytes() };
    check(OpenApi::published(), &given).err().unwrap_or_default().join("\n")
}

#[test]
fn every_schema_of_the_plain_document_has_an_example_that_both_documents_accept() {
    let plain = OpenApi::parse(postonce_schemas::OPENAPI_JSON);
    let strict: Vec<&String> = OpenApi::published().schemas().map(|(name, _)| name).collect();
    for (name, schema) in plain.schemas() {
        let example = schema.get("example").unwrap_or_else(|| panic!("{name} has no example"));
        let accepted = |document: &OpenApi| {
            let errors = document.errors(&document.schema(name), example);
            assert!(errors.is_empty(), "{name}: {example}: {errors:?}");
        };
        accepted(&plain);
        if strict.contains(&name) {
            accepted(OpenApi::published());
        }
    }
}

#[test]
fn each_violation_of_the_contract_is_detected() {
    let json = ("content-type", "application/json");
    let problem = ("content-type", "application/problem+json");
    let get = |status, headers: &[_], body: &Value| violations("GET", status, headers, body);
    let expect = |found: String, expected: &str| {
        assert!(
            found.contains(expected) && found.is_empty() == expected.is_empty(),
            "{found:?}: {expected:?}"
        );
    };
    expect(get(200, &[json], &account()), "");
    expect(get(200, &[("content-type", "application/json; charset=utf-8")], &account()), "");
    expect(get(206, &[json], &account()), "the status 206 is not documented");
    expect(get(200, &[("content-type", "text/plain")], &account()), "\"text/plain\" is not documented");
    expect(get(200, &[], &account()), "the media type \"\" is not documented");
    expect(get(200, &[json], &json!([])), "is not of type \"object\"");
    let with = |member: &str, value: Value| {
        let mut account = account();
        account[member] = value;
        account
    };
    expect(get(200, &[json], &with("balance", json!(12.3))), "at \"/balance\"");
    expect(get(200, &[json], &with("user_id", json!("somebody"))), "at \"/user_id\"");
    expect(get(200, &[json], &with("opened_at", json!("yesterday"))), "at \"/opened_at\"");
    expect(get(200, &[json], &with("holder", Value::Null)), "at \"/holder\"");
    expect(get(200, &[json], &with("iban", json!("DE00"))), "('iban' was unexpected)");
    let refused = json!({"type": "urn:postonce:problem:api_key_missing", "title": "t", "status": 401,
        "detail": "d", "code": "api_key_missing"});
    expect(get(401, &[problem, ("www-authenticate", "Bearer realm=\"postonce\"")], &refused), "");
    expect(get(401, &[problem], &refused), "the header WWW-Authenticate is missing");
    let put = |headers: &[_]| violations("PUT", 201, headers, &account());
    expect(put(&[json, ("location", ACCOUNT)]), "");
    expect(put(&[json, ("location", "http://elsewhere/")]), "the header Location");
    expect(put(&[json]), "the header Location is missing");
    expect(violations("DELETE", 200, &[json], &account()), "DELETE is not documented");
    expect(violations("DELETE", 405, &[problem, ("allow", "GET")], &refused), "does not name");
    expect(violations("DELETE", 405, &[problem, ("allow", "GET, HEAD, PATCH, PUT")], &refused), "");
    expect(
        violations("DELETE", 405, &[problem, ("allow", "GET, PATCH, PUT")], &json!({})),
        "is a required property",
    );
}

#[test]
fn every_namespace_has_its_schema() {
    for (namespace, schema) in XML_SCHEMAS {
        assert!(validate_xml(schema, b"<nothing/>").is_err(), "{namespace}");
    }
}

#[test]
fn the_xml_validator_detects_errors_and_reads_no_file_outside_of_its_folder() {
    let outside = tempfile::tempdir().unwrap();
    let folder = outside.path().join("schemas");
    fs::create_dir(&folder).unwrap();
    let schema = |import: &str| {
        format!(
            r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{import}<xs:element name="a" type="xs:int"/></xs:schema>"#
        )
    };
    let other = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:x"/>"#;
    fs::write(outside.path().join("outside.xsd"), other).unwrap();
    fs::write(folder.join("inside.xsd"), other).unwrap();
    let imports =
        |place: &str| schema(&format!(r#"<xs:import namespace="urn:x" schemaLocation="{place}"/>"#));
    fs::write(folder.join("good.xsd"), imports("inside.xsd")).unwrap();
    fs::write(folder.join("escapes.xsd"), imports("../outside.xsd")).unwrap();
    fs::write(folder.join("calls.xsd"), imports("http://127.0.0.1:1/outside.xsd")).unwrap();
    fs::write(folder.join("broken.xsd"), "<a/>").unwrap();

    let validator = XmlValidator::over(&folder);
    let errors = |document: &str| validator.validate("good.xsd", document.as_bytes()).unwrap().err();
    assert_eq!(errors("<a>1</a>"), None);
    let expect = |document: &str, expected: &str| {
        let errors = errors(document).unwrap_or_default().join("\n");
        assert!(errors.contains(expected), "{document}: {errors}");
    };
    expect("<a>one</a>", "line 1: Element 'a': 'one' is not a valid value");
    expect("<a>1</b>", "not well-formed");
    expect("", "not well-formed");
    expect("<!DOCTYPE a [<!ENTITY x \"1\">]><a>&x;</a>", "document type declaration");
    for unusable in ["escapes.xsd", "calls.xsd", "broken.xsd", "missing.xsd", "../outside.xsd"] {
        assert!(validator.validate(unusable, b"<a>1</a>").is_err(), "{unusable}");
    }
}
