//! A large backlog and a cold worker: the receivers grow, the queues drain, and the receivers stop. Printed as
//! a series, as an operator sees it in `/v1/admin/queues`.

use std::time::Duration;

use futures::StreamExt as _;
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;

use crate::bench::figures::{ms, per_second, ratio};

/// Waiting transactions.
pub const TRANSACTIONS: u64 = 20_000;

/// Accounts of the transactions.
const ACCOUNTS: usize = 1000;
/// Concurrent requests while the transactions are submitted.
const CONNECTIONS: usize = 64;
/// Time between two lines.
const INTERVAL: Duration = Duration::from_millis(500);
/// Longest time of the measurement.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Prints the series.
pub async fn measure(transactions: u64) {
    let mut bank = Plan::on(StoreKind::Azurite).processes(1, 0).start().await;
    let client = bank.client(0);
    let accounts: Vec<AccountKey> = (0..ACCOUNTS).map(|_| fresh_account()).collect();
    futures::stream::iter(&accounts)
        .for_each_concurrent(CONNECTIONS, async |account| client.open(*account).await)
        .await;
    let submission = Submission::deposit("1.00");
    let submissions = accounts.iter().cycle().take(usize::try_from(transactions).unwrap_or(usize::MAX));
    futures::stream::iter(submissions)
        .for_each_concurrent(CONNECTIONS, async |account| {
            drop(client.submit(*account, fresh_id(), &submission).await.expect(202));
        })
        .await;
    let messages = client.over_queues("depth").await;
    println!("{transactions} transactions wait in {messages} messages; a worker starts.\n");
    println!("| s | messages | active receivers | at most |");
    println!("|---|---|---|---|");
    let watch = Stopwatch::start();
    bank.start_worker();
    let took = series(&client, &watch).await;
    let rate = per_second(transactions, took);
    let per_posting = ratio(bank.probe(0).storage_operations().await.values().sum(), transactions);
    println!(
        "\nDrained in {} ms: {rate} a second; {per_posting} operations of the worker per posting.",
        ms(took)
    );
}

/// Prints a line at each interval until the queues are empty and no receiver is active. Returns the time at
/// which the queues were empty.
async fn series(client: &Client, watch: &Stopwatch) -> Duration {
    let mut drained = None;
    let mut peak = 0;
    loop {
        let at = watch.elapsed();
        let messages = client.over_queues("depth").await;
        let active = client.over_queues("active_listeners").await;
        println!(
            "| {} | {messages} | {active} | {} |",
            seconds(at),
            client.over_queues("listeners_max").await
        );
        peak = active.max(peak);
        if messages == 0 {
            drained.get_or_insert(at);
        }
        if let (Some(drained), 0) = (drained, active) {
            println!("\nAt the peak {peak} receivers were active.");
            return drained;
        }
        assert!(at < TIME_MAX, "not drained within {TIME_MAX:?}");
        wait::pass(INTERVAL).await;
    }
}

/// Seconds with one decimal.
fn seconds(duration: Duration) -> String {
    let tenths = duration.as_millis().div_euclid(100);
    format!("{}.{}", tenths.div_euclid(10), tenths.rem_euclid(10))
}
