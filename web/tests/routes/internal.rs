//! What the other processes of the bank ask: signed, and no part of the API.

use std::pin::pin;
use std::time::Duration;

use actix_web::test::TestRequest;
use futures::future::{Either, select};
use postonce_shared::adapters::http::signature::{
    ADDRESSEE_HEADER, NONCE_HEADER, SIGNATURE_HEADER, Stamp, TIMESTAMP_HEADER,
};
use postonce_shared::adapters::http::{COMPLETIONS_PATH, GATE_PATH, PARTNERS_PATH, RING_PATH, STATUS_PATH};
use postonce_shared::cluster::completions::{Completion, reply_body};
use postonce_shared::cluster::doorbell_secret::DoorbellKeys;
use postonce_shared::domain::ids::{AccountKey, OrderNumber, PartnerId, TransactionKey};
use postonce_shared::domain::money::{Balance, Currency};
use postonce_shared::domain::partner::PartnerStatus;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::ports::doorbell::Doorbell as _;
use postonce_shared::ports::process_registry::Address;
use postonce_shared::ports::sync_store::Swapped;
use postonce_shared::ports::world::{World as _, WorldExt as _};
use postonce_worker::http::Status;
use postonce_worker::readiness::Part;
use serde_json::Value;

use super::desk::{ACCOUNT, Answer, Desk, RING_SECRET, address, id, submission};

const RING: (&str, &str) = ("POST", RING_PATH);
const COMPLETIONS: (&str, &str) = ("POST", COMPLETIONS_PATH);
const STATUS: (&str, &str) = ("GET", STATUS_PATH);
const PARTNERS: (&str, &str) = ("PUT", PARTNERS_PATH);
const GATE: (&str, &str) = ("PUT", GATE_PATH);
const ROUTES: [(&str, &str); 5] = [RING, COMPLETIONS, STATUS, PARTNERS, GATE];

/// Nothing here takes longer; most takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(20);

const ANOTHER_SECRET: &str = "another-secret-long-enough";

/// A signed request that can be sent more than once.
#[derive(Clone)]
struct Call {
    route: (&'static str, &'static str),
    stamp: Stamp,
    signature: String,
    body: Vec<u8>,
}

impl Call {
    /// A call to the desk, signed now with the secret of the bank.
    fn new(desk: &Desk, route: (&'static str, &'static str), body: &[u8]) -> Self {
        Self::signed(desk, route, body, RING_SECRET, desk.world.now(), &address())
    }

    fn signed(
        desk: &Desk,
        route: (&'static str, &'static str),
        body: &[u8],
        secret: &str,
        at: Timestamp,
        to: &Address,
    ) -> Self {
        let stamp = Stamp::new(desk.world.uuid(), at, to);
        let signature = stamp.on(route.0, route.1, body).sign(&DoorbellKeys::parse(secret).unwrap());
        Self { route, stamp, signature, body: body.to_vec() }
    }

    fn request(&self) -> TestRequest {
        let Self { route: (method, path), stamp, signature, body } = self.clone();
        TestRequest::default()
            .method(method.parse().unwrap())
            .uri(path)
            .insert_header((TIMESTAMP_HEADER, stamp.timestamp))
            .insert_header((NONCE_HEADER, stamp.nonce))
            .insert_header((ADDRESSEE_HEADER, stamp.addressee))
            .insert_header((SIGNATURE_HEADER, signature))
            .set_payload(body)
    }

    async fn send(&self, desk: &Desk) -> Answer {
        desk.call(self.request()).await
    }
}

/// Where other processes call the API's own address.
async fn desk() -> Desk {
    Desk::new().await.serving_peers()
}

async fn call(desk: &Desk, route: (&'static str, &'static str), body: &[u8]) -> Answer {
    Call::new(desk, route, body).send(desk).await
}

fn body_of(route: (&str, &str)) -> Vec<u8> {
    match route {
        RING => br#"{"queues":["work-0"]}"#.to_vec(),
        COMPLETIONS => reply_body::encode(&[]),
        PARTNERS => br#"{"partner":"shop"}"#.to_vec(),
        GATE => br#"{"epoch":1}"#.to_vec(),
        _ => Vec::new(),
    }
}

fn detail(answer: &Answer) -> &str {
    answer.body["detail"].as_str().unwrap()
}

#[actix_web::test]
async fn partners_do_not_find_them_unless_a_setting_says_so() {
    for route in ROUTES {
        let at_partners = Desk::new().await;
        let unknown = at_partners.get("/nowhere").await;
        let answer = call(&at_partners, route, &body_of(route)).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, unknown.header("content-type")));
        let code = answer.body["code"].clone();
        assert_eq!((&code, answer.status), (&unknown.body["code"], unknown.status), "{answer:?}");
        let answer = call(&at_partners.serving_peers(), route, &body_of(route)).await;
        assert!([200, 204].contains(&answer.status), "{route:?} {answer:?}");
    }
}

