//! `postonce-worker --scale`: as many worker processes as the work needs, and none without a supervisor.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::process::{Process, Signal, send};
use serde_json::json;

/// Number of messages of a burst.
const BURST: usize = 1500;
/// Time between two checks whether a burst must be renewed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of concurrent sends.
const SENDS_AT_ONCE: usize = 32;

/// The workers, as the supervisor has logged them.
#[derive(Debug)]
struct LoggedWorkers {
    /// Process ids of the running workers, oldest first.
    running: Vec<u32>,
    /// Number of workers that were started.
    started: usize,
}

fn logged_workers(supervisor: &Service) -> LoggedWorkers {
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
    LoggedWorkers { running, started }
}

/// Waits until that many workers run. Returns their process ids.
async fn until_running(bank: &Scenario, count: usize) -> Vec<u32> {
    let supervisor = bank.workers.first().expect("a supervisor was started");
    wait::until(&format!("{count} workers run"), wait::TIMEOUT, async || {
        let logged = logged_workers(supervisor);
        if logged.running.len() == count { Ok(logged.running) } else { Err(format!("{logged:?}")) }
    })
    .await
}

/// Waits until the supervisor and all of its workers have ended.
async fn until_all_are_gone(bank: &mut Scenario) {
    let supervisor = bank.workers.first_mut().expect("a supervisor was started").process();
    wait::until("the output is closed", wait::TIMEOUT, async || {
        if supervisor.is_output_closed() { Ok(()) } else { Err("a process still has it open".to_owned()) }
    })
    .await;
}

async fn a_deposit_is_posted(bank: &Scenario) {
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
    wait::until("the deposit is posted", wait::TIMEOUT, async || {
        let balance = client.balance(account).await;
        if balance == "1.00" { Ok(()) } else { Err(balance) }
    })
    .await;
}

/// Sends the same work many times: it posts once, but each message must be received, read and deleted.
/// Returns the body of the messages.
async fn burst(bank: &Scenario) -> Vec<u8> {
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
    let store = bank.store().await;
    let queues = envelope::queues(bank.queue_count());
    let mut body = None;
    for queue in &queues {
        let received = store.queue.receive(queue, 1, Duration::from_secs(1)).await.expect("a queue answers");
        body = body.or(received.into_iter().next().map(|message| message.body));
    }
    let body = body.expect("the deposit waits");
    send_burst(&store, &queues, &body).await;
    body
}

async fn send_burst(store: &Store, queues: &[QueueName], body: &[u8]) {
    let around = queues.iter().cycle().take(BURST);
    let sends = around.map(|queue| store.queue.send(queue, body, Duration::ZERO));
    let sent: Vec<_> = futures::stream::iter(sends).buffer_unordered(SENDS_AT_ONCE).collect().await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
}

/// Renews a burst whenever most of it was processed. A supervisor checks the queues every five seconds, and
/// the number of messages that one worker processes in that time depends on the machine.
async fn keep_bursting(bank: &Scenario, body: &[u8]) {
    let (store, queues) = (bank.store().await, envelope::queues(bank.queue_count()));
    let least = u64::try_from(BURST / 2).expect("a small number");
    let mut checks = tokio::time::interval(POLL_INTERVAL);
    loop {
        checks.tick().await;
        let waiting = store.queue.backlog(&queues[0]).await.expect("a queue answers").depth;
        if waiting < least {
            send_burst(&store, &queues, body).await;
        }
    }
}

#[tokio::test]
async fn workers_follow_the_backlog_up_and_down() {
    let mut bank = Plan::on(StoreKind::Azurite)
        .processes(1, 0)
        .with("POSTONCE_WORKER_RATE", "10")
        .with("POSTONCE_POSTING_AGE_TARGET_S", "2")
        .with("POSTONCE_SCALE_DOWN_DELAY_S", "2")
        // Each worker receives 32 messages at a time, so that some are left for the others.
        .with("POSTONCE_QUEUE_COUNT", "1")
        .with("POSTONCE_RECEIVERS_MAX", "1")
        .start()
        .await;
    bank.start_worker_with(&["--scale", "1..3"]);
    let first = until_running(&bank, 1).await;
    a_deposit_is_posted(&bank).await;
    // The worker is suspended while the work arrives; its supervisor sees the backlog when the worker
    // resumes.
    let worker = *first.first().expect("one runs");
    assert!(send(worker, Signal::Stop));
    let body = burst(&bank).await;
    assert!(send(worker, Signal::Continue));
    tokio::select! {
        _ = until_running(&bank, 3) => {}
        () = keep_bursting(&bank, &body) => {}
    }
    bank.client(0).until_drained(wait::TIMEOUT).await;
    let last = until_running(&bank, 1).await;
    assert_eq!(last, first, "the oldest worker remains");
    a_deposit_is_posted(&bank).await;
    let supervisor = bank.workers.first_mut().expect("a supervisor was started");
    supervisor.drain().await;
    until_all_are_gone(&mut bank).await;
}

