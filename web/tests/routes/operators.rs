//! Health, metrics, documents and the operations of administrators.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::test::TestRequest;
use postonce_process::build;
use postonce_process::metrics::{Family, PriceCollector};
use postonce_process::readiness::Part;
use postonce_shared::config::HttpLimits;
use postonce_shared::messaging::envelope::queues;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::ports::rights::QueueUse;
use postonce_shared::testing::faults::{self, Effect};
use postonce_shared::testing::prelude::*;
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use postonce_web::access::shares::{Capacity, PartnerShares};
use postonce_web::access::turns::Turns;
use postonce_web::api::surface::Surface;
use postonce_web::metrics::families;
use postonce_web::server::App;
use serde_json::{Value, json};

use super::rights::{Case, LIFETIME};
use super::test_bank::{ACCOUNT, TestBank, USER, id, json as with_body, with_key};

const ONE: &str = r#"{"amount":"1","currency":"EUR"}"#;

#[actix_web::test]
async fn health_and_metrics_read_nothing_from_the_store() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, ONE).await;
    let before = bank.operations();
    let live = json!({"status": "ok", "version": build::VERSION, "commit": build::COMMIT});
    assert_eq!(bank.get("/livez").await.body, live);
    assert_eq!(bank.get("/readyz").await.body, json!({"status": "ok"}));
    let metrics = bank.get("/metrics").await.text;
    assert_eq!(bank.operations(), before);
    for line in [
        "postonce_submissions_total{outcome=\"accepted\"} 1",
        "postonce_http_requests_total{route=\"/v1/users/{user_id}/accounts/{account_id}/deposits\",method=\"POST\",status=\"202\"} 1",
        "postonce_storage_operations_total{service=\"queue\",operation=\"send\"} 1",
        "postonce_http_request_seconds_count{route=\"/livez\",method=\"GET\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
}

#[actix_web::test]
async fn metrics_are_prometheus_text_or_openmetrics() {
    let bank = TestBank::new().await;
    bank.get("/livez").await;
    let text = |accept: Option<&'static str>| {
        let request = TestRequest::get().uri("/metrics");
        bank.call_as_shop(match accept {
            Some(accept) => request.insert_header(("Accept", accept)),
            None => request,
        })
    };
    for accept in [None, Some("*/*"), Some("text/plain")] {
        let answer = text(accept).await;
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(answer.text.contains("# TYPE postonce_http_requests_total counter\n"), "{}", answer.text);
        assert!(!answer.text.contains("# EOF"), "{}", answer.text);
        let listed: BTreeSet<String> = families().iter().map(Family::full_name).collect();
        let served = answer.text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let unlisted: Vec<&str> = served.filter(|name| !listed.contains(*name)).collect();
        assert_eq!(unlisted, [""; 0], "the page of metrics lists all");
    }
    let answer = text(Some("application/openmetrics-text")).await;
    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(openmetrics));
    assert!(answer.text.contains("# TYPE postonce_http_requests counter\n"), "{}", answer.text);
    assert!(answer.text.ends_with("# EOF\n"), "{}", answer.text);
}

#[actix_web::test]
async fn monitoring_reads_the_queues_and_the_gate_and_changes_nothing() {
    let (bank, monitoring) = (TestBank::new().await, NewKey::random());
    bank.add_key(&monitoring, "monitoring", &[Scope::Metrics]).await;
    let status = async |request: TestRequest| bank.call(with_key(request, &monitoring)).await.status;
    for path in ["/metrics", "/v1/admin/overview", "/v1/admin/queues", "/v1/admin/gate"] {
        assert_eq!(status(TestRequest::get().uri(path)).await, 200, "{path}");
    }
    for path in ["/v1/admin/dead-letters", "/v1/admin/batches", "/v1/admin/scale", "/v1/admin/partners"] {
        assert_eq!(status(TestRequest::get().uri(path)).await, 403, "{path}");
    }
    let hold = with_body(TestRequest::put().uri("/v1/admin/gate"), r#"{"state":"held"}"#);
    assert_eq!(status(hold).await, 403);
}

#[actix_web::test]
async fn readiness_returns_after_a_probe() {
    let bank = TestBank::new().await;
    let readiness = Arc::clone(&bank.app.readiness);
    let queue = queues(1).remove(0);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), (queue, QueueUse::Send), bank.world.clone());
    bank.world.spawn(Box::pin(watch));
    let before = bank.operations();
    readiness.lose(Part::Queue);
    let answer = bank.get("/readyz").await;
    let reasons = json!([{
        "part": "queue",
        "reason": "the queue does not answer",
        "since": "2026-01-01T00:00:00.000Z",
    }]);
    let expected = json!({"status": "unavailable", "missing": ["queue"], "reasons": reasons});
    assert_eq!((answer.status, answer.body), (503, expected));
    while bank.get("/readyz").await.status != 200 {
        tokio::task::yield_now().await;
    }
    bank.world.advance(Duration::from_secs(3600));
    tokio::task::yield_now().await;
    assert_eq!(bank.operations() - before, 1, "one probe, and none while the process is ready");
}

