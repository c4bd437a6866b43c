//! Storage operations of a posting on Azurite, and transactions a second on both stores.
//!
//! One process with a worker, so that its counters cover acceptance and posting; single deposits over 256
//! connections. Polls are included in the counts.

use std::time::Duration;

use futures::StreamExt as _;
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::messaging::envelope;
use postonce_tests::client::Submission;
use postonce_tests::scenario::{Plan, Scenario, StoreKind, fresh_account, fresh_id};
use postonce_tests::wait::{self, Stopwatch};

use crate::figures::{counts, difference, per_second, ratio};

/// Concurrent requests, each on its own connection.
const CONNECTIONS: usize = 256;
/// Accounts of the phases with many accounts.
const ACCOUNTS_MANY: usize = 1000;
/// Accounts of the phase with few accounts.
const ACCOUNTS_FEW: usize = 10;
/// Deposits of the phase with few accounts.
const DEPOSITS_TO_FEW: usize = 10_000;
/// Longest time until the transactions of a phase are final.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(300);

/// Prints a table.
pub async fn measure() {
    println!("| store | phase | deposits | operations per posting | goal | deposits/s | by kind |");
    println!("|---|---|---|---|---|---|---|");
    for store_kind in [StoreKind::Azurite, StoreKind::Sqlite] {
        measure_on(store_kind).await;
    }
}

async fn measure_on(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).in_one_process().with("POSTONCE_IDLE_POLL_MAX_MS", "1000");
    let mut bank = plan.start().await;
    let accounts: Vec<AccountKey> = (0..ACCOUNTS_MANY).map(|_| fresh_account()).collect();
    let client = bank.client(0);
    futures::stream::iter(&accounts)
        .for_each_concurrent(CONNECTIONS, |account| {
            let client = &client;
            async move { client.open(*account).await }
        })
        .await;
    // A new process has cached no account, so it is cold.
    bank.webs.remove(0).drain().await;
    bank.start_web();
    bank.client(0).until_ready().await;
    phase(&bank, "1 each to 1,000 accounts, cold", "3.3", &accounts, ACCOUNTS_MANY).await;
    phase(&bank, "1 each to 1,000 accounts, warm", "2.2", &accounts, ACCOUNTS_MANY).await;
    let few = accounts.get(..ACCOUNTS_FEW).expect("enough accounts");
    phase(&bank, "10,000 to 10 accounts", "0.3", few, DEPOSITS_TO_FEW).await;
    phase(&bank, "10,000 to 1,000 accounts", "", &accounts, DEPOSITS_TO_FEW).await;
}

async fn phase(bank: &Scenario, name: &str, goal: &str, accounts: &[AccountKey], deposits: usize) {
    let client = bank.client(0);
    let submission = Submission::deposit("1.00");
    let before = counts(&client).await;
    let watch = Stopwatch::start();
    futures::stream::iter(accounts.iter().cycle().take(deposits))
        .for_each_concurrent(CONNECTIONS, |account| {
            let (client, submission) = (&client, &submission);
            async move { drop(client.submit(*account, fresh_id(), submission).await.expect(202)) }
        })
        .await;
    until_empty(bank).await;
    let took = watch.elapsed();
    let operations = difference(&counts(&client).await, &before);
    let total: u64 = operations.values().sum();
    let posted = u64::try_from(deposits).expect("a small number");
    let store_kind = format!("{:?}", bank.store_kind).to_lowercase();
    let kinds: Vec<String> =
        operations.iter().map(|(kind, count)| format!("{kind} {}", ratio(*count, posted))).collect();
    let rate = per_second(posted, took);
    println!(
        "| {store_kind} | {name} | {deposits} | {} | {goal} | {rate} | {} |",
        ratio(total, posted),
        kinds.join(", ")
    );
}

/// Waits without the API, so that the wait does not count.
async fn until_empty(bank: &Scenario) {
    let store = bank.store().await;
    wait::until("all queues are empty", DRAIN_TIME_MAX, async || {
        for queue in envelope::queues(bank.queue_count()) {
            let backlog = store.queue.backlog(&queue).await.map_err(|fault| fault.to_string())?;
            if backlog.depth > 0 {
                return Err(format!("{} in {queue}", backlog.depth));
            }
        }
        Ok(())
    })
    .await;
}
