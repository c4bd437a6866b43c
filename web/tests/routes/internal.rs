//! Requests of the other processes of the bank: signed, and not part of the API.

use std::pin::pin;
use std::time::Duration;

use actix_web::test::TestRequest;
use futures::future::{Either, select};
use postonce_process::http::{Status, StatusQuery};
use postonce_process::readiness::Part;
use postonce_shared::adapters::http::signature::{
    ADDRESSEE_HEADER, NONCE_HEADER, SIGNATURE_HEADER, Stamp, TIMESTAMP_HEADER,
};
use postonce_shared::adapters::http::{COMPLETIONS_PATH, GATE_PATH, PARTNERS_PATH, RING_PATH, STATUS_PATH};
use postonce_shared::cluster::completions::{Completion, reply_body};
use postonce_shared::testing::prelude::*;
use serde_json::Value;

use super::test_bank::{ACCOUNT, Answer, RING_SECRET, TestBank, address, id, submission};

const RING: (&str, &str) = ("POST", RING_PATH);
const COMPLETIONS: (&str, &str) = ("POST", COMPLETIONS_PATH);
const STATUS: (&str, &str) = ("GET", STATUS_PATH);
const PARTNERS: (&str, &str) = ("PUT", PARTNERS_PATH);
const GATE: (&str, &str) = ("PUT", GATE_PATH);
const ROUTES: [(&str, &str); 5] = [RING, COMPLETIONS, STATUS, PARTNERS, GATE];

/// Longest wait of a test; most waits take milliseconds.
const DEADLINE: Duration = Duration::from_secs(20);

const ANOTHER_SECRET: &str = "another-secret-long-enough";

/// A signed request that can be sent several times.
#[derive(Clone)]
struct SignedRequest {
    route: (&'static str, &'static str),
    stamp: Stamp,
    signature: String,
    body: Vec<u8>,
}

impl SignedRequest {
    /// A request signed now with the secret of the bank.
    fn new(bank: &TestBank, route: (&'static str, &'static str), body: &[u8]) -> Self {
        Self::signed(bank, route, body, RING_SECRET, bank.world.now(), &address())
    }

    fn signed(
        bank: &TestBank,
        route: (&'static str, &'static str),
        body: &[u8],
        secret: &str,
        at: Timestamp,
        to: &Address,
    ) -> Self {
        let stamp = Stamp::new(bank.world.uuid(), at, to);
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

    async fn send(&self, bank: &TestBank) -> Answer {
        bank.call(self.request()).await
    }
}

/// A bank that serves other processes at the address of the API.
async fn bank() -> TestBank {
    TestBank::new().await.serving_peers()
}

async fn call(bank: &TestBank, route: (&'static str, &'static str), body: &[u8]) -> Answer {
    SignedRequest::new(bank, route, body).send(bank).await
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
async fn internal_routes_are_unknown_at_the_address_of_the_api_unless_enabled() {
    for route in ROUTES {
        let at_the_api = TestBank::new().await;
        let unknown = at_the_api.get("/nowhere").await;
        let answer = call(&at_the_api, route, &body_of(route)).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, unknown.header("content-type")));
        let code = answer.body["code"].clone();
        assert_eq!((&code, answer.status), (&unknown.body["code"], unknown.status), "{answer:?}");
        let answer = call(&at_the_api.serving_peers(), route, &body_of(route)).await;
        assert!([200, 204].contains(&answer.status), "{route:?} {answer:?}");
    }
}

#[actix_web::test]
async fn requests_without_the_secret_are_refused() {
    let bank = bank().await;
    let now = bank.world.now();
    let long_ago = now.before(Duration::from_secs(61));
    for route @ (method, path) in ROUTES {
        let unsigned = TestRequest::default().method(method.parse().unwrap()).uri(path);
        // Not even a key with every scope replaces the signature.
        let answer = bank.call_as_shop(unsigned).await;
        assert_eq!((answer.status, answer.header("content-type")), (401, Some("application/problem+json")));
        for (secret, at) in [(ANOTHER_SECRET, now), (RING_SECRET, long_ago)] {
            let answer = SignedRequest::signed(&bank, route, b"{}", secret, at, &address()).send(&bank).await;
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
        }
        let answer = call(&bank, route, b"no body").await;
        assert_eq!(answer.status, if method == "GET" { 200 } else { 400 }, "{answer:?}");
        let answer = call(&bank, route, &vec![b' '; 1024 * 1024 + 1]).await;
        assert_eq!(answer.status, 413, "{method} {path}");
    }
}