#[actix_web::test]
async fn a_store_that_only_answers_reads_is_missing_until_a_write_succeeds() {
    let control = Arc::<Control>::default();
    let bank = TestBank::over(|store| control.apply(store)).await;
    // As on a full disk.
    control.fail(&["SyncStore::swap"]);
    let readiness = Arc::clone(&bank.app.readiness);
    readiness.lose(Part::Ledger);
    let queue = (queues(1).remove(0), QueueUse::Send);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, bank.world.clone());
    bank.world.spawn(Box::pin(watch));
    for _ in 0..10 {
        until_asleep(&bank).await;
        let answer = bank.get("/readyz").await;
        assert_eq!((answer.status, &answer.body["missing"]), (503, &json!(["ledger"])));
        bank.world.advance(Duration::from_secs(5));
    }
    until_asleep(&bank).await;
    control.heal();
    bank.world.advance(Duration::from_secs(5));
    while bank.get("/readyz").await.status != 200 {
        tokio::task::yield_now().await;
    }
}

/// Waits until the task that probes the store sleeps.
async fn until_asleep(bank: &TestBank) {
    while bank.world.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
}

#[actix_web::test]
async fn documents_are_public_and_load_nothing_from_other_hosts() {
    let bank = TestBank::new().await;
    let get = async |path: &str| bank.call(TestRequest::get().uri(path)).await;
    for (path, copy) in [
        ("/openapi.json", postonce_schemas::OPENAPI_JSON),
        ("/openapi-strict.json", postonce_schemas::OPENAPI_STRICT_JSON),
    ] {
        let document = get(path).await;
        assert_eq!((document.status, document.text.as_str()), (200, copy.trim_end()), "{path}");
    }
    for path in ["/docs", "/docs/"] {
        let page = get(path).await;
        assert_eq!(page.status, 200);
        assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'self';"));
        assert!(!page.text.contains("http"), "{}", page.text);
        for part in page.text.split('"').filter(|part| part.starts_with("/docs/")) {
            assert_eq!(get(part).await.status, 200, "{part}");
        }
    }
    let settings = get("/docs/swagger-initializer.js").await.text;
    for expected in ["\"/openapi.json\"", "\"/openapi-strict.json\"", "\"none\""] {
        assert!(settings.contains(expected), "{settings}");
    }
    assert!(!settings.contains("petstore"));
}

#[actix_web::test]
async fn the_root_links_the_parts_that_its_address_has() {
    let mut bank = TestBank::new().await;
    for (surface, without) in [
        (Surface::Everything, None),
        (Surface::Operators, Some("/soap")),
        (Surface::Partners, Some("/metrics")),
    ] {
        bank.app = App { surface, ..bank.app };
        let get = async |path: &str, accept: &str| {
            bank.call_as_shop(TestRequest::get().uri(path).insert_header(("accept", accept.to_owned()))).await
        };
        let page = get("/", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8").await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(!page.text.contains("http"), "{}", page.text);
        let program = get("/", "*/*").await;
        assert_eq!((program.header("vary"), &program.body["name"]), (Some("Accept"), &json!("Postonce")));
        let links: Vec<&str> =
            program.body["links"].as_object().unwrap().values().map(|link| link.as_str().unwrap()).collect();
        for link in &links {
            assert!(page.text.contains(&format!("href=\"{link}\"")), "{}", page.text);
            // The console leads to the page for signing in.
            let expected = if *link == "/console" { 303 } else { 200 };
            assert_eq!(get(link, "*/*").await.status, expected, "{link}");
            assert!(without.is_none_or(|without| !link.starts_with(without)), "{links:?}");
        }
        let shows_build = surface != Surface::Partners;
        assert_eq!(program.body["version"].is_string(), shows_build, "{program:?}");
        assert_eq!(page.text.contains(build::VERSION), shows_build, "{}", page.text);
        assert_eq!(get("/livez", "*/*").await.body["commit"].is_string(), shows_build);
    }
}

#[actix_web::test]
async fn queues_show_their_waiting_messages() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, ONE).await;
    bank.world.advance(Duration::from_secs(7));
    let answer = bank.get("/v1/admin/queues").await;
    let queues = answer.body["queues"].as_array().unwrap();
    let names: Vec<&str> = queues.iter().map(|queue| queue["name"].as_str().unwrap()).collect();
    let expected =
        ["batchcount-0", "batchpost-0", "batchpost-1", "batchsplit-0", "ingest:orders", "work-0", "work-1"];
    assert_eq!(names, expected);
    let busy: Vec<&Value> = queues.iter().filter(|queue| queue["depth"] == 1).collect();
    let expected = json!({
        "name": busy[0]["name"], "depth": 1, "oldest_age_s": 7, "oldest_age_known": true, "dead_letters": 0,
        "active_listeners": 0, "listeners_max": 0,
    });
    assert_eq!(busy, [&expected]);
}

