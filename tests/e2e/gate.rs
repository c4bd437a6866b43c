//! The gate holds work, and releases it to all listeners at once.

use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::testing::prelude::*;
use postonce_tests::gate::acknowledged_listeners;
use postonce_tests::prelude::*;
use serde_json::json;

/// Number of worker processes that wait for the release.
const WORKERS: usize = 4;
/// The workers, and a web process, which posts requests that wait.
const PROCESSES: usize = WORKERS + 1;
/// Number of deposits that wait for the release.
const DEPOSITS: usize = 1000;
/// Number of accounts.
const ACCOUNTS: usize = 100;
/// How long nothing may happen while the gate is held: several poll intervals.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// Longest time to post all work, on a machine that runs other tests.
const POSTING_TIME_MAX: Duration = Duration::from_secs(120);

on_both_stores![
    held_work_waits_and_its_release_starts_all_workers,
    a_worker_started_held_holds_an_unset_gate_and_obeys_a_set_one,
];

async fn held_work_waits_and_its_release_starts_all_workers(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).through_the_queue().processes(1, WORKERS).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    // At the first request: every ready worker can be reached.
    let held = client.set_gate(&json!({"state": "held"})).await.expect(200);
    assert_eq!(acknowledged_listeners(&held), PROCESSES, "{held:?}");
    let accounts = open_accounts(&client, ACCOUNTS).await;
    drop(client.queue_up(&accounts, DEPOSITS, bank.queue_count()).await);
    let waiting = client.over_queues("depth").await;
    assert!(waiting >= 900, "nearly every deposit is a message of its own: {waiting}");
    nothing_is_received(&bank, &client, waiting).await;

    let watch = Stopwatch::start();
    let started = join_all((0..WORKERS).map(|worker| first_posting(&bank, worker, &watch)));
    let released = async { client.set_gate(&json!({"state": "released"})).await.expect(200) };
    let (started, released) = join(started, released).await;
    println!(
        "{store_kind:?}: from the request for the release to the first posting of each worker: {started:?}"
    );
    assert_eq!(acknowledged_listeners(&released), PROCESSES, "{released:?}");
    client.until_drained(POSTING_TIME_MAX).await;
    let balances = join_all(accounts.iter().map(|account| client.balance(*account))).await;
    assert!(balances.iter().all(|balance| balance == "10.00"), "{balances:?}");

    // The other workers are suspended, so that new work is posted by a worker that started after the
    // release.
    let late = bank.workers.len();
    bank.start_worker();
    bank.probe(late).until_ready().await;
    bank.workers.iter_mut().take(WORKERS).for_each(postonce_tests::service::Service::suspend);
    let account = *accounts.first().expect("there are accounts");
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    assert!(bank.probe(late).count("worker_settled").await > 0);
}

async fn a_worker_started_held_holds_an_unset_gate_and_obeys_a_set_one(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    assert_eq!(client.gate().await.expect(200).body, json!({"state": "released", "epoch": 0}));
    let accounts = open_accounts(&client, 1).await;
    let deposits = client.queue_up(&accounts, 1, bank.queue_count()).await;
    bank.start_worker_with(&["--held"]);
    bank.until_workers_ready().await;
    wait::until("the gate is held", wait::TIMEOUT, async || match client.gate().await.text_at("/state") {
        "held" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
    nothing_is_received(&bank, &client, 1).await;

    drop(client.release(2).await);
    for (account, id) in deposits {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    // Another worker finds the gate released, and does not change it.
    bank.workers.remove(0).drain().await;
    let waiting = client.queue_up(&accounts, 1, bank.queue_count()).await;
    bank.start_worker_with(&["--held"]);
    for (account, id) in waiting {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    let gate = client.gate().await.expect(200).body;
    assert_eq!((&gate["state"], &gate["epoch"]), (&json!("released"), &json!(2)));
}

async fn open_accounts(client: &Client, count: usize) -> Vec<AccountKey> {
    let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
    }
    accounts
}

/// Checks that no message leaves the queues, and that no worker receives one.
async fn nothing_is_received(bank: &Scenario, client: &Client, waiting: u64) {
    let mut before = Vec::new();
    for worker in 0..bank.workers.len() {
        before.push(bank.probe(worker).count("worker_messages_received").await);
    }
    wait::throughout("held work waits", QUIET_TIME, async || match client.over_queues("depth").await {
        depth if depth == waiting => Ok(()),
        depth => Err(format!("{depth} of {waiting} messages")),
    })
    .await;
    for (worker, before) in before.into_iter().enumerate() {
        assert_eq!(bank.probe(worker).count("worker_messages_received").await, before);
    }
}

/// The time until a worker had posted something.
async fn first_posting(bank: &Scenario, worker: usize, watch: &Stopwatch) -> Duration {
    let probe = bank.probe(worker);
    wait::until("each worker posts something", POSTING_TIME_MAX, async || {
        match probe.count("worker_settled").await {
            0 => Err(format!("worker {worker} posted nothing")),
            _ => Ok(watch.elapsed()),
        }
    })
    .await
}
