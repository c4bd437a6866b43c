//! The operations of the gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::test::TestRequest;
use futures::FutureExt as _;
use postonce_shared::testing::prelude::*;
use serde_json::json;

use super::test_bank::TestBank;

const GATE: &str = "/v1/admin/gate";

#[actix_web::test]
async fn the_gate_is_held_released_and_scheduled() {
    let bank = TestBank::new().await;
    assert_eq!(bank.get(GATE).await.body, json!({"state": "released", "epoch": 0}));
    let held = bank.put(GATE, r#"{"state":"held","reason":"nightly close"}"#).await;
    // The process itself posts requests that wait, and acknowledges.
    let own = bank.app.callee.id.to_string();
    let address = bank.app.callee.recipient.address().to_string();
    let listeners = |epoch: u64| {
        let seen_at = bank.world.now().to_string();
        json!([{"listener": own, "address": address, "seen_at": seen_at, "acknowledged": true, "epoch": epoch}])
    };
    let (since, by) = (bank.world.now().to_string(), format!("partner=shop key={}", bank.key().id()));
    let expected = json!({"state": "held", "epoch": 1, "since": since, "by": by, "reason": "nightly close",
        "listeners": listeners(1)});
    assert_eq!((held.status, held.body), (200, expected));
    let again = bank.put(GATE, r#"{"state":"held","reason":"again"}"#).await;
    assert_eq!(again.body["epoch"], 1, "repeating a change changes nothing");
    assert_eq!(again.body["reason"], "nightly close", "who repeats a change has not made it");
    let at = bank.world.now().after(Duration::from_secs(3600)).to_string();
    let scheduled = bank.put(GATE, &json!({"state": "held", "release_at": at}).to_string()).await;
    assert_eq!(
        scheduled.body,
        json!({"state": "held", "epoch": 2, "release_at": at, "since": since, "by": by, "listeners": listeners(2)})
    );
    let expected = json!({"state": "held", "epoch": 2, "release_at": at, "since": since, "by": by});
    assert_eq!(bank.get(GATE).await.body, expected);
    assert_eq!(bank.put(GATE, r#"{"state":"released"}"#).await.body["epoch"], 3);
    let expected = json!({"state": "released", "epoch": 3, "since": since, "by": by});
    assert_eq!(bank.get(GATE).await.body, expected);
}

#[actix_web::test]
async fn a_change_can_depend_on_the_epoch() {
    let bank = TestBank::new().await;
    let change = async |body: &str, tag: &str| {
        let request = TestRequest::put().uri(GATE).insert_header(("if-match", tag));
        let request =
            request.insert_header(("content-type", "application/json")).set_payload(body.to_owned());
        bank.call_as_shop(request).await
    };
    assert_eq!(bank.get(GATE).await.header("etag"), Some("\"0\""));
    let refused = change(r#"{"state":"held"}"#, "\"1\"").await;
    assert_eq!(refused.problem(), (412, "precondition_failed"));
    assert_eq!(bank.get(GATE).await.body["epoch"], 0, "nothing was changed");
    assert_eq!(change(r#"{"state":"held"}"#, "\"0\"").await.body["epoch"], 1);
    assert_eq!(bank.get(GATE).await.header("etag"), Some("\"1\""));
    assert_eq!(change(r#"{"state":"released"}"#, "\"0\"").await.status, 412, "it was changed meanwhile");
    assert_eq!(change(r#"{"state":"held"}"#, "\"0\"").await.status, 412, "also if it has the wanted state");
    assert_eq!(change(r#"{"state":"released"}"#, "*").await.body["epoch"], 2);
}

#[actix_web::test]
async fn all_violations_of_a_change_are_reported_at_once() {
    let bank = TestBank::new().await;
    let check = async |body: &str, status: u16, fields: &[&str]| {
        let answer = bank.put(GATE, body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        if status == 422 {
            assert_eq!(answer.fields(), fields, "{body}");
        }
    };
    check("", 400, &[]).await;
    check("[]", 400, &[]).await;
    check("{}", 422, &["state"]).await;
    check(r#"{"state":"open"}"#, 422, &["state"]).await;
    check(r#"{"state":1}"#, 422, &["state"]).await;
    check(r#"{"state":"held","release_at":"tomorrow"}"#, 422, &["release_at"]).await;
    check(r#"{"state":"held","release_at":"1999-01-01T00:00:00Z"}"#, 422, &["release_at"]).await;
    check(r#"{"state":"released","release_at":"2999-01-01T00:00:00Z"}"#, 422, &["release_at"]).await;
    check(r#"{"state":"held","reason":""}"#, 422, &["reason"]).await;
    check(r#"{"state":"held","reason":7}"#, 422, &["reason"]).await;
    check(r#"{"state":"held","reason":"two\nlines"}"#, 422, &["reason"]).await;
    check(&json!({"state": "held", "reason": "x".repeat(201)}).to_string(), 422, &["reason"]).await;
    check(r#"{"state":"open","release_at":"soon","epoch":7}"#, 422, &["epoch", "release_at", "state"]).await;
    assert_eq!(bank.get(GATE).await.body["epoch"], 0, "nothing was changed");
}

#[actix_web::test]
async fn a_change_whose_client_closed_the_connection_is_applied() {
    let has_begun: Arc<AtomicBool> = Arc::default();
    let begun = Arc::clone(&has_begun);
    let bank = TestBank::over(|store| {
        faults::apply(store, move |call| {
            if call != "SyncStore::swap" {
                return Effect::Passes;
            }
            begun.store(true, Ordering::SeqCst);
            let while_others_run = async {
                for _ in 0..10 {
                    actix_web::rt::task::yield_now().await;
                }
            };
            Effect::Waits(while_others_run.boxed())
        });
    })
    .await;
    has_begun.store(false, Ordering::SeqCst);
    let mut request = Box::pin(bank.put(GATE, r#"{"state":"held"}"#));
    while !has_begun.load(Ordering::SeqCst) {
        assert!((&mut request).now_or_never().is_none(), "the write is slow");
        actix_web::rt::task::yield_now().await;
    }
    drop(request);
    let applied = async {
        while bank.app.callee.process_gate.epoch() != 1 {
            actix_web::rt::task::yield_now().await;
        }
    };
    actix_web::rt::time::timeout(Duration::from_secs(20), applied).await.unwrap();
    assert_eq!(bank.get(GATE).await.body["state"], "held");
}
