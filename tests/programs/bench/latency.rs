//! Latency at a quarter, half and three quarters of the capacity of an arm. Open loop, so that a stall counts for
//! all requests that should have been sent during it.
//!
//! The load of each arm is relative to its own capacity, which is measured first. Until *accepted* is the time to
//! the response of a request that does not wait. Until *posted* is the time until a client that waits
//! (`Prefer: wait`) has read the posting. The peer on PostgreSQL posts before it answers, so both are the same there.
//! The classic design cannot wait.

use std::time::Duration;

use postonce_shared::domain::ids::AccountKey;

use crate::bench::load::{self, Traffic, Way};
use crate::bench::prelude::*;
use crate::bench::throughput::{POSTED as CAPACITY, throughput};

const RATE: Measure = Measure::of("requests", Unit::PerSecond);
/// Median and 99th percentile.
type Latency = [Measure; 2];
const ACCEPTED: Latency = [
    Measure::of("until accepted, p50", Unit::Microseconds),
    Measure::of("until accepted, p99", Unit::Microseconds),
];
const POSTED: Latency = [
    Measure::of("until posted, p50", Unit::Microseconds),
    Measure::of("until posted, p99", Unit::Microseconds),
];

const WAITING: &str = Way::Waiting.name();
const QUEUED: &str = Way::Queued.name();
const POSTGRES: &str = "PostgreSQL";
/// At half of the capacity, on a machine in its fast state.
const GOALS: [GoalOf; 8] = [
    (WAITING, POSTED[0], Goal::AtMost(2_000)),
    (WAITING, POSTED[0], Goal::TimesTheOtherAtMost(POSTGRES, 100)),
    (WAITING, POSTED[1], Goal::AtMost(15_000)),
    (WAITING, POSTED[1], Goal::TimesTheOtherAtMost(POSTGRES, 100)),
    (QUEUED, ACCEPTED[0], Goal::AtMost(2_000)),
    (QUEUED, ACCEPTED[1], Goal::AtMost(15_000)),
    (QUEUED, POSTED[0], Goal::AtMost(4_000)),
    (QUEUED, POSTED[1], Goal::AtMost(30_000)),
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

/// The loads of an arm one after the other: the way of the clients, and the latencies that it measures.
type Loads = &'static [(Way, &'static [Latency])];
/// The bank, at parts of its capacity with clients that wait.
const OF_WAITING: Loads = &[(Way::Waiting, &[POSTED])];
/// The bank, at parts of its capacity with clients that do not wait.
const OF_QUEUED: Loads = &[(Way::Queued, &[ACCEPTED]), (Way::Waiting, &[POSTED])];
const OF_POSTGRES: Loads = &[(Way::Waiting, &[ACCEPTED, POSTED])];
const OF_CLASSIC: Loads = &[(Way::Queued, &[ACCEPTED])];

/// An arm with its accounts and its capacity.
struct LoadedArm {
    arm: Arm,
    accounts: Vec<AccountKey>,
    /// Deposits a second.
    capacity: u64,
    loads: Loads,
    lasting: Duration,
}

impl LoadedArm {
    async fn new(arm: Arm, connections: usize, loads: Loads, options: &Options) -> Self {
        let accounts = arm.open(options.accounts(ACCOUNTS)).await;
        let lasting = options.lasting(CAPACITY_LASTING);
        drop(throughput(&arm, &accounts, connections, lasting).await);
        let sample = throughput(&arm, &accounts, connections, lasting).await;
        let capacity = sample.get(&CAPACITY).copied().unwrap_or_default();
        eprintln!("latency: capacity {capacity}/s");
        Self { arm, accounts, capacity, loads, lasting: options.lasting(LASTING) }
    }

    async fn latencies(&self, percent: u64) -> Sample {
        let rate = self.capacity.saturating_mul(percent).div_euclid(100).max(1);
        let mut sample = Sample::from([(RATE, rate)]);
        for (way, latencies) in self.loads {
            let before = self.arm.posted().await;
            let deposits = Traffic::deposits(&self.arm.target, &self.accounts, *way);
            let outcome = load::open(deposits, rate, self.lasting).await.all(&[200, 202]);
            if *way == Way::Queued {
                self.arm.until_posted(before.saturating_add(outcome.answered())).await;
            }
            for [p50, p99] in *latencies {
                sample.extend([(*p50, outcome.p50_us()), (*p99, outcome.p99_us())]);
            }
        }
        sample
    }
}

/// Measures both stores.
pub async fn measure(options: &Options, machine: &Machine) {
    let directory = machine.directory();
    let mut report = Report::of("latency");
    let ours = [(Way::Waiting, OF_WAITING), (Way::Queued, OF_QUEUED)];
    let mut embedded = Vec::new();
    for (way, loads) in ours {
        let arm = arms::embedded(directory, way).await;
        embedded.push((way.name(), LoadedArm::new(arm, 64, loads, options).await));
    }
    if options.peers {
        let arm = arms::postgres(directory, &[]);
        embedded.push((POSTGRES, LoadedArm::new(arm, 64, OF_POSTGRES, options).await));
    }
    of_store("embedded", &embedded, &GOALS, options, machine, &mut report).await;
    drop(embedded);
    let mut azure = Vec::new();
    for (way, loads) in ours {
        let arm = arms::azure(directory, way).await;
        azure.push((way.name(), LoadedArm::new(arm, 256, loads, options).await));
    }
    if options.peers {
        let arm = arms::classic(directory);
        azure.push(("classic design", LoadedArm::new(arm, 256, OF_CLASSIC, options).await));
    }
    of_store("azure", &azure, &[], options, machine, &mut report).await;
    report.finish(machine);
}

async fn of_store(
    store: &str,
    arms: &[(&'static str, LoadedArm)],
    goals: &[GoalOf],
    options: &Options,
    machine: &Machine,
    report: &mut Report,
) {
    for percent in LOADS {
        let phase = format!("{store}, {percent} % of capacity");
        let name = format!("latency, {phase}");
        let run = async |arm: &LoadedArm| arm.latencies(percent).await;
        let series = interleave(&name, options.rounds(), arms, machine, run).await;
        report.add(&phase, &series, if percent == LOAD_OF_GOALS { goals } else { &[] });
    }
}
