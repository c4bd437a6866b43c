//! A batch on Azurite: storage operations of its items, and its throughput with one, two and four worker processes
//! beside a web process.

use super::{MEMORY, MEMORY_MAX, Size, memory, post};
use crate::bench::prelude::*;

const SCENARIO: &str = "batch-azure";
/// Few in comparison with the operations, so they are shown for a hundred items.
const OPERATIONS: Measure = Measure::of("storage operations for 100 items", Unit::Hundredths);

const ONE: &str = "1 worker process";
/// Arms, and their worker processes.
const ALL: &[(&str, usize)] = &[(ONE, 1), ("2 worker processes", 2), ("4 worker processes", 4)];

/// Sends batches of a size.
struct Phase {
    items: u64,
    /// Each item has its own if this is not set.
    accounts: Option<usize>,
    arms: &'static [(&'static str, usize)],
    goals: &'static [GoalOf],
}

const PHASES: [Phase; 2] = [
    Phase {
        items: 100_000,
        accounts: Some(1_000),
        arms: ALL,
        goals: &[
            (ONE, POSTED, Goal::AtLeast(5_000)),
            (ONE, OPERATIONS, Goal::AtMost(500)),
            (ONE, MEMORY, Goal::AtMost(MEMORY_MAX)),
        ],
    },
    Phase {
        items: 20_000,
        accounts: None,
        arms: &[(ONE, 1)],
        goals: &[(ONE, OPERATIONS, Goal::AtMost(21_000)), (ONE, MEMORY, Goal::AtMost(MEMORY_MAX))],
    },
];

/// Measures all phases.
pub async fn measure(options: &Options, machine: &Machine) {
    let mut report = Report::of(SCENARIO);
    for Phase { items, accounts, arms, goals } in PHASES {
        let items = options.items(items);
        let each = usize::try_from(items).expect("a batch fits in memory");
        let accounts = accounts.map_or(each, |count| options.accounts(count));
        let size = Size { items, accounts };
        let phase = size.named();
        let run = async |workers: &usize| of_bank(*workers, size, machine).await;
        let series = interleave(&format!("{SCENARIO}, {phase}"), options.rounds(), arms, machine, run).await;
        report.add(&phase, &series, goals);
    }
    report.finish(machine);
}

/// Posts a batch to accounts that no worker has read. The requests of idle polls are included in the operations.
async fn of_bank(workers: usize, size: Size, machine: &Machine) -> Sample {
    let arm = arms::azure_workers(machine.directory(), Way::Waiting, workers).await;
    let accounts = arm.open(size.accounts).await;
    let (mut sample, cost) = post(&arm, size.items, size.document(&accounts)).await;
    eprintln!("operations an item: {}", cost.operations_by_kind());
    sample.extend([(OPERATIONS, cost.operations_of_hundred()), memory(&arm)]);
    sample
}
