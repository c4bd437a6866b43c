//! Signed requests that were captured and are sent again: with an id of its own a request is answered as a replay, and
//! another one that changes something is refused.

use std::time::Duration;

use actix_web::http::Method;
use actix_web::test::TestRequest;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;

use super::signatures::{Signing, hmac_key};
use super::test_bank::{ACCOUNT, Answer, TestBank, id, json, refuse_saves, with_key};

type Headers = Vec<(&'static str, String)>;

/// A bank with an account, whose shop signs with two keys.
async fn bank() -> TestBank {
    let bank = TestBank::with_account().await;
    bank.set_signing("shop", &[hmac_key("shop-1"), hmac_key("shop-2")], true).await;
    bank
}

/// Signs a request without an `Idempotency-Key`, with further parameters of the signature.
fn sign(bank: &TestBank, method: &'static str, path: &str, body: &str, more: &str) -> Headers {
    let components = vec!["@method", "@authority", "@path", "content-digest"];
    let mut signing = Signing::now(bank);
    (signing.method, signing.components, signing.more) = (method, components, more.to_owned());
    signing.headers(path, body).to_vec()
}

fn request(method: &str, path: &str, body: &str, headers: &Headers) -> TestRequest {
    let request = TestRequest::default().method(Method::from_bytes(method.as_bytes()).unwrap()).uri(path);
    let request = request.insert_header(("host", "localhost:8080"));
    let request = if body.is_empty() {
        request
    } else {
        json(request, body).insert_header(("content-length", body.len()))
    };
    headers.iter().fold(request, |request, header| request.insert_header(header.clone()))
}

async fn send(bank: &TestBank, method: &str, path: &str, body: &str, headers: &Headers) -> Answer {
    bank.call_as_shop(request(method, path, body, headers)).await
}

async fn used(bank: &TestBank) -> usize {
    bank.store.records.list(Collection::UsedSignatures, "", None, 100).await.unwrap().len()
}

#[actix_web::test]
async fn a_replayed_change_is_refused_and_has_no_effect() {
    let bank = bank().await;
    let raise = r#"{"overdraft_limit":"5.00"}"#;
    let captured = sign(&bank, "PATCH", ACCOUNT, raise, "");
    assert_eq!(send(&bank, "PATCH", ACCOUNT, raise, &captured).await.status, 200);
    let lower = r#"{"overdraft_limit":"0.00"}"#;
    let lowered = send(&bank, "PATCH", ACCOUNT, lower, &sign(&bank, "PATCH", ACCOUNT, lower, "")).await;
    assert_eq!(lowered.status, 200, "another request in the same second has another signature");
    let replayed = send(&bank, "PATCH", ACCOUNT, raise, &captured).await;
    assert_eq!(replayed.problem(), (401, "signature_used"));
    assert!(
        replayed.body["detail"].as_str().unwrap().contains("with a new created or nonce"),
        "{replayed:?}"
    );
    // The same change, signed again: in the same second with a nonce, and then with a new time.
    let with_nonce = sign(&bank, "PATCH", ACCOUNT, lower, r#";nonce="1""#);
    let again = send(&bank, "PATCH", ACCOUNT, lower, &with_nonce).await;
    assert_eq!(
        (again.status, &again.body["overdraft_limit"]),
        (200, &"0.00".into()),
        "the replay had no effect"
    );
    bank.world.advance(Duration::from_secs(1));
    assert_eq!(
        send(&bank, "PATCH", ACCOUNT, lower, &sign(&bank, "PATCH", ACCOUNT, lower, "")).await.status,
        200
    );
    assert_eq!(used(&bank).await, 4);
}

#[actix_web::test]
async fn each_of_several_signatures_is_used() {
    let bank = bank().await;
    let body = r#"{"overdraft_limit":"5.00"}"#;
    let (one, other) =
        (sign(&bank, "PATCH", ACCOUNT, body, ""), sign(&bank, "PATCH", ACCOUNT, body, r#";nonce="1""#));
    let [digest, (_, input), (_, signature)] = <[_; 3]>::try_from(one.clone()).unwrap();
    let second = |text: &str| text.replacen("sig=", "second=", 1);
    let both = vec![
        digest,
        ("signature-input", format!("{input}, {}", second(&other[1].1))),
        ("signature", format!("{signature}, {}", second(&other[2].1))),
    ];
    assert_eq!(send(&bank, "PATCH", ACCOUNT, body, &both).await.status, 200);
    for part in [&one, &other, &both] {
        assert_eq!(send(&bank, "PATCH", ACCOUNT, body, part).await.problem(), (401, "signature_used"));
    }
}

#[actix_web::test]
async fn every_administrative_change_is_protected() {
    let bank = bank().await;
    let mill = "/v1/admin/partners/mill";
    let keys = format!("{mill}/keys");
    let requests = [
        ("PUT", ACCOUNT, r#"{"currency":"EUR"}"#, 200),
        ("PUT", "/v1/admin/gate", r#"{"state":"held"}"#, 200),
        ("PUT", mill, r#"{"reach":{"everything":true}}"#, 201),
        ("POST", &keys, r#"{"scopes":["read"]}"#, 201),
        ("DELETE", "/v1/admin/dead-letters/1", "", 404),
        ("DELETE", &format!("/v1/batches/{}", id(1)), "", 404),
        ("DELETE", &format!("/v1/admin/batches/mill/{}", id(1)), "", 404),
    ];
    for (method, path, body, status) in requests {
        let headers = sign(&bank, method, path, body, "");
        assert_eq!(send(&bank, method, path, body, &headers).await.status, status, "{method} {path}");
        let replayed = send(&bank, method, path, body, &headers).await;
        assert_eq!(replayed.problem(), (401, "signature_used"), "{method} {path}");
    }
}

#[actix_web::test]
async fn requests_with_an_id_and_reads_can_be_repeated_and_use_nothing() {
    let bank = bank().await;
    let (path, body) = (format!("{ACCOUNT}/deposits"), r#"{"amount":"5.00","currency":"EUR"}"#);
    let mut headers = Signing::now(&bank).headers(&path, body).to_vec();
    headers.push(("idempotency-key", format!("\"{}\"", id(1))));
    for replayed in [None, Some("true")] {
        let answer = send(&bank, "POST", &path, body, &headers).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (202, replayed), "{answer:?}");
    }
    for path in [ACCOUNT, "/v1/admin/gate", "/v1/admin/audit"] {
        let headers = sign(&bank, "GET", path, "", "");
        for _ in 0..2 {
            assert_eq!(send(&bank, "GET", path, "", &headers).await.status, 200, "{path}");
        }
    }
    assert_eq!(used(&bank).await, 0);
}

#[actix_web::test]
async fn a_request_that_is_refused_because_of_its_caller_uses_nothing() {
    let bank = bank().await;
    let reader = NewKey::random();
    bank.add_key(&reader, "shop", &[Scope::Read]).await;
    let (path, body) = ("/v1/admin/gate", r#"{"state":"held"}"#);
    let headers = sign(&bank, "PUT", path, body, "");
    let refused = bank.call(with_key(request("PUT", path, body, &headers), &reader)).await;
    assert_eq!(refused.problem(), (403, "scope_missing"));
    let mut forged = headers.clone();
    forged[1].1 = forged[1].1.replace("shop-1", "shop-2").replace("created=", "created=0");
    assert_eq!(send(&bank, "PUT", path, body, &forged).await.status, 401);
    // Without a signature, nothing is recorded either.
    bank.set_signing("shop", &[hmac_key("shop-1")], false).await;
    assert_eq!(send(&bank, "PUT", path, body, &Vec::new()).await.status, 200);
    assert_eq!(used(&bank).await, 0);
    assert_eq!(send(&bank, "PUT", path, body, &headers).await.status, 200);
    assert_eq!(used(&bank).await, 1);
}

#[actix_web::test]
async fn a_change_is_refused_while_its_signature_cannot_be_recorded() {
    let unavailable = || StoreFault::Unavailable { doing: "saving", source: "no answer".into() };
    let bank = TestBank::over(|store| refuse_saves(store, Collection::UsedSignatures, unavailable)).await;
    assert_eq!(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await.status, 201);
    bank.set_signing("shop", &[hmac_key("shop-1")], false).await;
    let body = r#"{"overdraft_limit":"5.00"}"#;
    let answer = send(&bank, "PATCH", ACCOUNT, body, &sign(&bank, "PATCH", ACCOUNT, body, "")).await;
    assert_eq!(answer.problem(), (503, "storage_unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(bank.get(ACCOUNT).await.body["overdraft_limit"], "0.00", "it had no effect");
}