#[actix_web::test]
async fn only_who_knows_the_secret_is_listened_to() {
    let desk = desk().await;
    let now = desk.world.now();
    let long_ago = now.before(Duration::from_secs(61));
    for route @ (method, path) in ROUTES {
        let unsigned = TestRequest::default().method(method.parse().unwrap()).uri(path);
        // Not even an operator with every scope is another process.
        let answer = desk.call_as_shop(unsigned).await;
        assert_eq!((answer.status, answer.header("content-type")), (401, Some("application/problem+json")));
        for (secret, at) in [(ANOTHER_SECRET, now), (RING_SECRET, long_ago)] {
            let answer = Call::signed(&desk, route, b"{}", secret, at, &address()).send(&desk).await;
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
        }
        let answer = call(&desk, route, b"no body").await;
        assert_eq!(answer.status, if method == "GET" { 200 } else { 400 }, "{answer:?}");
        let answer = call(&desk, route, &vec![b' '; 1024 * 1024 + 1]).await;
        assert_eq!(answer.status, 413, "{method} {path}");
    }
}

#[actix_web::test]
async fn a_request_that_is_sent_again_is_refused() {
    let desk = desk().await;
    for route in ROUTES {
        let once = Call::new(&desk, route, &body_of(route));
        assert!([200, 204].contains(&once.send(&desk).await.status), "{route:?}");
        for seconds in [0, 30, 30] {
            desk.world.advance(Duration::from_secs(seconds));
            let again = once.send(&desk).await;
            assert_eq!(
                (again.status, detail(&again)),
                (401, "a request with this nonce was received before.")
            );
        }
        desk.world.advance(Duration::from_secs(1));
        let again = once.send(&desk).await;
        assert_eq!((again.status, detail(&again)), (401, "the request was signed more than 60 s from now."));
        // A new nonce does not help whoever cannot sign it.
        let stamp = Stamp::new(desk.world.uuid(), desk.world.now(), &address());
        assert_eq!(Call { stamp, ..once }.send(&desk).await.status, 401);
    }
}

#[actix_web::test]
async fn a_request_for_another_address_or_from_before_the_start_is_refused() {
    let desk = desk().await;
    let (now, elsewhere) = (desk.world.now(), Address::parse("http://desk:8082").unwrap());
    for route in ROUTES {
        let body = body_of(route);
        let misled = Call::signed(&desk, route, &body, RING_SECRET, now, &elsewhere).send(&desk).await;
        assert!(misled.status == 401 && detail(&misled).contains("another address"), "{misled:?}");
        let before = now.before(Duration::from_millis(1));
        let early = Call::signed(&desk, route, &body, RING_SECRET, before, &address()).send(&desk).await;
        assert!(early.status == 401 && detail(&early).contains("before this process started"), "{early:?}");
        let without = Call::new(&desk, route, &body);
        for header in [NONCE_HEADER, ADDRESSEE_HEADER] {
            // An empty header says as little as none.
            let answer = desk.call(without.request().insert_header((header, ""))).await;
            assert_eq!(answer.status, 401, "{header} {answer:?}");
        }
        assert!([200, 204].contains(&without.send(&desk).await.status));
    }
}

#[actix_web::test]
async fn rings_and_replies_arrive() {
    let desk = desk().await;
    let body = br#"{"queues":["work-0","nonsense","work-1"],"new":true}"#;
    assert_eq!(call(&desk, RING, body).await.status, 204);
    let rung = desk.app.callee.bell.rung("work").await;
    assert_eq!(rung.iter().map(ToString::to_string).collect::<Vec<_>>(), ["work-0", "work-1"]);

    let account = AccountKey { user: id(1).parse().unwrap(), account: id(2).parse().unwrap() };
    let partner = PartnerId::parse("shop").unwrap();
    let key = TransactionKey { account, partner, message: id(3).parse().unwrap() };
    let outcome = Outcome::Rejected { reason: RejectReason::AccountClosed, rejected_at: desk.world.now() };
    let mut waiter = desk.completions.register(&key);
    let note = reply_body::encode(&[Completion { key, outcome: outcome.clone() }]);
    assert_eq!(call(&desk, COMPLETIONS, &note).await.status, 204);
    assert_eq!(waiter.outcome().await, outcome);

    let answer = call(&desk, STATUS, b"").await;
    let status: Status = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(status, Status::of(&desk.app.callee));
}

/// A note that says that the first submission to [`ACCOUNT`] was posted, whether that is true or not.
fn posted(desk: &Desk) -> Vec<u8> {
    let mut ids = ACCOUNT.split('/').filter_map(|part| part.parse::<uuid::Uuid>().ok());
    let mut uuid = || ids.next().unwrap().to_string();
    let account = AccountKey { user: uuid().parse().unwrap(), account: uuid().parse().unwrap() };
    let partner = PartnerId::parse("shop").unwrap();
    let key = TransactionKey { account, partner, message: id(1).parse().unwrap() };
    let outcome = Outcome::Posted {
        order_number: OrderNumber::from_counter(1_000_042),
        sequence: 1,
        balance_after: Balance::try_new(100_000_000, Currency::parse("EUR").unwrap()).unwrap(),
        posted_at: desk.world.now(),
    };
    reply_body::encode(&[Completion { key, outcome }])
}

