//! The overview of the bank, which many callers read every second, and the key of a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::test::TestRequest;
use postonce_process::build;
use postonce_process::drain::{DrainStarter, drain};
use postonce_process::upkeep::activity;
use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use postonce_web::admin::overview::OPERATIONS_PER_MINUTE;
use serde_json::{Value, json};

use super::scale::UnavailableQueue;
use super::test_bank::{TestBank, address, id, with_key};

const OVERVIEW: &str = "/v1/admin/overview";
const TEN: &str = r#"{"amount":"10.00","currency":"EUR"}"#;

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Records the activity of the bank, as its process does.
fn record(bank: &TestBank) -> DrainStarter {
    let (starter, draining) = drain();
    let (of, meter) = (bank.bank.clone(), Arc::clone(&bank.meter));
    bank.world.spawn(Box::pin(async move { activity::record(&of, &meter, &draining).await }));
    starter
}

async fn pass(bank: &TestBank, seconds: u64) {
    for _ in 0..seconds {
        bank.world.advance(Duration::from_secs(1));
        settle().await;
    }
}

/// Registers another process, at an address where nothing listens.
async fn register(bank: &TestBank, kind: ProcessKind) -> ProcessId {
    let entry = RegisteredProcess {
        id: ProcessId::from_uuid(bank.world.uuid()),
        kind,
        address: Address::parse("http://127.0.0.1:1").unwrap(),
        started_at: bank.world.now(),
        next_by: bank.world.now().after(Duration::from_secs(35 * 60)),
        attempts_survived: 0,
        level: LEVEL,
    };
    bank.store.process_registry.announce(&entry).await.unwrap();
    entry.id
}

