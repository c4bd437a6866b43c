//! Rights that end while a request is in progress: they are looked up again before anything is stored or answered.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_http::Payload;
use actix_web::body::MessageBody as _;
use actix_web::dev::Service as _;
use actix_web::http::Method;
use actix_web::test::{TestRequest, init_service};
use actix_web::web::Bytes;
use futures::future::join;
use futures::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::testing::faults::{self, Effect};
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::keyring::Keyring;
use postonce_web::access::scopes::Scope;
use postonce_web::formats::soap_names::PATH as SOAP;
use postonce_web::server::build;
use serde_json::Value;

use super::signatures::hmac_key;
use super::test_bank::{ACCOUNT, Answer, TestBank, id, submission, with_key};

const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const OTHER_USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d12";
const SECRET: &str = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U=";
pub const LIFETIME: Duration = Duration::from_secs(3600);

fn reach_of(user: &str) -> Reach {
    let user: UserId = user.parse().unwrap();
    Reach::Named { users: [user].into(), accounts: BTreeSet::new() }
}

fn mill() -> PartnerId {
    PartnerId::parse("mill").unwrap()
}

/// How the rights end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Never,
    /// Another partner is changed.
    OfAnother,
    Revoked,
    Suspended,
    Expired,
    OutOfReach,
    MustSign,
}

/// A bank with an account, and the partner `mill`, which reaches it and has one key.
pub struct Case {
    pub bank: TestBank,
    pub key: NewKey,
}

impl Case {
    pub async fn new() -> Rc<Self> {
        Self::at(TestBank::with_account().await).await
    }

    pub async fn at(bank: TestBank) -> Rc<Self> {
        let key = NewKey::random();
        let record = key.record(mill(), Scope::ALL, &*bank.world);
        let now = bank.world.now();
        let record =
            ApiKeyRecord { last_used_at: Some(now), expires_at: Some(now.after(LIFETIME)), ..record };
        bank.store.api_keys.add(&record).await.unwrap();
        let keys = vec![ActiveKey { id: record.id, created_at: record.created_at }];
        let partner = Partner { keys, ..Partner::active(mill(), reach_of(USER), now) };
        drop(PartnerRecords::new(&bank.store).save(&partner, None).await.unwrap());
        bank.add_key(&NewKey::random(), "other", &[Scope::Read]).await;
        Rc::new(Self { bank, key })
    }

    pub async fn end(&self, end: End) {
        let change = |partner: Partner| match end {
            End::Suspended => Partner { suspended_with: Some(Scope::Admin), ..partner },
            End::OutOfReach => Partner { reach: reach_of(OTHER_USER), ..partner },
            End::MustSign => {
                Partner { signature_required: true, signature_keys: vec![hmac_key("k")], ..partner }
            }
            End::OfAnother => Partner { format: Some("xml".to_owned()), ..partner },
            End::Never | End::Revoked | End::Expired => partner,
        };
        match end {
            End::Never => {}
            End::Expired => self.bank.world.advance(LIFETIME),
            End::Revoked => {
                let path = format!("/v1/admin/partners/mill/keys/{}", self.key.id());
                let revoked = self.bank.call_as_shop(TestRequest::delete().uri(&path)).await;
                assert_eq!(revoked.status, 200, "{revoked:?}");
            }
            End::OfAnother => self.bank.change_partner("other", change).await,
            End::Suspended | End::OutOfReach | End::MustSign => {
                self.bank.change_partner("mill", change).await
            }
        }
    }

    /// Sends the first half of a body, lets the rights end, and sends the rest.
    async fn send_slowly(self: &Rc<Self>, act: &Act, end: End) -> Answer {
        let (first, rest) = act.body.split_at(act.body.len() / 2);
        let (first, rest) = (Bytes::from(first.to_owned()), Bytes::from(rest.to_owned()));
        let case = Rc::clone(self);
        let rest = async move {
            case.end(end).await;
            Ok(rest)
        };
        let body = stream::iter([Ok(first)]).chain(stream::once(rest));
        self.send(act, Payload::Stream { payload: Box::pin(body) }).await
    }

