//! The release of the gate: four workers and a thousand deposits behind it. Measured is the time from the release
//! to the first posting of each worker.
//!
//! The time starts before the request of the operator is sent. A worker counts a posting once its commit is
//! confirmed; that count is read every 15 ms, so the figures are upper bounds.

use std::time::Duration;

use futures::future::{join, join_all};
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::gate::acknowledged_listeners;
use postonce_tests::prelude::*;
use serde_json::json;

use crate::bench::figures::ms;

/// Worker processes.
const WORKERS: usize = 4;
/// The workers, and a web process, which posts requests that wait.
const PROCESSES: usize = WORKERS + 1;
/// Deposits, each in its own message.
const DEPOSITS: usize = 1000;
/// Numbers of accounts in the measured rounds.
const ACCOUNTS: [usize; 2] = [100, 1000];
/// Longest time of the measurement.
const TIME_MAX: Duration = Duration::from_secs(120);

/// Prints a table.
pub async fn measure() {
    println!(
        "| store | accounts | messages | release to first posting, ms, by worker | goal | all posted, ms |"
    );
    println!("|---|---|---|---|---|---|");
    for accounts in ACCOUNTS {
        let bank = Plan::on(StoreKind::Azurite).processes(1, WORKERS).start().await;
        bank.until_workers_ready().await;
        let client = bank.client(0);
        let [first, second] = [open(&client, accounts).await, open(&client, accounts).await];
        // Cold workers; workers that have order numbers but have cached no account; warm workers.
        let rounds = [("cold", &first), ("new accounts", &second), ("warm", &second)];
        for (name, accounts) in rounds {
            drop(client.hold(PROCESSES).await);
            drop(client.queue_up(accounts, DEPOSITS, bank.queue_count()).await);
            let messages = client.over_queues("depth").await;
            let (first, all) = release(&bank).await;
            let first: Vec<String> = first.into_iter().map(ms).collect();
            let (first, all) = (first.join(", "), ms(all));
            let count = accounts.len();
            println!("| azurite | {count}, {name} | {messages} | {first} | 500 | {all} |");
        }
    }
}

async fn open(client: &Client, count: usize) -> Vec<AccountKey> {
    let accounts: Vec<AccountKey> = (0..count).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
    }
    accounts
}

/// Times from the release to the first posting of each worker, and to the last posting of all.
async fn release(bank: &Scenario) -> (Vec<Duration>, Duration) {
    let client = bank.client(0);
    let probe: Vec<ProcessProbe> = (0..WORKERS).map(|worker| bank.probe(worker)).collect();
    let before = join_all(probe.iter().map(settled)).await;
    let watch = Stopwatch::start();
    let released = async {
        let answer = client.set_gate(&json!({"state": "released"})).await.expect(200);
        assert_eq!(acknowledged_listeners(&answer), PROCESSES, "{answer:?}");
    };
    let first = probe.iter().zip(&before).map(async |(probe, before)| {
        wait::until("each worker has posted a transaction", TIME_MAX, async || match settled(probe).await {
            count if count > *before => Ok(watch.elapsed()),
            _ => Err("no posting yet".to_owned()),
        })
        .await
    });
    let (first, ()) = join(join_all(first), released).await;
    client.until_drained(TIME_MAX).await;
    (first, watch.elapsed())
}

async fn settled(probe: &ProcessProbe) -> u64 {
    probe.count("worker_settled").await
}