#[actix_web::test]
async fn the_overview_shows_what_was_accepted_and_decided() {
    let bank = TestBank::with_account().await;
    let _recorded = record(&bank);
    settle().await;
    bank.submit("deposits", 1, TEN).await;
    bank.submit("deposits", 1, TEN).await;
    bank.submit("withdrawals", 2, r#"{"amount":"99.00","currency":"EUR"}"#).await;
    pass(&bank, 2).await;
    bank.post_all().await;
    let batch =
        TestRequest::post().uri("/v1/batches").insert_header(("content-type", "application/x-ndjson"));
    let batch = batch.insert_header(("idempotency-key", id(9))).set_payload(format!(
        r#"{{"type":"deposit","user_id":"{}","account_id":"{}","message_id":"{}","amount":"1.00","currency":"EUR"}}"#,
        id(1), id(2), id(10),
    ));
    let answer = bank.call_as_shop(batch).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    pass(&bank, 4).await;
    let overview = bank.get(&format!("{OVERVIEW}?seconds=6")).await;
    assert_eq!(overview.status, 200, "{overview:?}");
    let activity = json!({
        "step_s": 2, "until": "2026-01-01T00:00:04.000Z", "accepted": [0, 2, 1], "posted_immediately": [0, 0, 0],
        "posted_queued": [0, 0, 1], "posted_in_batches": [0, 0, 0], "rejected": [0, 0, 1], "storage_errors": [0, 0, 0],
        "request_errors": [0, 0, 0],
    });
    assert_eq!(overview.body["activity"], activity);
    let per_second = json!({"accepted": "0.3", "posted": "0.1", "rejected": "0.1"});
    assert_eq!(overview.body["per_second"], per_second);
    let minute = bank.get(OVERVIEW).await.body;
    assert_eq!(minute["activity"]["accepted"].as_array().unwrap().len(), 30);
    let hour = bank.get(&format!("{OVERVIEW}?seconds=3600")).await.body;
    assert_eq!(
        (&hour["activity"]["step_s"], hour["activity"]["rejected"].as_array().unwrap().len()),
        (&json!(10), 360)
    );
}

#[actix_web::test]
async fn the_overview_shows_gate_processes_queues_scaling_and_costs() {
    let bank = TestBank::with_account().await;
    let worker = register(&bank, ProcessKind::Worker).await;
    bank.submit("deposits", 1, TEN).await;
    let hold = bank.put("/v1/admin/gate", r#"{"state":"held","reason":"nightly close"}"#).await;
    assert_eq!(hold.status, 200, "{hold:?}");
    bank.world.advance(Duration::from_secs(7));
    // As a worker of this process would count, which has received the message and a lease on the queues.
    let gauges: Vec<_> = envelope::queues(2).iter().map(|queue| bank.meter.listeners(queue)).collect();
    let _leased: Vec<_> = gauges.iter().map(|gauge| gauge.lease(1)).collect();
    bank.meter.report_assigned(|| envelope::queues(2));
    let mut overview = bank.get(OVERVIEW).await.body;
    let gate = overview["gate"].take();
    assert_eq!(
        (&gate["state"], &gate["epoch"], &gate["reason"]),
        (&json!("held"), &json!(1), &json!("nightly close"))
    );
    assert!(
        gate["by"].as_str().unwrap().starts_with("partner=shop key=") && gate["since"].is_string(),
        "{gate}"
    );

    let own = json!({
        "id": bank.app.callee.id.to_string(), "address": address().to_string(), "kind": "web",
        "version": build::VERSION, "commit": build::COMMIT, "started_at": "2026-01-01T00:00:00.000Z",
        "seen_at": "2026-01-01T00:00:07.000Z", "answers": true, "gate_epoch": 1, "gate_held": true, "acknowledged": true,
        "active_receivers": 0, "receivers_max": 0, "not_ready": [],
    });
    let other = json!({
        "id": worker.to_string(), "address": "http://127.0.0.1:1", "kind": "worker", "version": null, "commit": null,
        "started_at": "2026-01-01T00:00:00.000Z", "seen_at": "2026-01-01T00:00:00.000Z", "answers": false,
        "gate_epoch": null, "gate_held": null, "acknowledged": false, "active_receivers": 0, "receivers_max": 0,
        "not_ready": [],
    });
    let processes = overview["processes"].as_array().unwrap();
    assert!(processes.len() == 2 && processes.contains(&own) && processes.contains(&other), "{processes:#?}");
    assert_eq!(overview["workers_running"], 1);

    let queues = overview["queues"].as_array().unwrap();
    let names: Vec<&str> = queues.iter().map(|queue| queue["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["batchcount-0", "batchpost-0", "batchpost-1", "batchsplit-0", "work-0", "work-1"]);
    let filled: Vec<&Value> = queues.iter().filter(|queue| queue["depth"] == 1).collect();
    let expected = json!({
        "name": filled[0]["name"], "depth": 1, "oldest_age_s": 7, "oldest_age_known": true, "active_receivers": 0, "receivers_max": 0,
        "messages_leased": 1, "assigned_to": [bank.app.callee.id.to_string()],
    });
    assert_eq!(filled, [&expected]);
    assert_eq!((&overview["oldest_open_age_s"], &overview["dead_letters_open"]), (&json!(7), &Value::Null));
    assert_eq!(overview["queues_read_at"], "2026-01-01T00:00:07.000Z");
    assert_eq!((&overview["scale"]["depth"], &overview["scale"]["workers_wanted"]), (&json!(1), &json!(1)));
    assert_eq!(overview["costs"]["postings"], 0);
    assert!(overview["costs"]["operations"].as_u64().unwrap() > 10, "{}", overview["costs"]);

    // The gate is shown as this process applies it, before it is read again.
    bank.put("/v1/admin/gate", r#"{"state":"released"}"#).await;
    assert_eq!(bank.get(OVERVIEW).await.body["gate"], json!({"state": "released", "epoch": 2}));
    pass(&bank, 61).await;
    assert!(bank.get(OVERVIEW).await.body["gate"]["by"].is_string());
}

#[actix_web::test]
async fn all_callers_together_cost_a_limited_number_of_operations() {
    let bank = TestBank::with_account().await;
    for kind in [ProcessKind::Web, ProcessKind::Web, ProcessKind::Worker] {
        register(&bank, kind).await;
    }
    // Three web processes share the limit, as this one knows from its first reading.
    assert_eq!(bank.get(OVERVIEW).await.status, 200);
    pass(&bank, 60).await;
    let mut totals = vec![bank.operations()];
    for second in 0..200 {
        for seconds in [2, 60, 3600] {
            let answer = bank.get(&format!("{OVERVIEW}?seconds={seconds}")).await;
            assert_eq!(answer.status, 200, "{second}: {answer:?}");
        }
        bank.world.advance(Duration::from_secs(1));
        totals.push(bank.operations());
    }
    let largest = totals.windows(61).map(|minute| minute[60] - minute[0]).max().unwrap();
    // The key of the callers and its partner are read once a minute, as for all requests.
    let of_overview = largest - 2;
    assert_eq!(of_overview, 5 * 2 + 8, "two queues five times, and eight other things once");
    assert!(of_overview * 3 <= OPERATIONS_PER_MINUTE, "{of_overview} operations of each process in a minute");
}

#[actix_web::test]
async fn an_outage_of_the_store_is_reported_and_causes_no_further_reads() {
    let queue = Arc::new(UnavailableQueue::default());
    let bank = TestBank::over(|store| store.queue = queue.clone()).await;
    for _ in 0..10 {
        assert_eq!(bank.get(OVERVIEW).await.problem(), (503, "storage_unavailable"));
    }
    let reads = queue.0.load(Ordering::Relaxed);
    assert!((1..=6).contains(&reads), "six queues were read {reads} times");
    assert_eq!(bank.meter.request_errors.get(), 10);
    // A process that is not ready does its duty by saying so.
    assert_eq!(bank.get("/readyz").await.status, 503);
    assert_eq!(bank.get("/v1/nothing").await.status, 404);
    assert_eq!(bank.meter.request_errors.get(), 10);
}

#[actix_web::test]
async fn an_unknown_parameter_or_length_is_refused() {
    let bank = TestBank::new().await;
    for (query, field) in [("seconds=1", "seconds"), ("seconds=3601", "seconds"), ("minutes=1", "minutes")] {
        let answer = bank.get(&format!("{OVERVIEW}?{query}")).await;
        assert_eq!((answer.problem(), answer.fields()), ((400, "query_invalid"), vec![field]), "{query}");
    }
}

#[actix_web::test]
async fn a_key_shows_what_it_grants() {
    let (bank, key) = (TestBank::new().await, NewKey::random());
    bank.add_key(&key, "monitoring", &[Scope::Read, Scope::Metrics]).await;
    let get = async |path: &str| bank.call(with_key(TestRequest::get().uri(path), &key)).await;
    let answer = get("/v1/key").await;
    let key_id = answer.body["key_id"].clone();
    assert_eq!(key_id.as_str().unwrap().len(), 16, "{answer:?}");
    let expected = json!({"partner_id": "monitoring", "key_id": key_id, "scopes": ["read", "metrics"]});
    assert_eq!((answer.status, answer.body), (200, expected));
    assert_eq!(get("/v1/key?of=others").await.problem(), (400, "query_invalid"));
    let without = NewKey::random();
    bank.add_key(&without, "nothing", &[]).await;
    let answer = bank.call(with_key(TestRequest::get().uri("/v1/key"), &without)).await;
    assert_eq!((answer.status, &answer.body["scopes"]), (200, &json!([])));
}
