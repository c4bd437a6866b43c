//! Latency at a quarter, half and three quarters of the capacity of an arm. Open loop, so that a stall counts for
//! all requests that should have been sent during it.
//!
//! The load of each arm is relative to its own capacity, which is measured first. Until *accepted* is the time to
//! the response of a request that does not wait. Until *posted* is the time to the response of one that waits
//! (`Prefer: wait`). The peer on PostgreSQL posts before it answers, so both are the same there. The classic
//! design cannot wait.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;

use crate::arm::Arm;
use crate::load::{self, Traffic};
use crate::machine::Machine;
use crate::report::{Goal, Report};
use crate::rounds::{Measure, Sample, Unit, interleave};
use crate::throughput::{POSTED, throughput};
use crate::{Options, arms};

const RATE: Measure = Measure::of("requests", Unit::PerSecond);
const ACCEPTED_P50: Measure = Measure::of("until accepted, p50", Unit::Microseconds);
const ACCEPTED_P99: Measure = Measure::of("until accepted, p99", Unit::Microseconds);
const POSTED_P50: Measure = Measure::of("until posted, p50", Unit::Microseconds);
const POSTED_P99: Measure = Measure::of("until posted, p99", Unit::Microseconds);

/// At half of the capacity, on a machine in its fast state.
const GOALS: [(Measure, Goal); 4] = [
    (ACCEPTED_P50, Goal::AtMost(2_000)),
    (ACCEPTED_P99, Goal::AtMost(15_000)),
    (POSTED_P50, Goal::AtMost(4_000)),
    (POSTED_P99, Goal::AtMost(30_000)),
];

/// Parts of the capacity, in percent.
const LOADS: [u64; 3] = [25, 50, 75];
/// The load for which the goals hold.
const LOAD_OF_GOALS: u64 = 50;
/// Accounts of each arm.
const ACCOUNTS: usize = 10_000;
/// Duration of the measurement of the capacity, and of the warm-up before it.
const CAPACITY_LASTING: Duration = Duration::from_secs(5);
/// Duration of each load.
const LASTING: Duration = Duration::from_secs(6);

/// An arm with its accounts and its capacity.
struct LoadedArm {
    arm: Arm,
    accounts: Vec<AccountKey>,
    /// Deposits a second.
    capacity: u64,
    /// Whether a request can wait until its deposit is posted.
    can_wait: bool,
}

impl LoadedArm {
    async fn new(arm: Arm, connections: usize, can_wait: bool) -> Self {
        let accounts = arm.open(ACCOUNTS).await;
        drop(throughput(&arm, &accounts, connections, CAPACITY_LASTING).await);
        let sample = throughput(&arm, &accounts, connections, CAPACITY_LASTING).await;
        let capacity = sample.get(&POSTED).copied().unwrap_or_default();
        eprintln!("latency: capacity {capacity}/s");
        Self { arm, accounts, capacity, can_wait }
    }

    async fn latencies(&self, percent: u64) -> Sample {
        let rate = self.capacity.saturating_mul(percent).div_euclid(100).max(1);
        let before = self.arm.posted().await;
        let deposits = Traffic::deposits(&self.arm.target, &self.accounts);
        let accepted = load::open(deposits.clone(), rate, LASTING).await.all(&[200, 202]);
        self.arm.until_posted(before.saturating_add(accepted.answered())).await;
        let mut sample = Sample::from([
            (RATE, rate),
            (ACCEPTED_P50, accepted.p50_us()),
            (ACCEPTED_P99, accepted.p99_us()),
        ]);
        if self.can_wait {
            let posted = load::open(deposits.waiting(), rate, LASTING).await.all(&[200]);
            sample.extend([(POSTED_P50, posted.p50_us()), (POSTED_P99, posted.p99_us())]);
        }
        sample
    }
}

/// Measures both stores.
pub async fn measure(options: &Options, machine: &Machine) {
    let directory = machine.directory();
    let mut report = Report::of("latency");
    let mut embedded = vec![("postonce", LoadedArm::new(arms::embedded(directory).await, 64, true).await)];
    if options.peers {
        embedded.push(("PostgreSQL", LoadedArm::new(arms::postgres(directory, &[]), 64, true).await));
    }
    of_store("embedded", &embedded, &GOALS, options, machine, &mut report).await;
    drop(embedded);
    let mut azure = vec![("postonce", LoadedArm::new(arms::azure(directory).await, 256, true).await)];
    if options.peers {
        azure.push(("classic design", LoadedArm::new(arms::classic(directory), 256, false).await));
    }
    of_store("azure", &azure, &[], options, machine, &mut report).await;
    report.finish(machine);
}

async fn of_store(
    store: &str,
    arms: &[(&'static str, LoadedArm)],
    goals: &[(Measure, Goal)],
    options: &Options,
    machine: &Machine,
    report: &mut Report,
) {
    for percent in LOADS {
        let phase = format!("{store}, {percent} % of capacity");
        let name = format!("latency, {phase}");
        let run = async |arm: &LoadedArm| arm.latencies(percent).await;
        let series = interleave(&name, options.rounds, arms, machine, run).await;
        report.add(&phase, &series, if percent == LOAD_OF_GOALS { goals } else { &[] });
    }
}
