//! Every operation of the OpenAPI document requires a key with its scope, and the document describes every
//! response that these tests receive.

use std::collections::BTreeSet;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use serde_json::Value;

use super::test_bank::{TestBank, with_key};

/// Methods, paths and scopes of the operations that need a key. Any key is enough for one without a scope.
fn operations() -> Vec<(Method, String, Option<String>)> {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            if let Some(scopes) = operation["security"][0]["api_key"].as_array() {
                let scope = scopes.first().map(|scope| scope.as_str().unwrap().to_owned());
                assert_eq!(scope.is_none(), path == "/v1/key", "{path}");
                operations.push((method, path.clone(), scope));
            } else {
                assert!(["/livez", "/readyz"].contains(&path.as_str()), "{path} needs no key");
            }
        }
    }
    operations
}

#[actix_web::test]
async fn every_operation_needs_a_key_and_its_scope() {
    let bank = TestBank::new().await;
    let operations = operations();
    assert!(operations.len() >= 16, "{operations:?}");
    for (method, path, scope) in operations {
        // The key is checked before the ids of the path.
        let request = || TestRequest::default().method(method.clone()).uri(&path);
        let name = format!("{method} {path}");
        let answer = bank.call(request()).await;
        assert_eq!(answer.problem(), (401, "api_key_missing"), "{name}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{name}");
        assert_eq!(
            bank.call(with_key(request(), &NewKey::random())).await.problem(),
            (401, "api_key_invalid")
        );
        let Some(scope) = scope else { continue };
        let needed = Scope::ALL.iter().copied().find(|it| it.code() == scope);
        let needed = needed.unwrap_or_else(|| panic!("{name} names an unknown scope {scope}"));
        let others: Vec<Scope> = Scope::ALL.iter().copied().filter(|it| !it.includes(needed)).collect();
        let key = NewKey::random();
        bank.add_key(&key, "reader", &others).await;
        assert_eq!(bank.call(with_key(request(), &key)).await.problem(), (403, "scope_missing"), "{name}");
    }
}

#[test]
fn operation_ids_are_unique_and_all_routes_are_documented() {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
            assert!(operation["summary"].is_string(), "{operation}");
        }
    }
    for route in postonce_web::api::routes::paths() {
        let documented = document["paths"].get(&route).is_some();
        // SOAP has a description of its own.
        let others = ["/openapi.json", "/openapi-strict.json", "/docs", "/soap/", "/xsd/"];
        let is_document = route == "/" || others.iter().any(|other| route.starts_with(other));
        assert!(documented || is_document, "{route} is not documented");
    }
}

#[actix_web::test]
async fn a_key_is_accepted_in_one_header_only() {
    let bank = TestBank::new().await;
    let key = NewKey::random();
    bank.add_key(&key, "reader", &[Scope::Read]).await;
    let check = async |value: String, expected: u16| {
        let request =
            TestRequest::get().uri(super::test_bank::USER).insert_header(("authorization", value.clone()));
        assert_eq!(bank.call(request).await.status, expected, "{value}");
    };
    check(format!("Bearer {}", key.expose()), 200).await;
    check(format!("bearer   {}", key.expose()), 200).await;
    check(key.expose().to_owned(), 401).await;
    check(format!("Basic {}", key.expose()), 401).await;
    check("Bearer ".to_owned(), 401).await;
    check(format!("Bearer {}x", key.expose()), 401).await;
    check(format!("Bearer {}", "x".repeat(5000)), 401).await;
}