#[actix_web::test]
async fn dead_letters_are_replayed_or_discarded_once() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, ONE).await;
    let first = bank.dead_letter_one().await;
    bank.submit("deposits", 2, ONE).await;
    let second = bank.dead_letter_one().await;
    let path = |id: &str| format!("/v1/admin/dead-letters/{id}");
    let listed = bank.get("/v1/admin/dead-letters?limit=1").await.body;
    assert_eq!(listed["dead_letters"].as_array().unwrap().len(), 1);
    let cursor = listed["next_cursor"].as_str().unwrap();
    let rest = bank.get(&format!("/v1/admin/dead-letters?cursor={cursor}")).await.body;
    assert_eq!(rest["dead_letters"].as_array().unwrap().len(), 1);
    let letter = bank.get(&path(&first)).await.body;
    assert_eq!((&letter["items"], &letter["reason"]), (&json!([id(1)]), &json!("test")));
    assert_eq!(letter["resolution"], Value::Null);

    let replay = || TestRequest::post().uri(&format!("{}/replay", path(&first)));
    let replayed = bank.call_as_shop(replay()).await;
    assert_eq!(replayed.status, 200, "{replayed:?}");
    assert_eq!(
        (&replayed.body["resolution"]["kind"], &replayed.body["resolution"]["by"]),
        (&json!("replayed"), &json!("shop"))
    );
    assert_eq!(bank.call_as_shop(replay()).await.problem(), (409, "dead_letter_resolved"));
    let discard = |id: &str| TestRequest::delete().uri(&path(id));
    assert_eq!(bank.call_as_shop(discard(&second)).await.body["resolution"]["kind"], "discarded");
    assert_eq!(bank.call_as_shop(discard("nothing")).await.problem(), (404, "dead_letter_unknown"));

    bank.post_all().await;
    let status = async |number| bank.get(&format!("{ACCOUNT}/transactions/{}", id(number))).await.body;
    assert_eq!(status(1).await["status"], "posted");
    assert_eq!(status(2).await["reason"], "discarded");
    assert_eq!(bank.get("/v1/admin/dead-letters").await.body["dead_letters"], json!([]));
    let all = bank.get("/v1/admin/dead-letters?resolved=include").await.body;
    assert_eq!(all["dead_letters"].as_array().unwrap().len(), 2);
}

#[actix_web::test]
async fn listings_of_operators_and_metrics_are_made_in_turns() {
    let mut bank = TestBank::with_account().await;
    let shares = PartnerShares::of(&HttpLimits::default());
    let turns = || Turns::new(1, 2, Duration::from_millis(50));
    let of_operators = Capacity { pages: turns(), ..shares.of_operators };
    bank.app.shares = Arc::new(PartnerShares { of_operators, scrapes: turns(), ..shares });
    let (shop, shares) = (PartnerId::parse("shop").unwrap(), Arc::clone(&bank.app.shares));
    let held = (shares.of_operators.pages.wait(&shop).await, shares.scrapes.wait(&shop).await);
    let listings = ["anchors", "audit", "batches", "dead-letters", "partners"];
    let listings = listings.map(|name| format!("/v1/admin/{name}"));
    let pages: Vec<String> = listings.into_iter().chain(["/metrics".to_owned()]).collect();
    for page in &pages {
        assert_eq!(bank.get(page).await.problem(), (429, "rate_limited"), "{page}");
    }
    drop(held);
    for page in &pages {
        assert_eq!(bank.get(page).await.status, 200, "{page}");
    }
}

