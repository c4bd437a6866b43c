//! `postonce-worker --scale`: as many worker processes as the work needs, and none left behind.

use std::time::Duration;

use futures::StreamExt as _;
use postonce_shared::messaging::envelope;
use postonce_shared::ports::Store;
use postonce_shared::ports::queue::QueueName;
use postonce_tests::binaries::Binary;
use postonce_tests::client::Wish;
use postonce_tests::process::{Process, Signal, send};
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::service::{self, Service};
use postonce_tests::wait;
use serde_json::json;

/// Messages of a flood.
const FLOOD: usize = 1500;
/// Time between two looks whether a flood has to be renewed.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Sends side by side.
const SENDS_AT_ONCE: usize = 32;

/// What the supervisor said about its workers.
#[derive(Debug)]
struct Told {
    /// Process ids of the workers that run, the oldest first.
    running: Vec<u32>,
    /// Workers that were started so far.
    started: usize,
}

fn told(supervisor: &Service) -> Told {
    let pid = |line: &str| {
        let (_, rest) = line.split_once("(pid ")?;
        rest.split_once(')')?.0.parse::<u32>().ok()
    };
    let lines = supervisor.log().lines();
    let with = |words: &[&str]| -> Vec<u32> {
        let meant = lines.iter().filter(|line| words.iter().any(|word| line.contains(word)));
        meant.filter_map(|line| pid(line)).collect()
    };
    let (mut running, ended) = (with(&["Started worker"]), with(&["was drained", "ended by itself"]));
    let started = running.len();
    running.retain(|pid| !ended.contains(pid));
    Told { running, started }
}

/// Waits until so many workers run; their process ids.
async fn until_running(bank: &Scenario, count: usize) -> Vec<u32> {
    let supervisor = bank.workers.first().expect("a supervisor was started");
    wait::until(&format!("{count} workers run"), wait::PATIENCE, async || {
        let told = told(supervisor);
        if told.running.len() == count { Ok(told.running) } else { Err(format!("{told:?}")) }
    })
    .await
}

/// Waits until the supervisor and all of its workers are gone.
async fn until_all_are_gone(bank: &mut Scenario) {
    let supervisor = bank.workers.first_mut().expect("a supervisor was started").process();
    wait::until("nobody holds the output any more", wait::PATIENCE, async || {
        if supervisor.is_output_closed() { Ok(()) } else { Err("somebody does".to_owned()) }
    })
    .await;
}

async fn a_deposit_is_posted(bank: &Scenario) {
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.submit(account, fresh_id(), &Wish::deposit("1.00")).await.expect(202));
    wait::until("the deposit is posted", wait::PATIENCE, async || {
        let balance = client.balance(account).await;
        if balance == "1.00" { Ok(()) } else { Err(balance) }
    })
    .await;
}

/// The same work again and again: it posts once, but each message has to be received, read and deleted. Gives
/// the body of the messages.
async fn flood(bank: &Scenario) -> Vec<u8> {
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.submit(account, fresh_id(), &Wish::deposit("1.00")).await.expect(202));
    let store = bank.store().await;
    let queues = envelope::queues(bank.queue_count());
    let mut body = None;
    for queue in &queues {
        let received = store.queue.receive(queue, 1, Duration::from_secs(1)).await.expect("a queue answers");
        body = body.or(received.into_iter().next().map(|message| message.body));
    }
    let body = body.expect("the deposit waits");
    send_flood(&store, &queues, &body).await;
    body
}

async fn send_flood(store: &Store, queues: &[QueueName], body: &[u8]) {
    let around = queues.iter().cycle().take(FLOOD);
    let sends = around.map(|queue| store.queue.send(queue, body, Duration::ZERO));
    let sent: Vec<_> = futures::stream::iter(sends).buffer_unordered(SENDS_AT_ONCE).collect().await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
}

/// Renews a flood whenever most of it is gone. A supervisor looks at the queues every five seconds: how much one
/// worker gets through until then depends on the machine.
async fn keep_flooded(bank: &Scenario, body: &[u8]) {
    let (store, queues) = (bank.store().await, envelope::queues(bank.queue_count()));
    let least = u64::try_from(FLOOD / 2).expect("a small number");
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        looks.tick().await;
        let waiting = store.queue.backlog(&queues[0]).await.expect("a queue answers").depth;
        if waiting < least {
            send_flood(&store, &queues, body).await;
        }
    }
}

