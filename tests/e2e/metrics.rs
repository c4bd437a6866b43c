//! The metrics of running processes: their format, their list, and what they say.

use std::collections::BTreeSet;

use postonce_tests::prelude::*;
use postonce_tests::promtool;
use reqwest::Method;
use serde_json::json;

on_both_stores![the_metrics_of_all_processes_are_listed_and_promtool_accepts_them];

/// Deposits that take the queue.
const QUEUED: u64 = 3;
/// Families that a process has only on a store that costs money.
const PAID: [&str; 1] = ["postonce_storage_price_dollars_total"];
/// Families that a process has only on an embedded store.
const EMBEDDED: [&str; 3] =
    ["postonce_store_database_bytes", "postonce_store_disk_free_bytes", "postonce_store_log_bytes"];
/// Families of TLS and of scheduled backups, and those that appear when something happens that does not here: a 429.
const ABSENT: [&str; 5] = [
    "postonce_requests_over_rate_total",
    "postonce_scheduled_backup_current",
    "postonce_scheduled_backups_failed_total",
    "postonce_scheduled_backups_total",
    "postonce_tls_certificate_expires_timestamp_seconds",
];

async fn the_metrics_of_all_processes_are_listed_and_promtool_accepts_them(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 1).with_ingest("orders", "feeder").start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    for state in ["held", "released"] {
        drop(client.call(Method::PUT, "/v1/admin/gate", &json!({ "state": state })).await.expect(200));
    }
    client.open(account).await;
    // Requests that do not wait.
    for _ in 0..QUEUED {
        drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    wait::until("the web posts at once", wait::TIMEOUT, async || {
        let account = fresh_account();
        client.open(account).await;
        drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await);
        let text = all_metrics(&bank).await;
        let immediate = count(&text, "postonce_accepted_to_posted_seconds_count{way=\"immediate\"}");
        if immediate > 0 { Ok(()) } else { Err(format!("{immediate} at once")) }
    })
    .await;

    let text = all_metrics(&bank).await;
    let queued = count(&text, "postonce_accepted_to_posted_seconds_count{way=\"queued\"}");
    assert!(queued >= QUEUED, "{queued} in\n{text}");
    for line in [
        "postonce_ready{part=\"ledger\"} 1",
        "postonce_gate_held 0",
        "postonce_queue_depth{queue=\"work-0\"} 0.0",
        "postonce_storage_errors_total{service=\"table\",operation=\"insert\"} 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
    }
    assert!(count(&text, "process_resident_memory_bytes") > 1 << 20, "{text}");
    let unbounded = "postonce_accepted_to_posted_seconds_bucket{le=\"+Inf\",way=\"queued\"}";
    assert_eq!(count(&text, unbounded), queued);
    assert_eq!(count(&text, "postonce_ready{part=\"ledger\"}"), 2, "one of each process");

    let mut expected = families(include_str!("../../schemas/metrics.md"));
    let of_other_store: &[&str] = if store_kind == StoreKind::Sqlite { &PAID } else { &EMBEDDED };
    expected.retain(|name| {
        let name = name.as_str();
        !of_other_store.contains(&name) && !ABSENT.contains(&name) && !is_of_rounds(name)
    });
    let served: BTreeSet<String> = served(&text).into_iter().filter(|name| !is_of_rounds(name)).collect();
    assert_eq!(served, expected);
}

/// Whether a process has a family only while it scrubs, which begins half a minute after its start.
fn is_of_rounds(name: &str) -> bool {
    name.starts_with("postonce_dead_letters_")
        || name.starts_with("postonce_scrubber_") && !name.ends_with("_total")
}

/// The metrics of the web process and of the worker process. promtool has no complaint about any.
async fn all_metrics(bank: &Scenario) -> String {
    let web = ProcessProbe::with_key(bank.webs[0].address(), bank.key()).metrics().await;
    let worker = bank.probe(0).metrics().await;
    for text in [&web, &worker] {
        let (is_fine, complaints) = promtool::run(&["check", "metrics"], workspace::root(), text);
        assert!(is_fine && complaints.is_empty(), "{complaints}\n{text}");
    }
    web + &worker
}

/// The sum of the samples with this name and these labels.
fn count(text: &str, sample: &str) -> u64 {
    let values = text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    values.map(|value| value.parse::<u64>().unwrap_or_else(|_| panic!("{sample} is {value}"))).sum()
}

/// The families with samples.
fn served(text: &str) -> BTreeSet<String> {
    let mut served = BTreeSet::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(of_type) = line.strip_prefix("# TYPE ") {
            family = of_type.split(' ').next().unwrap_or_default().to_owned();
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} is not of {family}");
            served.insert(family.clone());
        }
    }
    served
}

/// The families on the page that lists them.
fn families(page: &str) -> BTreeSet<String> {
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names.map(|(name, _)| name.to_owned()).collect()
}
