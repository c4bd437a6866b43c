//! The audit trail: caller, act, object and outcome of every administrative act and of every refused
//! authentication, and nothing else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Once;

use actix_web::test::TestRequest;
use postonce_shared::oversight::audit::TARGET;
use postonce_web::access::acts::{ACTS, act_of};
use postonce_web::access::api_keys::{NewKey, hash, id_of};
use postonce_web::access::scopes::Scope;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, registry};

use super::test_bank::{ACCOUNT, TestBank, USER, id, json, submission, with_key};

type Fields = BTreeMap<String, String>;

thread_local! {
    static EVENTS: RefCell<Vec<Fields>> = const { RefCell::new(Vec::new()) };
}

/// The events of the audit trail on this thread. All threads share one subscriber: with one for each thread,
/// an event that first occurs on a thread without a subscriber would stay disabled.
struct Trail;

impl Trail {
    fn start() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::subscriber::set_global_default(registry().with(Self)).unwrap();
            tracing::callsite::rebuild_interest_cache();
        });
        drop(EVENTS.take());
        Self
    }

    /// The events since the last call, each as `who key? act outcome code on`.
    fn take(&self) -> Vec<String> {
        let events = EVENTS.take();
        let line = |fields: Fields| {
            let key = if fields["key"].is_empty() { "no key" } else { "a key" };
            assert!(!fields["from"].is_empty(), "{fields:?}");
            let [who, act, outcome, code, on] = ["who", "act", "outcome", "code", "on"].map(|it| &fields[it]);
            format!("{who} | {key} | {act} | {outcome} | {code} | {on}")
        };
        events.into_iter().map(line).collect()
    }
}

struct Read<'a>(&'a mut Fields);