#[tokio::test]
async fn workers_follow_the_backlog_up_and_down() {
    let mut bank = Plan::on(Stand::Azurite)
        .processes(1, 0)
        .with("POSTONCE_WORKER_RATE", "10")
        .with("POSTONCE_POSTING_AGE_TARGET_S", "2")
        .with("POSTONCE_SCALE_DOWN_DELAY_S", "2")
        // Each worker takes 32 messages at a time, so that there is something left for others.
        .with("POSTONCE_QUEUE_COUNT", "1")
        .with("POSTONCE_RECEIVERS_MAX", "1")
        .start()
        .await;
    bank.start_worker_with(&["--scale", "1..3"]);
    let first = until_running(&bank, 1).await;
    a_deposit_is_posted(&bank).await;
    // The worker stands still while the work comes; its supervisor learns of it when the worker goes on.
    let worker = *first.first().expect("one runs");
    assert!(send(worker, Signal::Stop));
    let body = flood(&bank).await;
    assert!(send(worker, Signal::Continue));
    tokio::select! {
        _ = until_running(&bank, 3) => {}
        () = keep_flooded(&bank, &body) => {}
    }
    bank.client(0).until_drained(wait::PATIENCE).await;
    let last = until_running(&bank, 1).await;
    assert_eq!(last, first, "the oldest one stays");
    a_deposit_is_posted(&bank).await;
    let supervisor = bank.workers.first_mut().expect("a supervisor was started");
    supervisor.drain().await;
    until_all_are_gone(&mut bank).await;
}

#[tokio::test]
async fn a_backlog_at_the_start_is_met_at_once_and_a_drain_ends_all() {
    let mut bank = Plan::on(Stand::Sqlite)
        .processes(1, 0)
        .with("POSTONCE_WORKER_RATE", "10")
        .with("POSTONCE_POSTING_AGE_TARGET_S", "2")
        .start()
        .await;
    drop(flood(&bank).await);
    bank.start_worker_with(&["--scale", "1..3"]);
    until_running(&bank, 3).await;
    bank.workers.first_mut().expect("a supervisor was started").drain().await;
    let told = told(bank.workers.first().expect("a supervisor was started"));
    assert_eq!((told.running.len(), told.started), (0, 3));
    until_all_are_gone(&mut bank).await;
}

#[tokio::test]
async fn a_worker_that_dies_is_replaced() {
    let mut bank = Plan::on(Stand::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale=2"]);
    let before = until_running(&bank, 2).await;
    assert!(before.iter().all(|pid| send(*pid, Signal::Kill)));
    let supervisor = bank.workers.first().expect("a supervisor was started");
    wait::until("both are replaced", wait::PATIENCE, async || {
        let told = told(supervisor);
        if told.started == 4 && told.running.len() == 2 { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    let after = told(supervisor).running;
    assert!(after.iter().all(|pid| !before.contains(pid)), "{before:?} {after:?}");
    a_deposit_is_posted(&bank).await;
}

#[tokio::test]
async fn workers_do_not_outlive_a_supervisor_that_is_killed() {
    let mut bank = Plan::on(Stand::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale", "2..4"]);
    until_running(&bank, 2).await;
    a_deposit_is_posted(&bank).await;
    bank.workers.first_mut().expect("a supervisor was started").kill();
    until_all_are_gone(&mut bank).await;
    let drained = bank.workers.first().map(|supervisor| supervisor.log().lines()).unwrap_or_default();
    let drained = drained.iter().filter(|line| line.contains("Drained: nothing is in hand")).count();
    assert_eq!(drained, 2, "they ended well");
}

#[tokio::test]
async fn the_cost_meter_sums_over_the_workers() {
    let mut bank = Plan::on(Stand::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale", "2"]);
    until_running(&bank, 2).await;
    a_deposit_is_posted(&bank).await;
    let client = bank.client(0);
    wait::until("three processes report, and one posting", wait::PATIENCE, async || {
        let costs = client.get("/v1/admin/storage-operations").await.body;
        let processes = costs["processes"].as_array().map_or(0, Vec::len);
        let ratio = costs["operations_per_posting"].is_string();
        if (processes, &costs["postings"], ratio) == (3, &json!(1), true) {
            Ok(())
        } else {
            Err(costs.to_string())
        }
    })
    .await;
}

#[tokio::test]
async fn a_floor_by_schedule_needs_no_work() {
    let mut bank =
        Plan::on(Stand::Sqlite).processes(1, 0).with("POSTONCE_WORKERS_FLOOR", "* * * * * = 3").start().await;
    bank.start_worker_with(&["--scale", "1..4"]);
    until_running(&bank, 3).await;
}

#[tokio::test]
async fn what_cannot_be_scaled_stops_the_start() {
    let bank = Plan::on(Stand::Sqlite).processes(1, 0).start().await;
    let refused = |arguments: &[&str], words: &str| {
        let launch = service::launch(Binary::Worker, &bank.settings, arguments, &bank.directory());
        let mut process = Process::start(&launch);
        let status = process.wait(wait::PATIENCE);
        process.wait_for_output();
        let printed = process.log().lines().join("\n");
        assert!(!status.success() && printed.contains(words) && printed.contains("--scale"), "{printed}");
    };
    refused(&["--scale", "0..4"], "within 1 and 64");
    refused(&["--scale", "4..1"], "must not be above");
    refused(&["--scale", "some"], "a range such as 1..8");
    // What only one process can have.
    refused(&["--scale", "2", "--worker-bind", "127.0.0.1:9"], "worker-bind is 127.0.0.1:9");
    refused(&["--scale", "2", "--advertise", "http://10.0.0.7:81"], "advertise is http://10.0.0.7:81");
}
