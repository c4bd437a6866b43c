//! What the other processes of the bank ask: signed, and no part of the API.

use actix_web::test::TestRequest;
use postonce_shared::adapters::http::signature::{SIGNATURE_HEADER, Signed, TIMESTAMP_HEADER};
use postonce_shared::adapters::http::{COMPLETIONS_PATH, PARTNERS_PATH, RING_PATH, STATUS_PATH};
use postonce_shared::completions::{Completion, note};
use postonce_shared::domain::ids::{AccountKey, PartnerId, TransactionKey};
use postonce_shared::domain::partner::PartnerStatus;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::ports::doorbell::Doorbell as _;
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::World as _;
use postonce_shared::ring_secret::RingKeys;
use postonce_worker::http::Status;
use postonce_worker::readiness::Part;
use serde_json::Value;

use super::desk::{ACCOUNT, Answer, Desk, RING_SECRET, id};

const PATHS: [(&str, &str); 4] =
    [("POST", RING_PATH), ("POST", COMPLETIONS_PATH), ("GET", STATUS_PATH), ("PUT", PARTNERS_PATH)];

async fn call(desk: &Desk, (method, path): (&str, &str), body: &[u8], signed: (&str, Timestamp)) -> Answer {
    let (keys, at) = (RingKeys::parse(signed.0).unwrap(), signed.1);
    let (timestamp, signature) = Signed { method, path, body }.sign(&keys, at);
    let request = TestRequest::default()
        .method(method.parse().unwrap())
        .uri(path)
        .insert_header((TIMESTAMP_HEADER, timestamp))
        .insert_header((SIGNATURE_HEADER, signature))
        .set_payload(body.to_vec());
    desk.call(request).await
}

#[actix_web::test]
async fn only_who_knows_the_secret_is_listened_to() {
    let desk = Desk::new().await;
    let now = desk.world.now();
    let long_ago = Timestamp::from_unix_ms(now.unix_ms() - 61_000);
    for (method, path) in PATHS {
        let unsigned = TestRequest::default().method(method.parse().unwrap()).uri(path);
        // Not even an operator with every scope is another process.
        let answer = desk.call_as_shop(unsigned).await;
        assert_eq!((answer.status, answer.header("content-type")), (401, Some("application/problem+json")));
        for (secret, at) in [("another-secret-long-enough", now), (RING_SECRET, long_ago)] {
            let answer = call(&desk, (method, path), b"{}", (secret, at)).await;
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
        }
        let answer = call(&desk, (method, path), b"no body", (RING_SECRET, now)).await;
        assert_eq!(answer.status, if method == "GET" { 200 } else { 400 }, "{answer:?}");
        let large = vec![b' '; 1024 * 1024 + 1];
        let answer = call(&desk, (method, path), &large, (RING_SECRET, now)).await;
        assert_eq!(answer.status, 413, "{method} {path}");
    }
}

#[actix_web::test]
async fn rings_and_replies_arrive() {
    let desk = Desk::new().await;
    let signed = (RING_SECRET, desk.world.now());
    let body = br#"{"queues":["work-0","nonsense","work-1"],"new":true}"#;
    assert_eq!(call(&desk, PATHS[0], body, signed).await.status, 204);
    let rung = desk.app.callee.bell.rung("work").await;
    assert_eq!(rung.iter().map(ToString::to_string).collect::<Vec<_>>(), ["work-0", "work-1"]);

    let account = AccountKey { user: id(1).parse().unwrap(), account: id(2).parse().unwrap() };
    let partner = PartnerId::parse("shop").unwrap();
    let key = TransactionKey { account, partner, message: id(3).parse().unwrap() };
    let outcome = Outcome::Rejected { reason: RejectReason::AccountClosed, rejected_at: desk.world.now() };
    let mut waiter = desk.completions.register(&key);
    let note = note::encode(&[Completion { key, outcome: outcome.clone() }]);
    assert_eq!(call(&desk, PATHS[1], &note, signed).await.status, 204);
    assert_eq!(waiter.outcome().await, outcome);

    let answer = call(&desk, PATHS[2], b"", signed).await;
    let status: Status = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(status, Status::of(&desk.app.callee));
}

#[actix_web::test]
async fn a_process_that_drains_takes_no_rings_and_still_takes_replies() {
    let desk = Desk::new().await;
    let signed = (RING_SECRET, desk.world.now());
    desk.app.readiness.lose(Part::Running);
    assert_eq!(call(&desk, PATHS[0], br#"{"queues":["work-0"]}"#, signed).await.status, 503);
    assert_eq!(call(&desk, PATHS[1], &note::encode(&[]), signed).await.status, 204);
}

#[actix_web::test]
async fn a_partner_that_changed_elsewhere_is_asked_for_anew_also_while_draining() {
    let desk = Desk::with_account().await;
    let signed = (RING_SECRET, desk.world.now());
    let turn = async |status: PartnerStatus| {
        let mut stored = desk.store.partners.find(&PartnerId::parse("shop").unwrap()).await.unwrap().unwrap();
        stored.value.status = status;
        let saved = desk.store.partners.save(&stored.value, Some(&stored.revision)).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
    };
    turn(PartnerStatus::Suspended).await;
    assert_eq!(desk.get(ACCOUNT).await.status, 200, "nobody rang yet");
    assert_eq!(call(&desk, PATHS[3], br#"{"partner":"mill"}"#, signed).await.status, 204);
    assert_eq!(desk.get(ACCOUNT).await.status, 200, "that was another partner");
    assert_eq!(call(&desk, PATHS[3], br#"{"partner":"shop","new":true}"#, signed).await.status, 204);
    assert_eq!(desk.get(ACCOUNT).await.status, 401);
    turn(PartnerStatus::Active).await;
    desk.app.readiness.lose(Part::Running);
    // Without a name, or with one that is none here, any may have changed.
    assert_eq!(call(&desk, PATHS[3], br#"{"partner":"Some New Name"}"#, signed).await.status, 204);
    assert_eq!(desk.get(ACCOUNT).await.status, 200);
}

#[test]
fn they_are_no_part_of_the_api() {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(paths.iter().all(|path| !path.starts_with("/internal")), "{paths:?}");
}
