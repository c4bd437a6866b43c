//! What an operator sees and does when processes die, have another secret, or lose their queues.

use postonce_tests::forger::Forger;
use postonce_tests::gate::acknowledged_listeners;
use postonce_tests::prelude::*;
use serde_json::{Value, json};

/// Secrets of processes.
const ONE_SECRET: &str = "one-secret-0123456789";
const ANOTHER_SECRET: &str = "another-secret-0123456789";
/// Transactions that lie in a queue when it is deleted.
const STRANDED: usize = 16;

on_both_stores![
    a_successor_on_the_same_port_does_not_acknowledge_for_a_dead_worker,
    only_a_process_with_another_secret_is_not_ready,
    a_new_secret_applies_after_all_processes_ended,
];

async fn a_successor_on_the_same_port_does_not_acknowledge_for_a_dead_worker(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    assert_eq!(acknowledged_listeners(&client.hold(2).await), 2);
    let dead = bank.workers.first_mut().expect("there is a worker process");
    let address = dead.address().to_owned();
    dead.kill();
    let host_and_port = address.trim_start_matches("http://").to_owned();
    bank.start_worker_with(&["--worker-bind", &host_and_port]);
    bank.probe(1).until_ready().await;

    let answer = client.set_gate(&json!({"state": "held"})).await.expect(200);
    assert_eq!(acknowledged_listeners(&answer), 2, "{answer:?}");
    let listeners = answer.body["listeners"].as_array().expect("it lists the processes");
    let at_address: Vec<&Value> = listeners.iter().filter(|it| it["address"] == *address).collect();
    assert_eq!(at_address.len(), 2, "{answer:?}");
    let [dead] = at_address.iter().filter(|it| it["acknowledged"] == false).collect::<Vec<_>>()[..] else {
        panic!("one of them has ended: {answer:?}");
    };
    assert_eq!(dead["problem"], "another process listens at the address now", "{answer:?}");
    assert_eq!(dead["epoch"], Value::Null);
    assert!(dead["seen_at"].is_string(), "{answer:?}");
}

async fn only_a_process_with_another_secret_is_not_ready(store_kind: StoreKind) {
    let mut bank =
        Plan::on(store_kind).processes(1, 1).with("POSTONCE_RING_SECRET", ONE_SECRET).start().await;
    bank.until_workers_ready().await;
    bank.start_worker_with(&["--ring-secret", ANOTHER_SECRET]);
    until_missing(&bank.probe(1), &["secret"]).await;
    // One with both, which signs with that of the others.
    bank.start_worker_with(&["--ring-secret", &format!("{ONE_SECRET},{ANOTHER_SECRET}")]);
    bank.probe(2).until_ready().await;
    // A rotation cannot begin with the new secret: the others do not accept it yet.
    bank.start_worker_with(&["--ring-secret", &format!("yet-{ANOTHER_SECRET},{ONE_SECRET}")]);
    until_missing(&bank.probe(3), &["secret"]).await;
    until_missing(&bank.probe(0), &[]).await;
    let web = ProcessProbe::of(bank.webs[0].address());
    until_missing(&web, &[]).await;
    assert_eq!(bank.probe(1).missing().await.as_deref(), Some(&["secret".to_owned()][..]));
}

async fn a_new_secret_applies_after_all_processes_ended(store_kind: StoreKind) {
    let mut bank =
        Plan::on(store_kind).processes(1, 1).with("POSTONCE_RING_SECRET", ONE_SECRET).start().await;
    bank.until_workers_ready().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    // Their registry entries remain.
    bank.webs.iter_mut().chain(&mut bank.workers).for_each(postonce_tests::service::Service::kill);
    bank.settings = bank.settings.clone().with("POSTONCE_RING_SECRET", ANOTHER_SECRET);
    bank.start_web();
    bank.start_worker();
    bank.client(1).until_ready().await;
    bank.probe(1).until_ready().await;
    drop(bank.client(1).post(account, fresh_id(), &Submission::deposit("1.00")).await);
}

async fn until_missing(probe: &ProcessProbe, expected: &[&str]) {
    wait::until("the readiness is as expected", wait::TIMEOUT, async || match probe.missing().await {
        Some(missing) if missing == expected => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn work_of_a_queue_that_is_deleted_is_posted_at_once() {
    let plan = Plan::on(StoreKind::Azurite).through_the_queue().processes(1, 1);
    let bank = plan.with("POSTONCE_QUEUE_COUNT", "1").start().await;
    let client = bank.client(0);
    bank.until_workers_ready().await;
    let account = fresh_account();
    client.open(account).await;
    // The worker has used the queue.
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    drop(client.hold(2).await);
    let stranded = client.queue_up(&[account], STRANDED, 1).await;
    Forger::of(&bank).delete_queue();
    drop(client.release(2).await);
    for (account, id) in stranded {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    let told =
        bank.workers[0].log().find(|line| line.contains("was deleted with its messages").then_some(()));
    assert!(told.is_some(), "the log tells it");
}

#[tokio::test]
async fn work_of_a_queue_that_was_deleted_while_nothing_ran_is_posted_at_the_start() {
    let plan = Plan::on(StoreKind::Azurite).through_the_queue().processes(1, 0);
    let mut bank = plan.with("POSTONCE_QUEUE_COUNT", "1").start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    let stranded = client.queue_up(&[account], STRANDED, 1).await;
    Forger::of(&bank).delete_queue();
    bank.start_worker();
    for (account, id) in stranded {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
}