impl Visit for Read<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        drop(self.0.insert(field.name().to_owned(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        drop(self.0.insert(field.name().to_owned(), format!("{value:?}")));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Trail {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == TARGET {
            let mut fields = Fields::new();
            event.record(&mut Read(&mut fields));
            EVENTS.with_borrow_mut(|events| events.push(fields));
        }
    }
}

const IDS: &str =
    "user_id=0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11 account_id=77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";

#[actix_web::test]
async fn an_administrative_act_is_recorded_with_caller_object_and_outcome() {
    let bank = TestBank::new().await;
    let trail = Trail::start();
    let check = |expected: &[&str]| assert_eq!(trail.take(), expected);
    drop(bank.put(ACCOUNT, r#"{"currency":"EUR"}"#).await);
    check(&[&format!("shop | a key | account.open | done |  | {IDS}")]);
    drop(bank.put(ACCOUNT, r#"{"currency":"USD"}"#).await);
    check(&[&format!("shop | a key | account.open | refused | account_exists | {IDS}")]);
    drop(bank.patch(ACCOUNT, r#"{"overdraft_limit":"5.00"}"#).await);
    check(&[&format!("shop | a key | account.change | done |  | {IDS} changes=overdraft_limit")]);
    drop(bank.put("/v1/admin/gate", r#"{"state":"held"}"#).await);
    check(&["shop | a key | gate.change | done |  | state=held epoch=1"]);
    // An unknown id may contain anything, also personal data, so it is not recorded.
    drop(bank.call_as_shop(TestRequest::delete().uri("/v1/admin/dead-letters/ada-byron")).await);
    check(&["shop | a key | dead_letter.discard | refused | dead_letter_unknown | "]);
    drop(bank.call_as_shop(TestRequest::post().uri("/v1/admin/dead-letters/ada-byron/replay")).await);
    check(&["shop | a key | dead_letter.replay | refused | dead_letter_unknown | "]);
    // Reads and postings are no administrative acts; a transaction is itself a record.
    drop(bank.get(ACCOUNT).await);
    drop(bank.get("/v1/admin/gate").await);
    drop(bank.get("/nowhere").await);
    check(&[]);
}

#[actix_web::test]
async fn every_refused_authentication_is_recorded() {
    let bank = TestBank::new().await;
    let reader = NewKey::random();
    bank.add_key(&reader, "reader", &[Scope::Read]).await;
    let trail = Trail::start();
    let check = |expected: &[&str]| assert_eq!(trail.take(), expected);
    let get = || TestRequest::get().uri(ACCOUNT);
    let route = "method=GET route=/v1/users/{user_id}/accounts/{account_id}";
    drop(bank.call(get()).await);
    check(&[&format!("unknown | no key | request | refused | api_key_missing | {IDS} {route}")]);
    // The id of a key is recorded if the bank may have issued it; any other text is not.
    drop(bank.call(with_key(get(), &NewKey::random())).await);
    check(&[&format!("unknown | a key | request | refused | api_key_invalid | {IDS} {route}")]);
    drop(bank.call(get().insert_header(("authorization", "Bearer ada1815"))).await);
    check(&[&format!("unknown | no key | request | refused | api_key_invalid | {IDS} {route}")]);
    drop(bank.call(with_key(TestRequest::get().uri("/v1/admin/queues"), &reader)).await);
    check(&["reader | a key | request | refused | scope_missing | method=GET route=/v1/admin/queues"]);
    drop(bank.call(with_key(TestRequest::put().uri("/v1/admin/gate"), &reader)).await);
    check(&["reader | a key | gate.change | refused | scope_missing | "]);
    let bank = bank.serving_peers();
    drop(bank.call(TestRequest::post().uri("/internal/ring")).await);
    check(&[
        "unknown | no key | internal | refused | internal_signature_invalid | method=POST route=/internal/ring",
    ]);
}

#[actix_web::test]
async fn a_key_is_recorded_by_its_id() {
    let bank = TestBank::new().await;
    let key = NewKey::random();
    bank.add_key(&key, "reader", &[]).await;
    let _trail = Trail::start();
    drop(bank.call(with_key(TestRequest::get().uri(ACCOUNT), &key)).await);
    let events = EVENTS.take();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["key"], id_of(&hash(key.expose())));
}

#[test]
fn every_operation_that_writes_is_an_administrative_act_or_moves_money() {
    let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
    let mut acts = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let act = act_of(&method, path);
            acts += usize::from(act.is_some());
            let moves_money = ["/deposits", "/withdrawals"].iter().any(|end| path.ends_with(end));
            // A ring only makes a worker poll earlier.
            let changes = method != "GET" && !moves_money && !path.ends_with("/ring");
            assert_eq!(act.is_some(), changes, "{method} {path}: {act:?}");
        }
    }
    assert_eq!(acts, ACTS.len(), "an act without an operation");
}

#[actix_web::test]
async fn changes_of_partners_and_their_keys_are_recorded() {
    let bank = TestBank::new().await;
    let trail = Trail::start();
    let mill = "/v1/admin/partners/mill";
    let post = |path: String, body: &str| bank.call_as_shop(json(TestRequest::post().uri(&path), body));
    drop(bank.put(mill, r#"{"reach":{"everything":true}}"#).await);
    let key = post(format!("{mill}/keys"), r#"{"scopes":["read"]}"#).await;
    let (key, key_id) = (key.body["key"].as_str().unwrap(), key.body["key_id"].as_str().unwrap());
    drop(bank.call_as_shop(TestRequest::delete().uri(&format!("{mill}/keys/{key_id}"))).await);
    drop(bank.call_as_shop(TestRequest::delete().uri("/v1/admin/partners/ada_byron/keys/lovelace")).await);
    let events = trail.take();
    assert_eq!(
        events,
        [
            "shop | a key | partner.change | done |  | partner_id=mill is_new=true".to_owned(),
            format!("shop | a key | key.add | done |  | partner_id=mill key_id={key_id} scopes=read"),
            format!("shop | a key | key.revoke | done |  | partner_id=mill key_id={key_id}"),
            "shop | a key | key.revoke | refused | partner_unknown | ".to_owned(),
        ]
    );
    assert!(!events.join("\n").contains(key), "the trail contains no key");
}

#[actix_web::test]
async fn requests_beyond_the_reach_of_a_partner_are_logged_at_a_bounded_rate_and_never_stored() {
    let bank = TestBank::with_account().await;
    let narrow = bank.key_without_reach().await;
    let trail = Trail::start();
    let transaction = format!("{ACCOUNT}/transactions/{}", id(1));
    let calls = [
        (TestRequest::get().uri(ACCOUNT), "GET", "account_unknown"),
        (TestRequest::get().uri(&transaction), "GET", "transaction_unknown"),
        (submission("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#), "POST", "account_unknown"),
    ];
    for (request, method, code) in calls {
        let answer = bank.call(with_key(request, &narrow)).await;
        assert_eq!(answer.problem(), (404, code));
        let [event] = trail.take().try_into().unwrap();
        assert!(
            event.starts_with(&format!("narrow | a key | request | refused | {code} | {IDS}")),
            "{event}"
        );
        assert!(event.contains(&format!("method={method}")), "{event}");
    }
    // The log of a user without accounts within reach, and no event for what does not exist within it.
    drop(bank.call(with_key(TestRequest::get().uri(USER), &narrow)).await);
    assert_eq!(trail.take().len(), 1);
    drop(bank.get(&ACCOUNT.replace("77aa", "88bb")).await);
    assert_eq!(trail.take(), Vec::<String>::new());
    for _ in 0..100 {
        drop(bank.call(with_key(TestRequest::get().uri(ACCOUNT), &narrow)).await);
    }
    assert!((1..=20).contains(&trail.take().len()), "a flood does not fill the log");
    let rows = bank.app.audit.list(None, 100).await.unwrap();
    assert!(rows.iter().all(|row| row.done.actor == "shop"), "{rows:?}");
}
