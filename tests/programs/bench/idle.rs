//! The cost of idle processes: every storage operation of an idle web and an idle worker process, by kind.
//!
//! Two banks run side by side: one with the default settings, and one whose poll interval is configured, so that it
//! polls as often as if pings were missing. After a start or after work, polls take a while to become rare (about
//! fourteen minutes with the default settings); counting starts after the minutes of warm-up. Some
//! operations come every half an hour, so the figure of a day is rough; the counts by kind show what it consists of.

use std::collections::BTreeMap;
use std::time::Duration;

use postonce_tests::prelude::*;
use postonce_tests::process_probe::storage_operations;

use crate::bench::figures::{Counts, difference};

/// Minutes of counting.
pub const MINUTES: u32 = 30;
/// Minutes of warm-up.
pub const MINUTES_BEFORE: u32 = 15;

/// Reading the metrics costs the web process the look-up of the key and of its partner.
const OPERATIONS_OF_THE_MEASUREMENT: u64 = 2;
const WORKER: &str = "worker";
const BOTH: &str = "both";
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Operations of a listener without a doorbell that polls one queue every second.
const NAIVE_A_DAY: u64 = 86_400;

/// Prints a table.
pub async fn measure(minutes: u32, before: u32) {
    let plan = || Plan::on(StoreKind::Azurite).processes(1, 1);
    let configured = plan().with("POSTONCE_IDLE_POLL_MAX_MS", "60000");
    let banks = [("by default", 600, plan().start().await), ("60 s", 3000, configured.start().await)];
    for (_, _, bank) in &banks {
        bank.until_workers_ready().await;
        let (client, account) = (bank.client(0), fresh_account());
        client.open(account).await;
        drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    wait::pass(MINUTE.saturating_mul(before)).await;
    let watch = Stopwatch::start();
    let mut before = Vec::new();
    for (_, _, bank) in &banks {
        before.push(storage_operations_of(bank).await);
    }
    wait::pass(MINUTE.saturating_mul(minutes)).await;
    println!("| poll | process | minutes | operations | a day | goal | naive | by kind |");
    println!("|---|---|---|---|---|---|---|---|");
    for ((poll, goal, bank), before) in banks.iter().zip(before) {
        let mut both = Counts::new();
        for (process, after) in storage_operations_of(bank).await {
            let nothing = Counts::new();
            let operations = difference(&after, before.get(process).unwrap_or(&nothing));
            print(poll, process, &operations, None, watch.elapsed());
            for (kind, count) in operations {
                let sum = both.entry(kind).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        print(poll, BOTH, &both, Some(*goal), watch.elapsed());
    }
}

/// The storage operations of each process so far.
async fn storage_operations_of(bank: &Scenario) -> BTreeMap<&'static str, Counts> {
    // From the metrics of this process: the API would add up both.
    let web = storage_operations(&bank.client(0).get("/metrics").await.expect(200).text);
    let worker = bank.probe(0).storage_operations().await;
    BTreeMap::from([("web", web), (WORKER, worker)])
}

fn print(poll: &str, process: &str, operations: &Counts, goal: Option<u64>, elapsed: Duration) {
    let own = if process == WORKER { 0 } else { OPERATIONS_OF_THE_MEASUREMENT };
    let goal = goal.map_or_else(String::new, |goal| goal.to_string());
    let total = operations.values().sum::<u64>().saturating_sub(own);
    let a_day =
        u128::from(total).saturating_mul(DAY.as_millis()).checked_div(elapsed.as_millis()).unwrap_or(0);
    let kinds: Vec<String> = operations.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let minutes = elapsed.as_secs().div_euclid(60);
    let kinds = kinds.join(", ");
    println!("| {poll} | {process} | {minutes} | {total} | {a_day} | {goal} | {NAIVE_A_DAY} | {kinds} |");
}
