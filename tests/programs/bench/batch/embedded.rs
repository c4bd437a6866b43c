//! A batch on SQLite, beside a service on PostgreSQL that posts it with a set-based statement, and beside plain inserts
//! of its rows: a million items to 1,000 accounts and to a million accounts. Also the latency of single requests while
//! such a batch is posted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join;
use postonce_shared::domain::ids::AccountKey;

use super::store_file::StoreFile;
use super::{MEMORY, MEMORY_MAX, Size, TIME, inserts, memory, post};
use crate::bench::load::{self, Outcome, Traffic, Until, Way};
use crate::bench::prelude::*;

const SCENARIO: &str = "batch-embedded";
/// Items of a batch.
const ITEMS: u64 = 1_000_000;
/// Accounts of the first shape; in the second, each item has its own.
const FEW_ACCOUNTS: usize = 1_000;
/// Accounts of the single requests that are not accounts of the batch.
const OTHER_ACCOUNTS: usize = 10_000;
/// Concurrent single requests, each on its own connection.
const CONNECTIONS: usize = 64;
/// Duration of the single requests without a batch.
const LASTING: Duration = Duration::from_secs(5);

const BANK: &str = "bank";
const POSTGRES: &str = "PostgreSQL";
const INSERTS: &str = "inserts into SQLite";

/// Median and 99th percentile of single requests.
const ALONE: [Measure; 2] = [
    Measure::of("single, without a batch, p50", Unit::Microseconds),
    Measure::of("single, without a batch, p99", Unit::Microseconds),
];
const BESIDE: [Measure; 2] = [
    Measure::of("single, beside a batch, p50", Unit::Microseconds),
    Measure::of("single, beside a batch, p99", Unit::Microseconds),
];
const TIMES: [Measure; 2] = [
    Measure::of("single, beside a batch / without, p50", Unit::Hundredths),
    Measure::of("single, beside a batch / without, p99", Unit::Hundredths),
];

const MEMORY_GOAL: GoalOf = (BANK, MEMORY, Goal::AtMost(MEMORY_MAX));
const GOALS_OF_FEW: &[GoalOf] = &[
    (BANK, POSTED, Goal::AtLeastOrTimes(100_000, INSERTS, 50)),
    (BANK, POSTED, Goal::TimesTheOther(POSTGRES, 150)),
    MEMORY_GOAL,
];
const GOALS_OF_MANY: &[GoalOf] =
    &[(BANK, POSTED, Goal::AtLeast(50_000)), (BANK, POSTED, Goal::TimesTheOther(POSTGRES, 100)), MEMORY_GOAL];
const GOALS_OF_SINGLES: &[GoalOf] = &[(BANK, TIMES[1], Goal::AtMost(200)), MEMORY_GOAL];

/// An arm, which is started for each round.
#[derive(Debug, Clone, Copy)]
enum Side {
    Bank,
    Postgres,
    Inserts,
}

impl Side {
    /// The selected ones; single requests cannot be compared with inserts.
    fn selected(options: &Options, with_inserts: bool) -> Vec<(&'static str, Self)> {
        [
            (BANK, Self::Bank, options.bank),
            (POSTGRES, Self::Postgres, options.peers),
            (INSERTS, Self::Inserts, options.peers && with_inserts),
        ]
        .into_iter()
        .filter_map(|(name, side, selected)| selected.then_some((name, side)))
        .collect()
    }

    /// Starts it on a copy of the file, or with the same accounts; `None` for inserts.
    async fn start(self, file: &StoreFile, machine: &Machine) -> Option<Arm> {
        match self {
            Self::Bank => Some(arms::embedded_on(&file.path(), machine.directory()).await),
            Self::Postgres => Some(arms::postgres_with(&file.accounts, machine.directory()).await),
            Self::Inserts => None,
        }
    }

    /// Adds the figures that only the bank has.
    fn note(self, sample: &mut Sample, arm: &Arm) {
        match self {
            Self::Bank => sample.extend([memory(arm)]),
            // The memory of the database is shared by its processes.
            Self::Postgres | Self::Inserts => {}
        }
    }
}