#[tokio::test]
async fn a_backlog_at_the_start_starts_all_workers_and_a_drain_ends_them() {
    let mut bank = Plan::on(StoreKind::Sqlite)
        .processes(1, 0)
        .with("POSTONCE_WORKER_RATE", "10")
        .with("POSTONCE_POSTING_AGE_TARGET_S", "2")
        .start()
        .await;
    drop(burst(&bank).await);
    bank.start_worker_with(&["--scale", "1..3"]);
    until_running(&bank, 3).await;
    bank.workers.first_mut().expect("a supervisor was started").drain().await;
    let logged = logged_workers(bank.workers.first().expect("a supervisor was started"));
    assert_eq!((logged.running.len(), logged.started), (0, 3));
    until_all_are_gone(&mut bank).await;
}

#[tokio::test]
async fn a_killed_worker_is_replaced() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale=2"]);
    let before = until_running(&bank, 2).await;
    assert!(before.iter().all(|pid| send(*pid, Signal::Kill)));
    let supervisor = bank.workers.first().expect("a supervisor was started");
    wait::until("both are replaced", wait::TIMEOUT, async || {
        let logged = logged_workers(supervisor);
        if logged.started == 4 && logged.running.len() == 2 { Ok(()) } else { Err(format!("{logged:?}")) }
    })
    .await;
    let after = logged_workers(supervisor).running;
    assert!(after.iter().all(|pid| !before.contains(pid)), "{before:?} {after:?}");
    a_deposit_is_posted(&bank).await;
}

#[tokio::test]
async fn workers_do_not_outlive_a_supervisor_that_is_killed() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale", "2..4"]);
    until_running(&bank, 2).await;
    a_deposit_is_posted(&bank).await;
    bank.workers.first_mut().expect("a supervisor was started").kill();
    until_all_are_gone(&mut bank).await;
    let drained = bank.workers.first().map(|supervisor| supervisor.log().lines()).unwrap_or_default();
    let drained: Vec<&String> =
        drained.iter().filter(|line| line.contains("Drained: no work is in progress")).collect();
    let named = |line: &&String| Some(line.strip_prefix("worker=")?.split_once(' ')?.0.to_owned());
    let workers: BTreeSet<String> = drained.iter().filter_map(named).collect();
    assert_eq!(
        (drained.len(), workers.len()),
        (2, 2),
        "both were drained, and their lines name them: {drained:?}"
    );
}

#[tokio::test]
async fn the_cost_meter_sums_over_the_workers() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    bank.start_worker_with(&["--scale", "2"]);
    until_running(&bank, 2).await;
    a_deposit_is_posted(&bank).await;
    let client = bank.client(0);
    wait::until("three processes report, and one posting", wait::TIMEOUT, async || {
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
async fn a_scheduled_floor_starts_workers_without_work() {
    let mut bank = Plan::on(StoreKind::Sqlite)
        .processes(1, 0)
        .with("POSTONCE_WORKERS_FLOOR", "* * * * * = 3")
        .start()
        .await;
    bank.start_worker_with(&["--scale", "1..4"]);
    until_running(&bank, 3).await;
}

#[tokio::test]
async fn invalid_scaling_settings_stop_the_start() {
    let bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    let refused = |arguments: &[&str], words: &str| {
        let launch = service::launch(Binary::Worker, &bank.settings, arguments, &bank.directory());
        let mut process = Process::start(&launch);
        let status = process.wait(wait::TIMEOUT);
        process.wait_for_output();
        let printed = process.log().lines().join("\n");
        assert!(!status.success() && printed.contains(words) && printed.contains("--scale"), "{printed}");
    };
    refused(&["--scale", "0..4"], "within 1 and 64");
    refused(&["--scale", "4..1"], "must not be above");
    refused(&["--scale", "some"], "a range such as 1..8");
    // Settings that only one process can have.
    refused(&["--scale", "2", "--worker-bind", "127.0.0.1:9"], "worker-bind is 127.0.0.1:9");
    refused(&["--scale", "2", "--advertise", "http://10.0.0.7:81"], "advertise is http://10.0.0.7:81");
}
