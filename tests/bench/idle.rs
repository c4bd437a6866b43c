//! What doing nothing costs: every storage operation of an idle web and an idle worker, by kind.
//!
//! Two banks side by side, with the default poll and with one of ten minutes. After a restart or
//! after work, polls take a while to become that rare (about two minutes, and about fourteen);
//! counting starts later, after the minutes that pass before.

use std::collections::BTreeMap;
use std::time::Duration;

use postonce_tests::client::Submission;
use postonce_tests::process_probe::storage_operations;
use postonce_tests::scenario::{Plan, Scenario, StoreKind, fresh_account, fresh_id};
use postonce_tests::wait::{self, Stopwatch};

use crate::figures::{Counts, difference};

/// Minutes that are counted.
pub const MINUTES: u32 = 10;
/// Minutes before.
pub const MINUTES_BEFORE: u32 = 3;

/// The look-up of the key, and of its partner, with which the web is asked for its metrics is no idleness.
const OPERATIONS_OF_THE_MEASUREMENT: u64 = 2;
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// What a listener without a doorbell asks, that polls one queue every second.
const NAIVE_A_DAY: u64 = 86_400;

/// Prints a table.
pub async fn measure(minutes: u32, before: u32) {
    let plan = || Plan::on(StoreKind::Azurite).processes(1, 1);
    let rare = plan().with("POSTONCE_IDLE_POLL_MAX_MS", "600000");
    let banks = [("60 s (default)", 3000, plan().start().await), ("10 min", 300, rare.start().await)];
    for (_, _, bank) in &banks {
        bank.until_workers_ready().await;
        let (client, account) = (bank.client(0), fresh_account());
        client.open(account).await;
        drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    wait::pass(MINUTE.saturating_mul(before)).await;
    let watch = Stopwatch::start();
    let mut at_first = Vec::new();
    for (_, _, bank) in &banks {
        at_first.push(look(bank).await);
    }
    wait::pass(MINUTE.saturating_mul(minutes)).await;
    println!("| poll | process | minutes | operations | a day | goal | naive | by kind |");
    println!("|---|---|---|---|---|---|---|---|");
    for ((poll, goal, bank), before) in banks.iter().zip(at_first) {
        for (process, after) in look(bank).await {
            let nothing = Counts::new();
            let spent = difference(&after, before.get(process).unwrap_or(&nothing));
            print(poll, process, &spent, *goal, watch.elapsed());
        }
    }
}

/// What each process asked of the store so far.
async fn look(bank: &Scenario) -> BTreeMap<&'static str, Counts> {
    // Of this process alone: the API would sum over both.
    let web = storage_operations(&bank.client(0).get("/metrics").await.expect(200).text);
    let worker = bank.probe(0).storage_operations().await;
    BTreeMap::from([("web", web), ("worker", worker)])
}

fn print(poll: &str, process: &str, spent: &Counts, goal: u64, elapsed: Duration) {
    let own = if process == "web" { OPERATIONS_OF_THE_MEASUREMENT } else { 0 };
    let total = spent.values().sum::<u64>().saturating_sub(own);
    let a_day =
        u128::from(total).saturating_mul(DAY.as_millis()).checked_div(elapsed.as_millis()).unwrap_or(0);
    let kinds: Vec<String> = spent.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let minutes = elapsed.as_secs().div_euclid(60);
    let kinds = kinds.join(", ");
    println!("| {poll} | {process} | {minutes} | {total} | {a_day} | {goal} | {NAIVE_A_DAY} | {kinds} |");
}
