//! The time to post a deposit after idleness: web and worker are separate processes, and the pause between two
//! deposits is longer than any poll interval could hide by chance. One client waits for the posting, the other one
//! submits, and reads the transaction until it is posted.
//!
//! In comparison, at the same time, a bank without the doorbell: its worker has one queue, polls it every second,
//! and gets no rings, because its advertised address is wrong.

use std::time::Duration;

use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;

use crate::bench::figures::{ms, percentile};
use crate::bench::load::Way;

/// Deposits at each bank.
pub const SAMPLES: u64 = 60;

/// A third of the shortest pause of a bank, because the three banks are measured in turns.
const THIRD_OF_PAUSE: Duration = Duration::from_millis(1700);
/// Largest random addition, so that deposits fall into any phase of a poll.
const RANDOM_MS_MAX: u64 = 1000;
/// An address at which nothing listens.
const NO_LISTENER: &str = "http://127.0.0.1:9";

/// A bank, its client, and the times that it took.
struct Measured {
    name: &'static str,
    bank: Scenario,
    way: Way,
    account: AccountKey,
    /// From the request until the client has read the posting, by the clock of the client.
    client_times: Vec<Duration>,
    /// From `accepted_at` to `posted_at`, in whole milliseconds.
    bank_times: Vec<Duration>,
}

/// Prints a table.
pub async fn measure(samples: u64) {
    let ringing = || Plan::on(StoreKind::Azurite).processes(1, 1).start();
    let polling = Plan::on(StoreKind::Azurite).processes(1, 0).with("POSTONCE_QUEUE_COUNT", "1");
    let mut polling = polling.with("POSTONCE_IDLE_POLL_MAX_MS", "1000").start().await;
    polling.settings = polling.settings.clone().with("POSTONCE_ADVERTISE", NO_LISTENER);
    polling.start_worker();
    let mut all = [
        Measured::new("doorbell, defaults; waiting", ringing().await, Way::Waiting).await,
        Measured::new("doorbell, defaults; queued", ringing().await, Way::Queued).await,
        Measured::new("poll every second; queued", polling, Way::Queued).await,
    ];
    for _ in 0..samples {
        for measured in &mut all {
            let random = Duration::from_millis(rand::random_range(0..RANDOM_MS_MAX));
            wait::pass(THIRD_OF_PAUSE.saturating_add(random)).await;
            measured.deposit().await;
        }
    }
    println!("| worker and client | measured | samples | p50, ms | p90, ms | p99, ms | max, ms | goal |");
    println!("|---|---|---|---|---|---|---|---|");
    for Measured { name, client_times, bank_times, .. } in all {
        print(name, "request until the client has read the posting", client_times);
        print(name, "accepted_at to posted_at", bank_times);
    }
}

impl Measured {
    async fn new(name: &'static str, bank: Scenario, way: Way) -> Self {
        bank.until_workers_ready().await;
        let (client, account) = (bank.client(0), fresh_account());
        client.open(account).await;
        // The first deposit of a process is not one after idleness.
        drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
        Self { name, bank, way, account, client_times: Vec::new(), bank_times: Vec::new() }
    }

    async fn deposit(&mut self) {
        let (client, id, submission) = (self.bank.client(0), fresh_id(), Submission::deposit("1.00"));
        // Opens the connection before, as clients with persistent connections have done.
        drop(client.get("/livez").await);
        let watch = Stopwatch::start();
        let answer = match self.way {
            Way::Waiting => client.submit_and_wait(self.account, id, &submission).await.expect(200),
            Way::Queued => {
                drop(client.submit(self.account, id, &submission).await.expect(202));
                client.until_final(self.account, id).await
            }
        };
        self.client_times.push(watch.elapsed());
        let time =
            |pointer| Timestamp::parse(answer.text_at(pointer)).expect("a posted transaction has both times");
        self.bank_times.push(time("/posted_at").since(time("/accepted_at")));
    }
}

fn print(name: &str, measured: &str, mut times: Vec<Duration>) {
    times.sort();
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| ms(percentile(&times, percent)));
    let goal = if name.starts_with("doorbell") { "p50 < 50, p99 < 250" } else { "" };
    println!("| {name} | {measured} | {} | {p50} | {p90} | {p99} | {max} | {goal} |", times.len());
}