#[actix_web::test]
async fn a_repeated_request_is_refused() {
    let bank = bank().await;
    for route in ROUTES {
        let once = SignedRequest::new(&bank, route, &body_of(route));
        assert!([200, 204].contains(&once.send(&bank).await.status), "{route:?}");
        for seconds in [0, 30, 30] {
            bank.world.advance(Duration::from_secs(seconds));
            let again = once.send(&bank).await;
            assert_eq!(
                (again.status, detail(&again)),
                (401, "a request with this nonce was received before.")
            );
        }
        bank.world.advance(Duration::from_secs(1));
        let again = once.send(&bank).await;
        assert_eq!((again.status, detail(&again)), (401, "the request was signed more than 60 s from now."));
        // A new nonce invalidates the signature.
        let stamp = Stamp::new(bank.world.uuid(), bank.world.now(), &address());
        assert_eq!(SignedRequest { stamp, ..once }.send(&bank).await.status, 401);
    }
}

#[actix_web::test]
async fn a_request_for_another_address_or_from_before_the_start_is_refused() {
    let bank = bank().await;
    let (now, elsewhere) = (bank.world.now(), Address::parse("http://bank:8082").unwrap());
    for route in ROUTES {
        let body = body_of(route);
        let misdirected =
            SignedRequest::signed(&bank, route, &body, RING_SECRET, now, &elsewhere).send(&bank).await;
        assert!(
            misdirected.status == 401 && detail(&misdirected).contains("another address"),
            "{misdirected:?}"
        );
        let before = now.before(Duration::from_millis(1));
        let early =
            SignedRequest::signed(&bank, route, &body, RING_SECRET, before, &address()).send(&bank).await;
        assert!(early.status == 401 && detail(&early).contains("before this process started"), "{early:?}");
        let without = SignedRequest::new(&bank, route, &body);
        for header in [NONCE_HEADER, ADDRESSEE_HEADER] {
            // An empty header counts as a missing one.
            let answer = bank.call(without.request().insert_header((header, ""))).await;
            assert_eq!(answer.status, 401, "{header} {answer:?}");
        }
        assert!([200, 204].contains(&without.send(&bank).await.status));
    }
}

#[actix_web::test]
async fn rings_and_replies_arrive() {
    let bank = bank().await;
    let body = br#"{"queues":["work-0","nonsense","work-1"],"new":true}"#;
    assert_eq!(call(&bank, RING, body).await.status, 204);
    let rung = bank.app.callee.bell.rung("work").await;
    assert_eq!(rung.iter().map(ToString::to_string).collect::<Vec<_>>(), ["work-0", "work-1"]);

    let account = AccountKey { user: id(1).parse().unwrap(), account: id(2).parse().unwrap() };
    let partner = PartnerId::parse("shop").unwrap();
    let key = TransactionKey { account, partner, message: id(3).parse().unwrap() };
    let outcome = Outcome::Rejected {
        reason: RejectReason::AccountClosed,
        rejected_at: bank.world.now(),
        version: None,
    };
    let mut waiter = bank.completions.register(&key);
    let note = reply_body::encode(&[Completion { key, outcome: outcome.clone() }]);
    assert_eq!(call(&bank, COMPLETIONS, &note).await.status, 204);
    assert_eq!(waiter.outcome().await, outcome);

    let answer = call(&bank, STATUS, b"").await;
    let status: Status = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(status, Status::of(&bank.app.callee, StatusQuery::default()));
}

/// A completion that says that the first submission to [`ACCOUNT`] was posted, true or not.
fn posted(bank: &TestBank) -> Vec<u8> {
    let mut ids = ACCOUNT.split('/').filter_map(|part| part.parse::<uuid::Uuid>().ok());
    let mut uuid = || ids.next().unwrap().to_string();
    let account = AccountKey { user: uuid().parse().unwrap(), account: uuid().parse().unwrap() };
    let partner = PartnerId::parse("shop").unwrap();
    let key = TransactionKey { account, partner, message: id(1).parse().unwrap() };
    let outcome = Outcome::Posted {
        order_number: OrderNumber::from_counter(1_000_042),
        sequence: 1,
        balance_after: Balance::try_new(100_000_000, Currency::parse("EUR").unwrap()).unwrap(),
        posted_at: bank.world.now(),
    };
    reply_body::encode(&[Completion { key, outcome }])
}