    pub async fn send(&self, act: &Act, payload: Payload) -> Answer {
        let request = TestRequest::default().method(act.method.clone()).uri(&act.path);
        let request = request.insert_header(("content-type", act.media_type));
        let request = with_key(request, &self.key).insert_header(("idempotency-key", id(1)));
        let (request, _) = request.to_request().replace_payload(payload);
        let service = init_service(build(&self.bank.app)).await;
        let response = service.call(request).await.unwrap().into_parts().1.map_into_boxed_body();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = actix_web::body::to_bytes(response.into_body()).await.ok().unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        Answer { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::Null), text }
    }

    /// What an operator sees at the path that shows the effect of an act.
    async fn seen(&self, act: &Act) -> (u16, String) {
        let answer = self.bank.get(&act.shows).await;
        let text = if answer.status == 404 { String::new() } else { answer.text };
        (answer.status, text)
    }
}

/// A request with a body, and the path that shows its effect.
#[derive(Clone)]
pub struct Act {
    pub method: Method,
    pub path: String,
    pub media_type: &'static str,
    pub body: String,
    pub shows: String,
    /// Whether it is about an account.
    pub is_of_account: bool,
}

fn deposit() -> Act {
    Act {
        method: Method::POST,
        path: format!("{ACCOUNT}/deposits"),
        media_type: "application/json",
        body: r#"{"amount":"5.00","currency":"EUR"}"#.to_owned(),
        shows: format!("{ACCOUNT}/transactions?status=accepted"),
        is_of_account: true,
    }
}

pub fn batch() -> Act {
    let (_, account) = ACCOUNT.rsplit_once('/').unwrap();
    let message = id(9);
    let item = format!(
        r#"{{"message_id":"{message}","user_id":"{USER}","account_id":"{account}","type":"deposit","amount":"1.00","currency":"EUR"}}"#
    );
    Act {
        path: "/v1/batches".to_owned(),
        media_type: "application/x-ndjson",
        body: format!("{item}\n"),
        shows: "/v1/admin/batches".to_owned(),
        ..deposit()
    }
}

fn soap() -> Act {
    let (_, account) = ACCOUNT.rsplit_once('/').unwrap();
    let message = id(3);
    let body = format!(
        r#"<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://www.w3.org/2005/08/addressing"><s:Header><a:MessageID>urn:uuid:{message}</a:MessageID></s:Header><s:Body><ReliableInsertMoney xmlns="urn:postonce:soap:1"><UserId>{USER}</UserId><AccountId>{account}</AccountId><Amount>1.00</Amount><Currency>EUR</Currency></ReliableInsertMoney></s:Body></s:Envelope>"#
    );
    Act { path: SOAP.to_owned(), media_type: "application/soap+xml", body, ..deposit() }
}

