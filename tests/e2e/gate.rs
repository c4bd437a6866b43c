//! The gate: work is held, and released to all listeners at once.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::ports::sync_store::Swapped;
use postonce_tests::auditor::Auditor;
use postonce_tests::client::{Client, Wish};
use postonce_tests::gate::obedient;
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::wait::{self, Stopwatch};
use serde_json::json;

/// Worker processes that wait for the release.
const WORKERS: usize = 4;
/// Deposits that wait for it.
const DEPOSITS: usize = 1000;
/// Accounts that they are for.
const ACCOUNTS: usize = 100;
/// How long nothing must happen behind a held gate: several looks of a listener that would poll.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// Longest time for all the work to be posted, on a machine that runs other tests meanwhile.
const POSTING_TIME_MAX: Duration = Duration::from_secs(120);
/// Pause of a partner between two submissions: held work must not pile up without end.
const PACE: Duration = Duration::from_millis(20);
/// The value in the store.
const VALUE: &str = "gate";

on_both_stands![
    held_work_waits_and_its_release_starts_all_workers,
    holding_in_the_middle_of_traffic_loses_and_repeats_nothing,
    a_worker_started_held_holds_what_nobody_touched_and_obeys_what_somebody_did,
    a_scheduled_release_comes_by_itself,
    an_unreadable_gate_counts_as_held_until_it_is_mended,
];

async fn held_work_waits_and_its_release_starts_all_workers(stand: Stand) {
    let mut bank = Plan::on(stand).processes(1, WORKERS).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    // At the first time of asking: whoever is ready can be reached.
    let held = client.set_gate(&json!({"state": "held"})).await.expect(200);
    assert_eq!(obedient(&held), WORKERS, "{held:?}");
    let accounts = open_accounts(&client, ACCOUNTS).await;
    drop(client.queue_up(&accounts, DEPOSITS, bank.queue_count()).await);
    let waiting = client.over_queues("depth").await;
    assert!(waiting >= 900, "nearly every deposit is a message of its own: {waiting}");
    nothing_is_received(&bank, &client, waiting).await;

    let watch = Stopwatch::start();
    let started = join_all((0..WORKERS).map(|worker| first_posting(&bank, worker, &watch)));
    let released = async { client.set_gate(&json!({"state": "released"})).await.expect(200) };
    let (started, released) = join(started, released).await;
    println!("{stand:?}: from the request for the release to the first posting of each worker: {started:?}");
    assert_eq!(obedient(&released), WORKERS, "{released:?}");
    client.until_drained(POSTING_TIME_MAX).await;
    let balances = join_all(accounts.iter().map(|account| client.balance(*account))).await;
    assert!(balances.iter().all(|balance| balance == "10.00"), "{balances:?}");

    // The others stand still: what comes now is for one who never heard of the release.
    let late = bank.workers.len();
    bank.start_worker();
    bank.vitals(late).until_ready().await;
    bank.workers.iter_mut().take(WORKERS).for_each(postonce_tests::service::Service::suspend);
    let account = *accounts.first().expect("there are accounts");
    drop(client.post(account, fresh_id(), &Wish::deposit("1.00")).await);
    assert!(bank.vitals(late).count("worker_settled").await > 0);
}

async fn holding_in_the_middle_of_traffic_loses_and_repeats_nothing(stand: Stand) {
    const ROUNDS: usize = 4;
    let bank = Plan::on(stand).processes(1, 2).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    let auditor = RefCell::new(Auditor::default());
    let accounts = open_accounts(&client, 8).await;
    accounts.iter().for_each(|account| auditor.borrow_mut().account(*account, "0.00"));
    let over = Cell::new(false);
    let partners = accounts.iter().map(|account| async {
        while !over.get() {
            let (id, wish) = (fresh_id(), Wish::deposit("1.00"));
            auditor.borrow_mut().sent(*account, id, &wish);
            let answer = client.submit_until_accepted(*account, id, &wish).await;
            auditor.borrow_mut().heard(*account, id, &answer);
            wait::pass(PACE).await;
        }
    });
    let operator = async {
        for _ in 0..ROUNDS {
            let before = postings(&client, &accounts).await;
            wait::until("the workers post", wait::PATIENCE, async || {
                let count = postings(&client, &accounts).await;
                if count > before { Ok(()) } else { Err(format!("{count} postings")) }
            })
            .await;
            drop(client.hold(2).await);
            stands_still(&client, &accounts).await;
            drop(client.release(2).await);
        }
        over.set(true);
    };
    join(join_all(partners), operator).await;
    client.until_drained(POSTING_TIME_MAX).await;
    assert_eq!(client.dead_letters().await, Vec::<serde_json::Value>::new());
    auditor.into_inner().audit(&client, &bank.store().await).await;
}

