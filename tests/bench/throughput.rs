//! As many deposits as an arm takes: what it posts a second, and what that costs it.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::wait::Stopwatch;

use crate::arm::Arm;
use crate::figures::per_second;
use crate::load::{self, Traffic, Until};
use crate::rounds::{Measure, Sample, Unit};

/// Deposits posted a second, from the first request until the last of them was posted.
pub const POSTED: Measure = Measure::of("posted", Unit::PerSecond);
/// What each cost the store.
pub const OPERATIONS: Measure = Measure::of("storage operations a posting", Unit::Hundredths);
/// Processor time of the arm's processes for each; the emulator of a storage service is none of them.
pub const PROCESSOR: Measure = Measure::of("processor time a posting", Unit::Nanoseconds);

/// What it took an arm to post deposits.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    deposits: u64,
    /// From the first request until the last of them was posted.
    pub took: Duration,
    storage_operations: u64,
    processor: Duration,
}

impl Spent {
    /// Deposits posted a second.
    pub fn posted_per_second(&self) -> u64 {
        per_second(self.deposits, self.took)
    }

    /// What falls on each of the deposits.
    pub fn each(&self, total: u64) -> u64 {
        total.checked_div(self.deposits).unwrap_or(0)
    }

    /// What falls on each of them, in nanoseconds.
    pub fn each_ns(&self, time: Duration) -> u64 {
        self.each(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Processor time of each, in nanoseconds.
    pub fn processor_each_ns(&self) -> u64 {
        self.each_ns(self.processor)
    }

    /// Storage operations of each, in hundredths.
    pub fn operations_each(&self) -> u64 {
        self.each(self.storage_operations.saturating_mul(100))
    }
}

/// Sends deposits for a while over so many connections, and waits until all are posted.
pub async fn throughput(arm: &Arm, accounts: &[AccountKey], connections: usize, lasting: Duration) -> Sample {
    let deposits = Traffic::deposits(&arm.target, accounts);
    let spent = post(arm, deposits, connections, Until::Passed(lasting)).await;
    Sample::from([
        (POSTED, spent.posted_per_second()),
        (OPERATIONS, spent.operations_each()),
        (PROCESSOR, spent.processor_each_ns()),
    ])
}

/// Sends those deposits over so many connections, and waits until all are posted.
pub async fn post(arm: &Arm, deposits: Traffic, connections: usize, until: Until) -> Spent {
    let posted_before = arm.posted().await;
    let posting = async {
        let answered = load::closed(deposits, connections, until).await.all(&[200, 202]).answered();
        arm.until_posted(posted_before.saturating_add(answered)).await;
        answered
    };
    spent(arm, posting).await
}

/// What it takes the arm to post something; `posting` returns how many deposits it was.
pub async fn spent(arm: &Arm, posting: impl Future<Output = u64>) -> Spent {
    let operations_before = arm.storage_operations().await;
    let processor_before = arm.processor_time();
    let watch = Stopwatch::start();
    let deposits = posting.await;
    let took = watch.elapsed();
    let processor = arm.processor_time().saturating_sub(processor_before);
    let storage_operations = arm.storage_operations().await.saturating_sub(operations_before);
    Spent { deposits, took, storage_operations, processor }
}

/// Posts so many transactions, each `run` of them in a row to one account. An emulator that has too much to do
/// or collects its garbage is away now and then, and what is refused for that is asked for again.
pub async fn fill(arm: &Arm, accounts: &[AccountKey], run: u64, connections: usize, transactions: u64) {
    let mut posted = arm.posted().await;
    let wanted = posted.saturating_add(transactions);
    while posted < wanted {
        let deposits = Traffic::deposits(&arm.target, accounts).in_runs_of(run);
        let missing = Until::Sent(wanted.saturating_sub(posted));
        let answers = load::closed(deposits, connections, missing).await.all(&[202, 503]);
        arm.until_posted(posted.saturating_add(answers.with_status(202))).await;
        posted = arm.posted().await;
    }
}