#[actix_web::test]
async fn a_listing_is_not_answered_after_the_rights_ended() {
    for path in [
        USER,
        "/v1/batches",
        "/v1/admin/anchors",
        "/v1/admin/audit",
        "/v1/admin/batches",
        "/v1/admin/dead-letters",
        "/v1/admin/partners",
    ] {
        let (clock, ends) = (Arc::<OnceLock<Arc<TestWorld>>>::default(), Arc::<AtomicBool>::default());
        let (time, is_next) = (Arc::clone(&clock), Arc::clone(&ends));
        let bank = TestBank::over(|store| {
            faults::apply(store, move |_| {
                if is_next.swap(false, Ordering::SeqCst) {
                    time.get().unwrap().advance(LIFETIME);
                }
                Effect::Passes
            });
        });
        let case = Case::at(bank.await).await;
        assert!(clock.set(Arc::clone(&case.bank.world)).is_ok());
        let list = async || case.bank.call(with_key(TestRequest::get().uri(path), &case.key)).await;
        assert_eq!(list().await.status, 200, "{path}");
        ends.store(true, Ordering::SeqCst);
        assert_eq!(list().await.problem(), (401, "api_key_invalid"), "{path}");
        assert!(!ends.load(Ordering::SeqCst), "{path}: the store was read");
    }
}

#[actix_web::test]
async fn order_numbers_and_costs_are_shown() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, ONE).await;
    bank.post_all().await;
    let numbers = bank.get("/v1/admin/order-numbers").await.body;
    assert!(numbers["reserved"].as_u64().unwrap() > 0 && numbers["issued"] == 1, "{numbers}");
    assert!(numbers["ranges"][0]["first"].is_string(), "{numbers}");
    let costs = bank.get("/v1/admin/storage-operations").await.body;
    let sends: Vec<&Value> =
        costs["operations"].as_array().unwrap().iter().filter(|it| it["operation"] == "send").collect();
    assert_eq!(
        sends,
        [&json!({"service": "queue", "operation": "send", "count": 1, "price_usd": "0.000000400"})]
    );
    assert!(costs["price_usd"].as_str().unwrap().starts_with("0.00000"), "{costs}");
    // The store of this test costs nothing.
    let metrics = bank.get("/metrics").await.text;
    assert!(!metrics.contains("_dollars_total"), "{metrics}");
    let (operations, prices) = (Arc::clone(&bank.store.operations), Prices::default());
    let collector = PriceCollector { operations, prices };
    bank.app.metrics.register(|registry| registry.register_collector(Box::new(collector)));
    let metrics = bank.get("/metrics").await.text;
    let line = "postonce_storage_price_dollars_total{kind=\"queue\"} 0.0000016";
    assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
}

#[actix_web::test]
async fn the_scrubber_is_shown_before_its_first_round() {
    let bank = TestBank::with_account().await;
    let shown = bank.get("/v1/admin/scrubber").await.body;
    assert_eq!(shown, json!({"operations_per_day": 10_000, "findings": []}));
    let metrics = bank.get("/metrics").await.text;
    assert!(metrics.contains("postonce_scrubber_findings_total 0"), "{metrics}");
}

#[actix_web::test]
async fn the_price_of_a_posting_is_shown_after_the_first_posting() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, ONE).await;
    let costs = async || bank.get("/v1/admin/storage-operations").await.body;
    let before = costs().await;
    assert_eq!(before["postings"], 0);
    let unknown =
        ["operations_per_posting", "price_usd_per_million_postings", "projected_price_usd_per_month"];
    for ratio in unknown {
        assert_eq!(before.get(ratio), Some(&Value::Null), "{before}");
    }
    bank.submit("deposits", 2, ONE).await;
    bank.post_all().await;
    let count = bank.operations();
    let after = costs().await;
    assert_eq!((&after["postings"], &after["count"]), (&json!(2), &json!(count)));
    let half = format!("{}.{}0", count / 2, count % 2 * 5);
    assert_eq!(after["operations_per_posting"], half, "{after}");
    let nano = after["price_usd"].as_str().unwrap().replace('.', "").parse::<u64>().unwrap();
    // Two postings: half of the nano-dollars, times a million.
    let million = nano * 500_000;
    let million = format!("{}.{:09}", million / 1_000_000_000, million % 1_000_000_000);
    assert_eq!(after["price_usd_per_million_postings"], million, "{after}");
    let process = json!({
        "process": "http://bank:8081", "postings": 2, "immediate_postings": 0, "count": count,
        "price_usd": after["price_usd"],
    });
    assert_eq!(after["processes"], json!([process]));
}