async fn a_worker_started_held_holds_what_nobody_touched_and_obeys_what_somebody_did(stand: Stand) {
    let mut bank = Plan::on(stand).processes(1, 0).start().await;
    let client = bank.client(0);
    assert_eq!(client.gate().await.expect(200).body, json!({"state": "released", "epoch": 0}));
    let accounts = open_accounts(&client, 1).await;
    let deposits = client.queue_up(&accounts, 1, bank.queue_count()).await;
    bank.start_worker_with(&["--held"]);
    bank.until_workers_ready().await;
    wait::until("the gate is held", wait::PATIENCE, async || match client.gate().await.text_at("/state") {
        "held" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
    nothing_is_received(&bank, &client, 1).await;

    drop(client.release(1).await);
    for (account, id) in deposits {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    // Another one finds the gate released, and leaves it so.
    bank.workers.remove(0).drain().await;
    let waiting = client.queue_up(&accounts, 1, bank.queue_count()).await;
    bank.start_worker_with(&["--held"]);
    for (account, id) in waiting {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    assert_eq!(client.gate().await.expect(200).body, json!({"state": "released", "epoch": 2}));
}

async fn a_scheduled_release_comes_by_itself(stand: Stand) {
    const AHEAD: Duration = Duration::from_secs(3);
    let bank = Plan::on(stand).processes(1, 2).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    drop(client.hold(2).await);
    let accounts = open_accounts(&client, 4).await;
    let deposits = client.queue_up(&accounts, 8, bank.queue_count()).await;
    let release_at = in_the_future(AHEAD);
    let change = json!({"state": "held", "release_at": release_at});
    let scheduled = client.set_gate(&change).await.expect(200);
    assert_eq!((scheduled.text_at("/state"), obedient(&scheduled)), ("held", 2), "{scheduled:?}");
    for (account, id) in deposits {
        let posted = client.until_final(account, id).await;
        assert_eq!(posted.transaction_status(), "posted");
        let posted_at = posted.text_at("/posted_at");
        assert!(posted_at >= release_at.as_str(), "posted at {posted_at}, before {release_at}");
    }
    // Whoever noticed first released it, once.
    let gate = client.gate().await.expect(200);
    let next = scheduled.number_at("/epoch").saturating_add(1);
    assert_eq!(gate.body, json!({"state": "released", "epoch": next}));
}

async fn an_unreadable_gate_counts_as_held_until_it_is_mended(stand: Stand) {
    let mut bank = Plan::on(stand).processes(1, 0).start().await;
    let client = bank.client(0);
    let sync = bank.store().await.sync;
    let Ok(Swapped::Done(damaged)) = sync.swap(VALUE, None, "the hounds ate it").await else {
        panic!("nobody touched the gate before")
    };
    let accounts = open_accounts(&client, 1).await;
    let deposits = client.queue_up(&accounts, 2, bank.queue_count()).await;
    bank.start_worker();
    let worker = bank.workers.first_mut().expect("it was started");
    worker.process().wait_for_line("word about the gate", wait::PATIENCE, |line| {
        line.contains("The gate counts as held").then_some(())
    });
    nothing_is_received(&bank, &client, 2).await;

    let mended = r#"{"v":1,"state":"released","epoch":7}"#;
    assert!(matches!(sync.swap(VALUE, Some(&damaged), mended).await, Ok(Swapped::Done(_))));
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

/// Nothing leaves the queues, and no worker receives anything.
async fn nothing_is_received(bank: &Scenario, client: &Client, waiting: u64) {
    let mut before = Vec::new();
    for worker in 0..bank.workers.len() {
        before.push(bank.vitals(worker).count("worker_messages_received").await);
    }
    wait::throughout("held work waits", QUIET_TIME, async || match client.over_queues("depth").await {
        depth if depth == waiting => Ok(()),
        depth => Err(format!("{depth} of {waiting} messages")),
    })
    .await;
    for (worker, before) in before.into_iter().enumerate() {
        assert_eq!(bank.vitals(worker).count("worker_messages_received").await, before);
    }
}

/// What is in hand is finished, and then no account changes any more.
async fn stands_still(client: &Client, accounts: &[AccountKey]) {
    wait::until("what is in hand is finished", wait::PATIENCE, async || {
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

/// How long it took until a worker had posted something.
async fn first_posting(bank: &Scenario, worker: usize, watch: &Stopwatch) -> Duration {
    let vitals = bank.vitals(worker);
    wait::until("each worker posts something", POSTING_TIME_MAX, async || {
        match vitals.count("worker_settled").await {
            0 => Err(format!("worker {worker} posted nothing")),
            _ => Ok(watch.elapsed()),
        }
    })
    .await
}

/// A time so far ahead, as the API writes it.
fn in_the_future(ahead: Duration) -> String {
    use postonce_shared::ports::world::World as _;
    postonce_shared::adapters::system::SystemWorld::new().now().after(ahead).to_string()
}