/// Measures all phases.
pub async fn measure(options: &Options, machine: &Machine) {
    let items = options.items(ITEMS);
    let few = Size { items, accounts: options.accounts(FEW_ACCOUNTS) };
    let many = Size { items, accounts: usize::try_from(items).expect("a batch fits in memory") };
    let mut report = Report::of(SCENARIO);
    for (size, goals) in [(few, GOALS_OF_FEW), (many, GOALS_OF_MANY)] {
        batch(size, goals, options, machine, &mut report).await;
    }
    singles(few, options, machine, &mut report).await;
    report.finish(machine);
}

async fn batch(size: Size, goals: &[GoalOf], options: &Options, machine: &Machine, report: &mut Report) {
    let file = StoreFile::with_accounts(size.accounts, machine.directory()).await;
    let document = size.document(&file.accounts);
    let phase = size.named();
    let sides = Side::selected(options, true);
    let run = async |side: &Side| {
        let Some(arm) = side.start(&file, machine).await else {
            return tokio::task::block_in_place(|| inserts::measure(size, &file, machine.directory()));
        };
        let (mut sample, _) = post(&arm, size.items, document.clone()).await;
        side.note(&mut sample, &arm);
        sample
    };
    let series = interleave(&format!("{SCENARIO}, {phase}"), options.rounds(), &sides, machine, run).await;
    report.add(&phase, &series, goals);
}

/// Measures single requests that wait, to other accounts and to those of the batch.
async fn singles(size: Size, options: &Options, machine: &Machine, report: &mut Report) {
    let others = options.accounts(OTHER_ACCOUNTS);
    let all = size.accounts.saturating_add(others);
    let file = StoreFile::with_accounts(all, machine.directory()).await;
    let (of_batch, others) = file.accounts.split_at(size.accounts);
    let document = size.document(of_batch);
    let sides = Side::selected(options, false);
    for (whose, accounts) in [("other accounts", others), ("the accounts of the batch", of_batch)] {
        let phase = format!("{}, single requests to {whose}", size.named());
        let run = async |side: &Side| {
            let arm = side.start(&file, machine).await.expect("an arm with a service");
            let mut sample = beside(&arm, accounts, (size, &document), options).await;
            side.note(&mut sample, &arm);
            sample
        };
        let series =
            interleave(&format!("{SCENARIO}, {phase}"), options.rounds(), &sides, machine, run).await;
        report.add(&phase, &series, GOALS_OF_SINGLES);
    }
}

/// The latency of single requests without a batch and beside it, and the figures of the batch.
async fn beside(
    arm: &Arm,
    accounts: &[AccountKey],
    (size, document): (Size, &Bytes),
    options: &Options,
) -> Sample {
    let connections = options.connections.unwrap_or(CONNECTIONS);
    let load = async |until| {
        let deposits = Traffic::deposits(&arm.target, accounts, Way::Waiting);
        load::closed(deposits, connections, until).await.all(&[200])
    };
    let alone = load(Until::Passed(options.lasting(LASTING))).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let batch = async {
        let (sample, _) = post(arm, size.items, document.clone()).await;
        is_over.store(true, Ordering::Relaxed);
        sample
    };
    let (mut sample, beside) = join(batch, load(Until::Ended(Arc::clone(&is_over)))).await;
    // The single requests have a part in the other figures.
    sample.retain(|measure, _| [TIME, POSTED].contains(measure));
    let percentiles: [fn(&Outcome) -> u64; 2] = [Outcome::p50_us, Outcome::p99_us];
    for (index, of) in percentiles.into_iter().enumerate() {
        let (before, during) = (of(&alone), of(&beside));
        let times = during.saturating_mul(100).checked_div(before).unwrap_or(0);
        sample.extend([(ALONE[index], before), (BESIDE[index], during), (TIMES[index], times)]);
    }
    sample
}
