//! The memory of the processes: idle, under full load, and after a million transactions.

use postonce_tests::process_probe::{memory_kib, memory_peak_kib};

use crate::bench::prelude::*;
use crate::bench::throughput::fill;

const IDLE: Measure = Measure::of("idle, after the start", Unit::Kibibytes);
const PEAK: Measure = Measure::of("most, under full load", Unit::Kibibytes);
const FIRST: Measure = Measure::of("after a tenth of the transactions", Unit::Kibibytes);
const LAST: Measure = Measure::of("after all transactions", Unit::Kibibytes);

const ARM: &str = "postonce";
const MIB: u64 = 1024;
/// For each process.
const GOALS: [GoalOf; 3] = [
    (ARM, IDLE, Goal::AtMost(64 * MIB)),
    (ARM, PEAK, Goal::AtMost(256 * MIB)),
    (ARM, LAST, Goal::AtMost(256 * MIB)),
];

/// Accounts of the deposits.
const ACCOUNTS: usize = 10_000;
/// Connections of the clients.
const CONNECTIONS: usize = 256;

/// Measures both stores.
pub async fn measure(options: &Options, machine: &Machine) {
    let mut report = Report::of("memory");
    of_store("embedded", arms::embedded(machine.directory(), Way::Queued).await, 1, options, &mut report)
        .await;
    // In runs to one account, which takes minutes instead of half an hour.
    of_store("azure", arms::azure(machine.directory(), Way::Queued).await, 100, options, &mut report).await;
    report.finish(machine);
}

async fn of_store(store: &str, arm: Arm, run: u64, options: &Options, report: &mut Report) {
    let mut samples: Vec<Sample> = arm.processes.iter().map(|_| Sample::new()).collect();
    let mut note = |measure: Measure, read: fn(u32) -> u64| {
        for ((_, pid), sample) in arm.processes.iter().zip(&mut samples) {
            sample.extend([(measure, read(*pid))]);
        }
    };
    note(IDLE, memory_kib);
    let accounts = arm.open(options.accounts(ACCOUNTS)).await;
    let transactions = options.transactions(options.transactions);
    let tenth = transactions.div_euclid(10);
    for (part, measure) in [(tenth, FIRST), (transactions.saturating_sub(tenth), LAST)] {
        fill(&arm, &accounts, run, CONNECTIONS, part).await;
        note(measure, memory_kib);
    }
    note(PEAK, memory_peak_kib);
    for ((process, _), sample) in arm.processes.iter().zip(samples) {
        eprintln!("memory: {store}, {process}: {sample:?}");
        let series = Series::of_round(vec![(ARM, sample)]);
        report.add(&format!("{store}, {process}"), &series, &GOALS);
    }
}
