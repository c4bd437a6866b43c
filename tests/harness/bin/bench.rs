//! What a posting costs: storage operations on Azurite, and transactions per second on both stores.
//!
//! `cargo run --release -p postonce-tests --bin bench [-- azurite|sqlite [<queue count>]]`
//!
//! One process with its worker inside, so that its counters see both halves; single deposits from
//! 256 connections. The store, the bank and the clients share one machine, so the rates say how
//! versions compare, and not what a deployment can do. Idle polls are counted in.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use postonce_shared::domain::ids::AccountKey;
use postonce_shared::envelope;
use postonce_tests::client::{Client, Wish};
use postonce_tests::scenario::{Plan, Scenario, Stand, fresh_account, fresh_id};
use postonce_tests::wait::{self, Stopwatch};
use serde_json::Value;

/// Requests under way at once, each on a connection of its own.
const CONNECTIONS: usize = 256;
/// Accounts of the wide phases.
const ACCOUNTS_MANY: usize = 1000;
/// Accounts of the narrow phase.
const ACCOUNTS_FEW: usize = 10;
/// Deposits of the narrow phase.
const DEPOSITS_NARROW: usize = 10_000;
/// Longest time for a phase's work to become final.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(300);

/// Counts by service and operation.
type Counts = BTreeMap<String, u64>;

#[tokio::main]
async fn main() {
    let (only, queue_count) = (std::env::args().nth(1), std::env::args().nth(2));
    let queue_count = queue_count.as_deref();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    println!("| store | phase | deposits | operations per posting | goal | deposits/s | by kind |");
    println!("|---|---|---|---|---|---|---|");
    if wanted("azurite") {
        measure(Stand::Azurite, queue_count).await;
    }
    if wanted("sqlite") {
        measure(Stand::Sqlite, queue_count).await;
    }
}

async fn measure(stand: Stand, queue_count: Option<&str>) {
    let mut plan = Plan::on(stand).in_one_process().with("POSTONCE_IDLE_POLL_MAX_MS", "1000");
    if let Some(queue_count) = queue_count {
        plan = plan.with("POSTONCE_QUEUE_COUNT", queue_count);
    }
    let mut bank = plan.start().await;
    let accounts: Vec<AccountKey> = (0..ACCOUNTS_MANY).map(|_| fresh_account()).collect();
    let client = bank.client(0);
    futures::stream::iter(&accounts)
        .for_each_concurrent(CONNECTIONS, |account| {
            let client = &client;
            async move { client.open(*account).await }
        })
        .await;
    // A new process remembers no account: it is cold.
    bank.webs.remove(0).drain().await;
    bank.start_web();
    bank.client(0).until_ready().await;
    phase(&bank, "1 each to 1,000 accounts, cold", "3.3", &accounts, ACCOUNTS_MANY).await;
    phase(&bank, "1 each to 1,000 accounts, warm", "2.2", &accounts, ACCOUNTS_MANY).await;
    let few = accounts.get(..ACCOUNTS_FEW).expect("there are more accounts");
    phase(&bank, "10,000 to 10 accounts", "0.3", few, DEPOSITS_NARROW).await;
    phase(&bank, "10,000 to 1,000 accounts", "", &accounts, DEPOSITS_NARROW).await;
}

async fn phase(bank: &Scenario, name: &str, goal: &str, accounts: &[AccountKey], deposits: usize) {
    let client = bank.client(0);
    let wish = Wish::deposit("1.00");
    let before = counts(&client).await;
    let watch = Stopwatch::start();
    futures::stream::iter(accounts.iter().cycle().take(deposits))
        .for_each_concurrent(CONNECTIONS, |account| {
            let (client, wish) = (&client, &wish);
            async move { drop(client.submit(*account, fresh_id(), wish).await.expect(202)) }
        })
        .await;
    until_empty(bank).await;
    let took = watch.elapsed();
    let spent = difference(&counts(&client).await, &before);
    let total: u64 = spent.values().sum();
    let posted = u64::try_from(deposits).expect("a small number");
    let stand = format!("{:?}", bank.stand).to_lowercase();
    let kinds: Vec<String> =
        spent.iter().map(|(kind, count)| format!("{kind} {}", ratio(*count, posted))).collect();
    let rate = u128::from(posted).saturating_mul(1000).checked_div(took.as_millis()).unwrap_or(0);
    println!(
        "| {stand} | {name} | {deposits} | {} | {goal} | {rate} | {} |",
        ratio(total, posted),
        kinds.join(", ")
    );
}

/// Waits past the bank's own counters.
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

async fn counts(client: &Client) -> Counts {
    let answer = client.get("/v1/admin/storage-operations").await.expect(200);
    let operations =
        answer.body.pointer("/operations").and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |operation: &Value, member: &str| {
        operation.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let entry = |operation: &Value| {
        let kind = format!("{}/{}", text(operation, "service"), text(operation, "operation"));
        (kind, operation.get("count").and_then(Value::as_u64).unwrap_or(0))
    };
    operations.iter().map(entry).collect()
}

fn difference(after: &Counts, before: &Counts) -> Counts {
    let spent = |(kind, count): (&String, &u64)| {
        (kind.clone(), count.saturating_sub(before.get(kind).copied().unwrap_or(0)))
    };
    after.iter().map(spent).filter(|(_, count)| *count > 0).collect()
}

/// A quotient with two decimals.
fn ratio(count: u64, of: u64) -> String {
    let hundredths = count.saturating_mul(100).checked_div(of).unwrap_or(0);
    format!("{}.{:02}", hundredths.div_euclid(100), hundredths.rem_euclid(100))
}
