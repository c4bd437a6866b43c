//! The highest throughput of an arm: deposits posted a second, and the cost of each.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;
use postonce_tests::wait::Stopwatch;

use crate::bench::arm::{Arm, IMMEDIATELY, Totals};
use crate::bench::figures::{Counts, per_second, ratio};
use crate::bench::load::{self, Traffic, Until, Way};
use crate::bench::rounds::{Measure, Sample, Unit};

/// Deposits posted a second, from the first request to the last posting.
pub const POSTED: Measure = Measure::of("posted", Unit::PerSecond);
/// Storage operations of each posting.
pub const OPERATIONS: Measure = Measure::of("storage operations a posting", Unit::Hundredths);
/// Processor time of the arm's processes for each posting, without the emulator of the storage service.
pub const PROCESSOR: Measure = Measure::of("processor time a posting", Unit::Nanoseconds);

/// Duration of the load on an arm in each round.
pub const LASTING: Duration = Duration::from_secs(4);

/// The part of the postings that the web process made itself.
pub const IMMEDIATE: Measure = Measure::of("posted immediately", Unit::Hundredths);

/// The cost of posting deposits.
#[derive(Debug, Clone)]
pub struct Cost {
    deposits: u64,
    /// From the first request to the last posting.
    pub took: Duration,
    /// What the processes counted meanwhile.
    totals: Totals,
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
        self.each(self.totals.storage_operations.values().sum::<u64>().saturating_mul(100))
    }

    /// Storage operations of a hundred deposits, in hundredths.
    pub fn operations_of_hundred(&self) -> u64 {
        self.each(self.totals.storage_operations.values().sum::<u64>().saturating_mul(10_000))
    }

    /// The part of the deposits that the web process posted itself, in hundredths; `None` if the processes counted
    /// no waiting requests.
    pub fn immediate_each(&self) -> Option<u64> {
        let count = |routes: &Counts| routes.get(IMMEDIATELY).copied().unwrap_or(0);
        let Totals { routes, .. } = &self.totals;
        (!routes.is_empty()).then(|| self.each(count(routes).saturating_mul(100)))
    }

    /// Storage operations of each deposit, by kind.
    pub fn operations_by_kind(&self) -> String {
        self.each_of(&self.totals.storage_operations)
    }

    /// The parts of the deposits that the web process posted itself and that it queued, by reason.
    pub fn routes(&self) -> String {
        self.each_of(&self.totals.routes)
    }

    fn each_of(&self, counts: &Counts) -> String {
        let shown = counts.iter().map(|(name, count)| format!("{name} {}", ratio(*count, self.deposits)));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Sends deposits for a while over that many connections, and waits until all are posted.
pub async fn throughput(arm: &Arm, accounts: &[AccountKey], connections: usize, lasting: Duration) -> Sample {
    let cost = post(arm, arm.deposits(accounts), connections, Until::Passed(lasting)).await;
    let mut sample = Sample::from([
        (POSTED, cost.posted_per_second()),
        (OPERATIONS, cost.operations_each()),
        (PROCESSOR, cost.processor_each_ns()),
    ]);
    if let Some(part) = cost.immediate_each() {
        eprintln!("parts of the postings: {}", cost.routes());
        sample.extend([(IMMEDIATE, part)]);
    }
    sample
}

/// Sends these deposits over that many connections, and waits until all are posted.
pub async fn post(arm: &Arm, deposits: Traffic, connections: usize, until: Until) -> Cost {
    let posted_before = arm.posted().await;
    let way = deposits.way();
    let posting = async {
        let answered = load::closed(deposits, connections, until).await.all(&[200, 202]).answered();
        match way {
            // Each client has read that its deposits are posted.
            Way::Waiting => (),
            Way::Queued => arm.until_posted(posted_before.saturating_add(answered)).await,
        }
        answered
    };
    cost(arm, posting).await
}

/// Measures the cost of a posting; `posting` returns the number of deposits.
pub async fn cost(arm: &Arm, posting: impl Future<Output = u64>) -> Cost {
    let before = arm.totals().await;
    let processor_before = arm.processor_time();
    let watch = Stopwatch::start();
    let deposits = posting.await;
    let took = watch.elapsed();
    let processor = arm.processor_time().saturating_sub(processor_before);
    let totals = arm.totals().await.since(&before);
    Cost { deposits, took, totals, processor }
}

/// Posts that many transactions through the queue, each `run` of them in a row to one account. An overloaded emulator
/// refuses requests at times; these are sent again.
pub async fn fill(arm: &Arm, accounts: &[AccountKey], run: u64, connections: usize, transactions: u64) {
    let mut posted = arm.posted().await;
    let target = posted.saturating_add(transactions);
    while posted < target {
        let deposits = Traffic::deposits(&arm.target, accounts, Way::Queued).in_runs_of(run);
        let missing = Until::Sent(target.saturating_sub(posted));
        let answers = load::closed(deposits, connections, missing).await.all(&[202, 503]);
        arm.until_posted(posted.saturating_add(answers.with_status(202))).await;
        posted = arm.posted().await;
    }
}