/// Notes about the first submission that are not proven, each in another way.
fn unproven(desk: &Desk) -> Vec<Call> {
    let (body, now) = (posted(desk), desk.world.now());
    let elsewhere = Address::parse("http://desk:8082").unwrap();
    let signed = |secret, at, to| Call::signed(desk, COMPLETIONS, &body, secret, at, to);
    let own = address();
    let mut older_program = signed(RING_SECRET, now, &own);
    older_program.stamp.nonce.clear();
    vec![
        signed(ANOTHER_SECRET, now, &own),
        signed(RING_SECRET, now.before(Duration::from_secs(61)), &own),
        signed(RING_SECRET, now, &elsewhere),
        older_program,
    ]
}

/// A client that waits for the outcome of the first submission.
async fn wait_for_outcome(desk: &Desk) -> Answer {
    let request = submission("deposits", 1, r#"{"amount":"1.00","currency":"EUR"}"#);
    desk.call_as_shop(request.insert_header(("prefer", "wait=20"))).await
}

async fn until_enqueued(desk: &Desk) {
    while desk.queued().await == 0 {
        tokio::task::yield_now().await;
    }
}

#[actix_web::test]
async fn what_an_unproven_note_says_is_not_believed() {
    for number in 0..4 {
        let desk = Desk::with_account().await.serving_peers();
        let mut waiting = pin!(wait_for_outcome(&desk));
        let told = async {
            until_enqueued(&desk).await;
            // More often than the row is read early.
            for _ in 0..5 {
                let note = unproven(&desk).swap_remove(number);
                assert_eq!(note.send(&desk).await.status, 401);
            }
        };
        let Either::Right(((), _)) = select(waiting.as_mut(), pin!(told)).await else {
            panic!("the client was told of what nobody posted");
        };
        desk.world.advance(Duration::from_secs(20));
        let answer = waiting.await;
        assert_eq!((answer.status, &answer.body["status"]), (202, &Value::from("accepted")), "{answer:?}");
    }
}

#[actix_web::test]
async fn an_unproven_note_makes_who_waits_read_the_row() {
    for number in 0..4 {
        let desk = Desk::with_account().await.serving_peers();
        let told = async {
            until_enqueued(&desk).await;
            desk.post_elsewhere().await;
            let note = unproven(&desk).swap_remove(number);
            assert_eq!(note.send(&desk).await.status, 401);
        };
        // The clock of the bank stands still: the patience of the client does not end.
        let both = futures::future::join(wait_for_outcome(&desk), told);
        let (answer, ()) = tokio::time::timeout(DEADLINE, both).await.expect("the client is answered");
        assert_eq!((answer.status, &answer.body["status"]), (200, &Value::from("posted")), "{answer:?}");
        assert_eq!(answer.body["balance_after"], "1.00", "as the row says, not the note: {answer:?}");
    }
}

#[actix_web::test]
async fn a_process_that_drains_takes_no_rings_and_still_takes_replies() {
    let desk = desk().await;
    desk.app.readiness.lose(Part::Running);
    assert_eq!(call(&desk, RING, br#"{"queues":["work-0"]}"#).await.status, 503);
    assert_eq!(call(&desk, COMPLETIONS, &reply_body::encode(&[])).await.status, 204);
}

#[actix_web::test]
async fn a_partner_that_changed_elsewhere_is_asked_for_anew_also_while_draining() {
    let desk = Desk::with_account().await.serving_peers();
    let turn = async |status: PartnerStatus| {
        let mut stored = desk.store.partners.find(&PartnerId::parse("shop").unwrap()).await.unwrap().unwrap();
        stored.value.status = status;
        let saved = desk.store.partners.save(&stored.value, Some(&stored.revision)).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
    };
    turn(PartnerStatus::Suspended).await;
    assert_eq!(desk.get(ACCOUNT).await.status, 200, "nobody rang yet");
    assert_eq!(call(&desk, PARTNERS, br#"{"partner":"mill"}"#).await.status, 204);
    assert_eq!(desk.get(ACCOUNT).await.status, 200, "that was another partner");
    assert_eq!(call(&desk, PARTNERS, br#"{"partner":"shop","new":true}"#).await.status, 204);
    assert_eq!(desk.get(ACCOUNT).await.status, 401);
    turn(PartnerStatus::Active).await;
    desk.app.readiness.lose(Part::Running);
    // Without a name, or with one that is none here, any may have changed.
    assert_eq!(call(&desk, PARTNERS, br#"{"partner":"Some New Name"}"#).await.status, 204);
    assert_eq!(desk.get(ACCOUNT).await.status, 200);
}

#[test]
fn they_are_no_part_of_the_api() {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(paths.iter().all(|path| !path.starts_with("/internal")), "{paths:?}");
}
