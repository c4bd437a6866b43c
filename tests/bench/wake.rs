//! The time to post a deposit after idleness: web and worker are separate processes, and the pause between two
//! deposits is longer than any poll interval could hide by chance.
//!
//! In comparison, at the same time, a bank without the doorbell: its worker has one queue, polls it every second,
//! and gets no rings, because its advertised address is wrong.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_shared::domain::time::Timestamp;
use postonce_tests::client::Submission;
use postonce_tests::scenario::{Plan, Scenario, StoreKind, fresh_account, fresh_id};
use postonce_tests::wait::{self, Stopwatch};

use crate::figures::{ms, percentile};

/// Deposits at each bank.
pub const SAMPLES: u32 = 60;

/// Half of the shortest pause of a bank, because the two banks are measured in turns.
const HALF_PAUSE: Duration = Duration::from_millis(2500);
/// Largest random addition, so that deposits fall into any phase of a poll.
const RANDOM_MS_MAX: u64 = 1000;
/// An address at which nothing listens.
const NO_LISTENER: &str = "http://127.0.0.1:9";

/// Times of one bank.
#[derive(Default)]
struct Times {
    /// From the request to the final response, by the clock of the client.
    client: Vec<Duration>,
    /// From `accepted_at` to `posted_at`, in whole milliseconds.
    bank: Vec<Duration>,
}

/// Prints a table.
pub async fn measure(samples: u32) {
    let ringing = Plan::on(StoreKind::Azurite).processes(1, 1).start().await;
    let polling = Plan::on(StoreKind::Azurite).processes(1, 0).with("POSTONCE_QUEUE_COUNT", "1");
    let mut polling = polling.with("POSTONCE_IDLE_POLL_MAX_MS", "1000").start().await;
    polling.settings = polling.settings.clone().with("POSTONCE_ADVERTISE", NO_LISTENER);
    polling.start_worker();
    let banks = [("doorbell, defaults", &ringing), ("poll every second", &polling)];
    let mut accounts = Vec::new();
    for (_, bank) in banks {
        bank.until_workers_ready().await;
        let (client, account) = (bank.client(0), fresh_account());
        client.open(account).await;
        // The first deposit of a process is not one after idleness.
        drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
        accounts.push(account);
    }
    let mut times = [Times::default(), Times::default()];
    for _ in 0..samples {
        for ((times, account), (_, bank)) in times.iter_mut().zip(&accounts).zip(banks) {
            let random = Duration::from_millis(rand::random_range(0..RANDOM_MS_MAX));
            wait::pass(HALF_PAUSE.saturating_add(random)).await;
            deposit(bank, *account, times).await;
        }
    }
    println!("| worker | measured | samples | p50, ms | p90, ms | p99, ms | max, ms | goal |");
    println!("|---|---|---|---|---|---|---|---|");
    for ((name, _), Times { client, bank }) in banks.into_iter().zip(times) {
        print(name, "request to final response", client);
        print(name, "accepted_at to posted_at", bank);
    }
}

async fn deposit(bank: &Scenario, account: AccountKey, times: &mut Times) {
    let (client, id, submission) = (bank.client(0), fresh_id(), Submission::deposit("1.00"));
    // Opens the connection before, as clients with persistent connections have done.
    drop(client.get("/livez").await);
    let watch = Stopwatch::start();
    let answer = client.submit_and_wait(account, id, &submission).await.expect(200);
    times.client.push(watch.elapsed());
    let time =
        |pointer| Timestamp::parse(answer.text_at(pointer)).expect("a posted transaction has both times");
    times.bank.push(time("/posted_at").since(time("/accepted_at")));
}

fn print(name: &str, measured: &str, mut times: Vec<Duration>) {
    times.sort();
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| ms(percentile(&times, percent)));
    let goal = if name.starts_with("doorbell") { "p50 < 50, p99 < 250" } else { "" };
    println!("| {name} | {measured} | {} | {p50} | {p90} | {p99} | {max} | {goal} |", times.len());
}