/// Every route with a body.
fn acts() -> Vec<Act> {
    let new_account = format!("/v1/users/{USER}/accounts/{}", id(7));
    let of = |method, path: &str, body: &str, shows: &str| Act {
        method,
        path: path.to_owned(),
        body: body.to_owned(),
        shows: shows.to_owned(),
        is_of_account: path.starts_with("/v1/users/"),
        ..deposit()
    };
    let partner = "/v1/admin/partners/other";
    let signature_key = format!(r#"{{"key_id":"k1","algorithm":"hmac-sha256","material":"{SECRET}"}}"#);
    let withdrawal = Act { path: format!("{ACCOUNT}/withdrawals"), ..deposit() };
    vec![
        deposit(),
        withdrawal,
        batch(),
        soap(),
        of(Method::PUT, &new_account, r#"{"currency":"EUR"}"#, &new_account),
        of(Method::PATCH, ACCOUNT, r#"{"status":"frozen"}"#, ACCOUNT),
        of(Method::PUT, "/v1/admin/gate", r#"{"state":"held"}"#, "/v1/admin/gate"),
        of(Method::PUT, partner, r#"{"reach":{"users":[]}}"#, partner),
        of(Method::POST, &format!("{partner}/keys"), r#"{"scopes":["read"]}"#, partner),
        of(Method::POST, &format!("{partner}/signature-keys"), &signature_key, partner),
    ]
}

#[actix_web::test]
async fn a_slow_body_is_refused_if_the_rights_end_before_its_last_byte() {
    let ends = [End::Revoked, End::Suspended, End::Expired, End::OutOfReach, End::MustSign];
    for act in acts() {
        for end in [End::Never, End::OfAnother].into_iter().chain(ends) {
            if end == End::OutOfReach && !act.is_of_account {
                continue;
            }
            let case = Case::new().await;
            // The changes of this test are acts of others.
            let before = case.seen(&act).await;
            let answer = case.send_slowly(&act, end).await;
            let what = format!("{} {} {end:?}: {answer:?}", act.method, act.path);
            let is_soap = act.path == SOAP;
            match end {
                End::Never | End::OfAnother => {
                    assert!((200..300).contains(&answer.status), "{what}");
                    let after = case.seen(&act).await;
                    assert!(act.shows.ends_with("/other") || after != before, "{what}: {after:?}");
                    continue;
                }
                _ if is_soap => assert!(answer.text.contains("Fault"), "{what}"),
                End::Revoked | End::Suspended | End::Expired => {
                    assert_eq!(answer.problem(), (401, "api_key_invalid"), "{what}");
                }
                End::MustSign => assert_eq!(answer.problem(), (401, "signature_missing"), "{what}"),
                // Its items were compared with the reach while they arrived.
                End::OutOfReach if act.path == "/v1/batches" => {
                    assert_eq!(answer.problem(), (503, "rights_changed"), "{what}");
                }
                End::OutOfReach => assert_eq!(answer.problem(), (404, "account_unknown"), "{what}"),
            }
            assert_eq!(case.seen(&act).await, before, "{what}");
            assert_eq!(case.bank.queued().await, 0, "{what}");
        }
    }
}

#[actix_web::test]
async fn a_store_that_is_slow_neither_changes_rights_nor_ends_the_wait() {
    let (clock, is_slow) = (Arc::<OnceLock<Arc<TestWorld>>>::default(), Arc::<AtomicBool>::default());
    let (time, slow) = (Arc::clone(&clock), Arc::clone(&is_slow));
    let bank = TestBank::over(|store| {
        faults::apply(store, move |call| {
            if call != "Ledger::commit" || !slow.load(Ordering::SeqCst) {
                return Effect::Passes;
            }
            // Longer than rights are known.
            time.get().unwrap().advance(Duration::from_secs(2));
            Effect::unavailable()
        });
    })
    .await;
    assert!(clock.set(Arc::clone(&bank.world)).is_ok());
    count_as_registered(&bank.bank);
    count_as_released(&bank.bank);
    assert_eq!(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await.status, 201);
    let deposit = async |number| {
        let deposit = submission("deposits", number, r#"{"amount":"1","currency":"EUR"}"#);
        let answer = bank.call_as_shop(deposit.insert_header(("prefer", "wait=60")));
        tokio::time::timeout(Duration::from_secs(20), answer).await.expect("it is answered at once")
    };
    assert_eq!(deposit(1).await.status, 200, "it is posted at once");
    is_slow.store(true, Ordering::SeqCst);
    let queued = async {
        while bank.queued().await == 0 {
            tokio::task::yield_now().await;
        }
        is_slow.store(false, Ordering::SeqCst);
        bank.post_all().await;
    };
    let (answer, ()) = futures::join!(deposit(2), queued);
    assert_eq!(answer.status, 200, "it takes the queue, and waits there: {answer:?}");
}

#[actix_web::test]
async fn an_act_writes_nothing_on_rights_that_change_while_it_uses_the_store() {
    let (keyring, armed) =
        (Arc::<OnceLock<Arc<Keyring>>>::default(), Arc::<Mutex<Option<&'static str>>>::default());
    let (caches, changes_at) = (Arc::clone(&keyring), Arc::clone(&armed));
    let is_single = Arc::<AtomicBool>::default();
    let once = Arc::clone(&is_single);
    let bank = TestBank::over(|store| {
        faults::apply(store, move |call| {
            if *changes_at.lock() == Some(call) {
                caches.get().unwrap().forget(Some(&mill()));
                if once.load(Ordering::SeqCst) {
                    *changes_at.lock() = None;
                }
            }
            Effect::Passes
        });
    });
    let bank = bank.await;
    assert!(keyring.set(Arc::clone(&bank.app.keyring)).is_ok());
    assert_eq!(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await.status, 201);
    bank.submit("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#).await;
    let letter = format!("/v1/admin/dead-letters/{}", bank.dead_letter_one().await);
    let case = Case::at(bank).await;
    let whole = |act: &Act| -> Payload {
        Payload::Stream { payload: Box::pin(stream::iter([Ok(Bytes::from(act.body.clone()))])) }
    };
    let check = async |call, act: Act| {
        let before = case.seen(&act).await;
        *armed.lock() = Some(call);
        let answer = case.send(&act, whole(&act)).await;
        *armed.lock() = None;
        let what = format!("{} {}: {answer:?}", act.method, act.path);
        assert_eq!(answer.problem(), (503, "rights_changed"), "{what}");
        assert_eq!(case.seen(&act).await, before, "{what}");
        assert_eq!(case.bank.get("/readyz").await.status, 200, "{what}");
    };
    check("Records::save", batch()).await;
    assert_eq!(case.send(&batch(), whole(&batch())).await.status, 202);
    let without_body = |method, path: &str, shows: &str| Act {
        method,
        path: path.to_owned(),
        body: String::new(),
        shows: shows.to_owned(),
        ..deposit()
    };
    let cancel = without_body(Method::DELETE, &format!("/v1/batches/{}", id(1)), "/v1/admin/batches");
    let discard = without_body(Method::DELETE, &letter, &letter);
    let replay = without_body(Method::POST, &format!("{letter}/replay"), &letter);
    let read_by = |act: &Act| match act.path.as_str() {
        ACCOUNT => "Ledger::account",
        "/v1/admin/gate" => "SyncStore::get",
        _ => "Records::find",
    };
    let is_act = |act: &Act| act.path == ACCOUNT || act.path.starts_with("/v1/admin/");
    let with_body = acts().into_iter().filter(is_act).map(|act| (read_by(&act), act));
    let others = [
        ("Records::find", cancel.clone()),
        ("DeadLetters::find", discard),
        ("DeadLetters::find", replay.clone()),
    ];
    for (call, act) in with_body.chain(others) {
        check(call, act).await;
    }

    // A single change, after which the rights are the same: the act begins again.
    is_single.store(true, Ordering::SeqCst);
    let frozen = Act {
        method: Method::PATCH,
        path: ACCOUNT.to_owned(),
        body: r#"{"status":"frozen"}"#.to_owned(),
        ..deposit()
    };
    let held = Act {
        method: Method::PUT,
        path: "/v1/admin/gate".to_owned(),
        body: r#"{"state":"held"}"#.to_owned(),
        ..deposit()
    };
    for (call, act) in [
        ("Ledger::account", frozen),
        ("SyncStore::get", held),
        ("Records::find", cancel),
        ("DeadLetters::find", replay),
    ] {
        *armed.lock() = Some(call);
        let answer = case.send(&act, whole(&act)).await;
        assert_eq!(answer.status, 200, "{} {}: {answer:?}", act.method, act.path);
        assert_eq!(*armed.lock(), None, "{} was used while the partner changed", act.path);
    }
}

#[actix_web::test]
async fn a_second_look_at_the_rights_costs_no_operation_of_the_store() {
    let case = Case::new().await;
    let operations = async |number: u32, end: End| {
        let before = case.bank.operations();
        let act = deposit();
        let request = TestRequest::post().uri(&act.path).insert_header(("idempotency-key", id(number)));
        let request = super::test_bank::json(request, &act.body);
        case.end(end).await;
        let answer = case.bank.call(with_key(request, &case.key)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        case.bank.operations() - before
    };
    let cold = operations(1, End::Never).await;
    let usual = operations(2, End::Never).await;
    assert!(usual < cold, "{usual} operations, and {cold} for the first one");
    assert_eq!(operations(3, End::Never).await, usual);
    let slow = {
        let before = case.bank.operations();
        let act = Act { body: r#"{"amount":"6.00","currency":"EUR"}"#.to_owned(), ..deposit() };
        let answer = case.send_slowly(&act, End::Never).await;
        assert_eq!(answer.status, 422, "the id was used: {answer:?}");
        case.bank.operations() - before
    };
    assert!(slow <= usual, "{slow} operations for a slow body");
}

#[actix_web::test]
async fn a_request_that_waits_is_answered_without_an_outcome_after_the_rights_ended() {
    for (end, expected) in
        [(End::Never, 200), (End::OfAnother, 200), (End::Suspended, 202), (End::OutOfReach, 202)]
    {
        let case = Case::new().await;
        let act = deposit();
        let request = TestRequest::post().uri(&act.path).insert_header(("idempotency-key", id(1)));
        let request = super::test_bank::json(request, &act.body).insert_header(("prefer", "wait=60"));
        let asked = case.bank.call(with_key(request, &case.key));
        let meanwhile = async {
            while case.bank.queued().await == 0 {
                tokio::task::yield_now().await;
            }
            case.end(end).await;
            case.bank.post_all().await;
        };
        let (answer, ()) = join(asked, meanwhile).await;
        assert_eq!(answer.status, expected, "{end:?}: {answer:?}");
        let is_told = answer.body["order_number"].is_string();
        assert_eq!(is_told, expected == 200, "{end:?}: {answer:?}");
    }
}

#[actix_web::test]
async fn a_read_that_waits_is_refused_after_the_rights_ended() {
    let case = Case::new().await;
    let act =
        Act { path: "/v1/batches?on-invalid=skip".to_owned(), body: "not JSON\n".to_owned(), ..batch() };
    assert_eq!(case.send_slowly(&act, End::Never).await.status, 202);
    let path = format!("/v1/batches/{}", id(1));
    let request = TestRequest::get().uri(&path).insert_header(("prefer", "wait=60"));
    let asked = case.bank.call(with_key(request, &case.key));
    let meanwhile = async {
        while case.bank.world.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        case.end(End::Suspended).await;
        let key = BatchKey { partner: mill(), batch: id(1).parse().unwrap() };
        case.bank.app.batches.batches.initiate(&key).await.unwrap();
        case.bank.world.advance(Duration::from_secs(2));
    };
    let (answer, ()) = join(asked, meanwhile).await;
    assert_eq!(answer.problem(), (401, "api_key_invalid"));
}

#[actix_web::test]
async fn a_download_ends_when_the_rights_end() {
    for end in [End::Never, End::Suspended] {
        let case = Case::new().await;
        let lines = "not JSON\n".repeat(20_000);
        let act = Act { path: "/v1/batches?on-invalid=skip".to_owned(), body: lines, ..batch() };
        assert_eq!(case.send_slowly(&act, End::Never).await.status, 202);
        let key = BatchKey { partner: mill(), batch: id(1).parse().unwrap() };
        case.bank.app.batches.batches.initiate(&key).await.unwrap();
        let request = TestRequest::get().uri(&format!("/v1/batches/{}/results", id(1)));
        let service = init_service(build(&case.bank.app)).await;
        let response = service.call(with_key(request, &case.key).to_request()).await.unwrap();
        let mut body = Box::pin(response.into_body());
        let mut next = async || std::future::poll_fn(|context| body.as_mut().poll_next(context)).await;
        assert!(next().await.is_some_and(|piece| piece.is_ok()), "the first piece");
        case.end(end).await;
        let (mut rest, mut is_whole) = (0, true);
        while let Some(piece) = next().await {
            rest += 1;
            if piece.is_err() {
                is_whole = false;
                break;
            }
        }
        assert!(rest > 0, "there is more than one piece");
        assert_eq!(is_whole, end == End::Never, "{end:?} after {rest} further pieces");
    }
}