/// Completions of the first submission, each invalid in another way.
fn unverified(bank: &TestBank) -> Vec<SignedRequest> {
    let (body, now) = (posted(bank), bank.world.now());
    let elsewhere = Address::parse("http://bank:8082").unwrap();
    let signed = |secret, at, to| SignedRequest::signed(bank, COMPLETIONS, &body, secret, at, to);
    let own = address();
    let mut older_version = signed(RING_SECRET, now, &own);
    older_version.stamp.nonce.clear();
    vec![
        signed(ANOTHER_SECRET, now, &own),
        signed(RING_SECRET, now.before(Duration::from_secs(61)), &own),
        signed(RING_SECRET, now, &elsewhere),
        older_version,
    ]
}

/// Submits the first instruction and waits for its outcome.
async fn wait_for_outcome(bank: &TestBank) -> Answer {
    let request = submission("deposits", 1, r#"{"amount":"1.00","currency":"EUR"}"#);
    bank.call_as_shop(request.insert_header(("prefer", "wait=20"))).await
}

async fn until_enqueued(bank: &TestBank) {
    while bank.queued().await == 0 {
        tokio::task::yield_now().await;
    }
}

#[actix_web::test]
async fn the_content_of_an_unverified_completion_is_not_trusted() {
    for number in 0..4 {
        let bank = TestBank::with_account().await.serving_peers();
        let mut waiting = pin!(wait_for_outcome(&bank));
        let completed = async {
            until_enqueued(&bank).await;
            // More completions than early reads of the row are allowed.
            for _ in 0..5 {
                let note = unverified(&bank).swap_remove(number);
                assert_eq!(note.send(&bank).await.status, 401);
            }
        };
        let Either::Right(((), _)) = select(waiting.as_mut(), pin!(completed)).await else {
            panic!("the client received an outcome that was never posted");
        };
        bank.world.advance(Duration::from_secs(20));
        let answer = waiting.await;
        assert_eq!((answer.status, &answer.body["status"]), (202, &Value::from("accepted")), "{answer:?}");
    }
}

#[actix_web::test]
async fn an_unverified_completion_makes_the_waiting_request_read_the_row() {
    for number in 0..4 {
        let bank = TestBank::with_account().await.serving_peers();
        let completed = async {
            until_enqueued(&bank).await;
            bank.post_in_another_process().await;
            let note = unverified(&bank).swap_remove(number);
            assert_eq!(note.send(&bank).await.status, 401);
        };
        // The clock of the bank stands still, so the wait of the client does not expire.
        let both = futures::future::join(wait_for_outcome(&bank), completed);
        let (answer, ()) = tokio::time::timeout(DEADLINE, both).await.expect("the client is answered");
        assert_eq!((answer.status, &answer.body["status"]), (200, &Value::from("posted")), "{answer:?}");
        assert_eq!(
            answer.body["balance_after"], "1.00",
            "the balance of the row, not of the completion: {answer:?}"
        );
    }
}

#[actix_web::test]
async fn a_draining_process_refuses_rings_and_accepts_replies() {
    let bank = bank().await;
    bank.app.readiness.lose(Part::Running);
    assert_eq!(call(&bank, RING, br#"{"queues":["work-0"]}"#).await.status, 503);
    assert_eq!(call(&bank, COMPLETIONS, &reply_body::encode(&[])).await.status, 204);
}

#[actix_web::test]
async fn a_partner_changed_in_another_process_is_read_again_also_while_draining() {
    let bank = TestBank::with_account().await.serving_peers();
    let partners = PartnerRecords::new(&bank.store);
    let suspend = async |with: Option<Scope>| {
        let mut stored = partners.find(&PartnerId::parse("shop").unwrap()).await.unwrap().unwrap();
        stored.value.suspended_with = with;
        let saved = partners.save(&stored.value, Some(&stored.revision)).await.unwrap();
        assert!(matches!(saved, Swapped::Done(_)));
    };
    suspend(Some(Scope::Admin)).await;
    assert_eq!(bank.get(ACCOUNT).await.status, 200, "no notification arrived yet");
    assert_eq!(call(&bank, PARTNERS, br#"{"partner":"mill"}"#).await.status, 204);
    assert_eq!(bank.get(ACCOUNT).await.status, 200, "the notification was about another partner");
    assert_eq!(call(&bank, PARTNERS, br#"{"partner":"shop","new":true}"#).await.status, 204);
    assert_eq!(bank.get(ACCOUNT).await.status, 401);
    suspend(None).await;
    bank.app.readiness.lose(Part::Running);
    // Without a valid name, any partner may have changed.
    assert_eq!(call(&bank, PARTNERS, br#"{"partner":"Some New Name"}"#).await.status, 204);
    assert_eq!(bank.get(ACCOUNT).await.status, 200);
}

#[test]
fn internal_routes_are_not_in_the_openapi_document() {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(paths.iter().all(|path| !path.starts_with("/internal")), "{paths:?}");
}
