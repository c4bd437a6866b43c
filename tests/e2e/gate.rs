//! The gate holds work, and releases it to all listeners at once.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::future::{join, join_all, join3};
use postonce_shared::testing::prelude::*;
use postonce_tests::gate::{acknowledged_listeners, in_the_future};
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
/// Pause of a partner between two submissions, to limit the amount of held work.
const PACE: Duration = Duration::from_millis(20);
/// The name of the value in the store.
const VALUE: &str = "gate";

on_both_stores![
    held_work_waits_and_its_release_starts_all_workers,
    holding_in_the_middle_of_traffic_loses_and_repeats_nothing,
    a_worker_started_held_holds_an_unset_gate_and_obeys_a_set_one,
    a_scheduled_release_happens_automatically,
    an_unreadable_gate_counts_as_held_until_it_is_repaired,
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

    let (have_all_started, rounds) = (Cell::new(false), Cell::new(DEPOSITS / ACCOUNTS));
    let watch = Stopwatch::start();
    let started = async {
        let started = join_all((0..WORKERS).map(|worker| first_posting(&bank, worker, &watch))).await;
        have_all_started.set(true);
        started
    };
    // On a busy machine, some workers can post the held work before the others run.
    let more = async {
        while !have_all_started.get() {
            drop(client.queue_up(&accounts, ACCOUNTS, bank.queue_count()).await);
            rounds.set(rounds.get().saturating_add(1));
        }
    };
    let released = async { client.set_gate(&json!({"state": "released"})).await.expect(200) };
    let (started, released, ()) = join3(started, released, more).await;
    println!(
        "{store_kind:?}: from the request for the release to the first posting of each worker: {started:?}"
    );
    assert_eq!(acknowledged_listeners(&released), PROCESSES, "{released:?}");
    client.until_drained(POSTING_TIME_MAX).await;
    let balances = join_all(accounts.iter().map(|account| client.balance(*account))).await;
    let expected = format!("{}.00", rounds.get());
    assert!(balances.iter().all(|balance| *balance == expected), "not {expected}: {balances:?}");

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

async fn holding_in_the_middle_of_traffic_loses_and_repeats_nothing(store_kind: StoreKind) {
    const ROUNDS: usize = 4;
    let bank = Plan::on(store_kind).processes(1, 2).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    let auditor = RefCell::new(Auditor::default());
    let accounts = open_accounts(&client, 8).await;
    accounts.iter().for_each(|account| auditor.borrow_mut().account(*account, "0.00"));
    let over = Cell::new(false);
    let partners = accounts.iter().map(|account| async {
        while !over.get() {
            let (id, submission) = (fresh_id(), Submission::deposit("1.00"));
            auditor.borrow_mut().sent(*account, id, &submission);
            let answer = client.submit_until_accepted(*account, id, &submission).await;
            auditor.borrow_mut().answered(*account, id, &answer);
            wait::pass(PACE).await;
        }
    });
    let operator = async {
        for _ in 0..ROUNDS {
            let before = postings(&client, &accounts).await;
            wait::until("the workers post", wait::TIMEOUT, async || {
                let count = postings(&client, &accounts).await;
                if count > before { Ok(()) } else { Err(format!("{count} postings")) }
            })
            .await;
            drop(client.hold(3).await);
            until_no_posting(&client, &accounts).await;
            drop(client.release(3).await);
        }
        over.set(true);
    };
    join(join_all(partners), operator).await;
    client.until_drained(POSTING_TIME_MAX).await;
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
    auditor.into_inner().audit(&client, &bank.store().await).await;
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

async fn a_scheduled_release_happens_automatically(store_kind: StoreKind) {
    const AHEAD: Duration = Duration::from_secs(3);
    let bank = Plan::on(store_kind).processes(1, 2).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    drop(client.hold(3).await);
    let accounts = open_accounts(&client, 4).await;
    let deposits = client.queue_up(&accounts, 8, bank.queue_count()).await;
    let release_at = in_the_future(AHEAD);
    let change = json!({"state": "held", "release_at": release_at});
    let scheduled = client.set_gate(&change).await.expect(200);
    assert_eq!(
        (scheduled.text_at("/state"), acknowledged_listeners(&scheduled)),
        ("held", 3),
        "{scheduled:?}"
    );
    for (account, id) in deposits {
        let posted = client.until_final(account, id).await;
        assert_eq!(posted.transaction_status(), "posted");
        let posted_at = posted.text_at("/posted_at");
        assert!(posted_at >= release_at.as_str(), "posted at {posted_at}, before {release_at}");
    }
    // The first worker that noticed the time released the gate, once.
    let gate = client.gate().await.expect(200);
    let next = scheduled.number_at("/epoch").saturating_add(1);
    assert_eq!((&gate.body["state"], &gate.body["epoch"]), (&json!("released"), &json!(next)));
    assert_eq!(gate.text_at("/by"), "schedule");
    // It may do so because its clock agrees with that of the store.
    let metrics = bank.probe(0).metrics().await;
    let skew = metrics.lines().filter(|line| line.starts_with("postonce_clock_skew_seconds{bound="));
    assert_eq!(skew.count(), 2, "{metrics}");
}

async fn an_unreadable_gate_counts_as_held_until_it_is_repaired(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let sync = bank.store().await.sync;
    let Ok(Swapped::Done(damaged)) = sync.swap(VALUE, None, "not a gate").await else {
        panic!("the gate was not set before")
    };
    let accounts = open_accounts(&client, 1).await;
    let deposits = client.queue_up(&accounts, 2, bank.queue_count()).await;
    bank.start_worker();
    let worker = bank.workers.first_mut().expect("it was started");
    worker.process().wait_for_line("a log line about the gate", wait::TIMEOUT, |line| {
        line.contains("The gate counts as held").then_some(())
    });
    nothing_is_received(&bank, &client, 2).await;

    let repaired = r#"{"v":1,"state":"released","epoch":7}"#;
    assert!(matches!(sync.swap(VALUE, Some(&damaged), repaired).await, Ok(Swapped::Done(_))));
    for (account, id) in deposits {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    assert_eq!(client.gate().await.expect(200).body, json!({"state": "released", "epoch": 7}));
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

/// Waits until received work is finished and no account changes any more.
async fn until_no_posting(client: &Client, accounts: &[AccountKey]) {
    wait::until("received work is finished", wait::TIMEOUT, async || {
        let before = postings(client, accounts).await;
        let window = Stopwatch::start();
        while window.elapsed() < QUIET_TIME {
            let count = postings(client, accounts).await;
            if count != before {
                return Err(format!("{count} postings after {before}"));
            }
        }
        Ok(())
    })
    .await;
}

async fn postings(client: &Client, accounts: &[AccountKey]) -> u64 {
    let accounts = join_all(accounts.iter().map(|account| client.account(*account))).await;
    accounts.iter().map(|account| account.number_at("/version")).sum()
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
