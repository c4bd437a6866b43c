//! The operations of the gate.

use std::time::Duration;

use postonce_shared::ports::world::World as _;
use serde_json::json;

use super::test_bank::TestBank;

const GATE: &str = "/v1/admin/gate";

#[actix_web::test]
async fn the_gate_is_held_released_and_scheduled() {
    let bank = TestBank::new().await;
    assert_eq!(bank.get(GATE).await.body, json!({"state": "released", "epoch": 0}));
    let held = bank.put(GATE, r#"{"state":"held"}"#).await;
    // The process itself posts requests that wait, and acknowledges.
    let own = bank.app.callee.id.to_string();
    let listeners = |epoch: u64| json!([{"listener": own, "acknowledged": true, "epoch": epoch}]);
    let expected = json!({"state": "held", "epoch": 1, "listeners": listeners(1)});
    assert_eq!((held.status, held.body), (200, expected));
    let again = bank.put(GATE, r#"{"state":"held"}"#).await;
    assert_eq!(again.body["epoch"], 1, "repeating a change changes nothing");
    let at = bank.world.now().after(Duration::from_secs(3600)).to_string();
    let scheduled = bank.put(GATE, &json!({"state": "held", "release_at": at}).to_string()).await;
    assert_eq!(
        scheduled.body,
        json!({"state": "held", "epoch": 2, "release_at": at, "listeners": listeners(2)})
    );
    assert_eq!(bank.get(GATE).await.body, json!({"state": "held", "epoch": 2, "release_at": at}));
    assert_eq!(bank.put(GATE, r#"{"state":"released"}"#).await.body["epoch"], 3);
    assert_eq!(bank.get(GATE).await.body, json!({"state": "released", "epoch": 3}));
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
    check(r#"{"state":"open","release_at":"soon","epoch":7}"#, 422, &["epoch", "release_at", "state"]).await;
    assert_eq!(bank.get(GATE).await.body["epoch"], 0, "nothing was changed");
}
