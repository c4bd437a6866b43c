//! The highest throughput of an arm: deposits posted a second, and the cost of each.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::wait::Stopwatch;

use crate::arm::Arm;
use crate::figures::per_second;
use crate::load::{self, Traffic, Until};
use crate::rounds::{Measure, Sample, Unit};

/// Deposits posted a second, from the first request to the last posting.
pub const POSTED: Measure = Measure::of("posted", Unit::PerSecond);
/// Storage operations of each posting.
pub const OPERATIONS: Measure = Measure::of("storage operations a posting", Unit::Hundredths);
/// Processor time of the arm's processes for each posting, without the emulator of the storage service.
pub const PROCESSOR: Measure = Measure::of("processor time a posting", Unit::Nanoseconds);

/// The cost of posting deposits.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    deposits: u64,
    /// From the first request to the last posting.
    pub took: Duration,
    storage_operations: u64,
    processor: Duration,
}

impl Cost {
    /// Deposits posted a second.
    pub fn posted_per_second(&self) -> u64 {
        per_second(self.deposits, self.took)
    }

    /// A total divided by the number of deposits.
    pub fn each(&self, total: u64) -> u64 {
        total.checked_div(self.deposits).unwrap_or(0)
    }

    /// A time divided by the number of deposits, in nanoseconds.
    pub fn each_ns(&self, time: Duration) -> u64 {
        self.each(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Processor time of each deposit, in nanoseconds.
    pub fn processor_each_ns(&self) -> u64 {
        self.each_ns(self.processor)
    }

    /// Storage operations of each deposit, in hundredths.
    pub fn operations_each(&self) -> u64 {
        self.each(self.storage_operations.saturating_mul(100))
    }
}

/// Sends deposits for a while over that many connections, and waits until all are posted.
pub async fn throughput(arm: &Arm, accounts: &[AccountKey], connections: usize, lasting: Duration) -> Sample {
    let deposits = Traffic::deposits(&arm.target, accounts);
    let cost = post(arm, deposits, connections, Until::Passed(lasting)).await;
    Sample::from([
        (POSTED, cost.posted_per_second()),
        (OPERATIONS, cost.operations_each()),
        (PROCESSOR, cost.processor_each_ns()),
    ])
}

/// Sends these deposits over that many connections, and waits until all are posted.
pub async fn post(arm: &Arm, deposits: Traffic, connections: usize, until: Until) -> Cost {
    let posted_before = arm.posted().await;
    let posting = async {
        let answered = load::closed(deposits, connections, until).await.all(&[200, 202]).answered();
        arm.until_posted(posted_before.saturating_add(answered)).await;
        answered
    };
    cost(arm, posting).await
}

/// Measures the cost of a posting; `posting` returns the number of deposits.
pub async fn cost(arm: &Arm, posting: impl Future<Output = u64>) -> Cost {
    let operations_before = arm.storage_operations().await;
    let processor_before = arm.processor_time();
    let watch = Stopwatch::start();
    let deposits = posting.await;
    let took = watch.elapsed();
    let processor = arm.processor_time().saturating_sub(processor_before);
    let storage_operations = arm.storage_operations().await.saturating_sub(operations_before);
    Cost { deposits, took, storage_operations, processor }
}

/// Posts that many transactions, each `run` of them in a row to one account. An overloaded emulator refuses
/// requests at times; these are sent again.
pub async fn fill(arm: &Arm, accounts: &[AccountKey], run: u64, connections: usize, transactions: u64) {
    let mut posted = arm.posted().await;
    let target = posted.saturating_add(transactions);
    while posted < target {
        let deposits = Traffic::deposits(&arm.target, accounts).in_runs_of(run);
        let missing = Until::Sent(target.saturating_sub(posted));
        let answers = load::closed(deposits, connections, missing).await.all(&[202, 503]);
        arm.until_posted(posted.saturating_add(answers.with_status(202))).await;
        posted = arm.posted().await;
    }
}
