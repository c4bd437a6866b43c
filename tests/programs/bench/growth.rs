//! Whether the cost of a posting grows with the history and with the number of accounts.
//!
//! On SQLite the cost is time: banks with different histories run in turns, so that a change of the machine
//! affects all of them. On Azurite it is storage operations and bytes: the emulator itself slows down with
//! its content, so its time says nothing about a storage service.

use postonce_shared::domain::ids::AccountKey;

use crate::bench::prelude::*;
use crate::bench::throughput::{OPERATIONS, cost, fill, post};

/// The time and the processor time of a posting with clients that use a way.
type Times = (Way, [Measure; 2]);
const WAITING: Times = (
    Way::Waiting,
    [
        Measure::of("time a posting, waiting", Unit::Nanoseconds),
        Measure::of("processor time a posting, waiting", Unit::Nanoseconds),
    ],
);
const QUEUED: Times = (
    Way::Queued,
    [
        Measure::of("time a posting, queued", Unit::Nanoseconds),
        Measure::of("processor time a posting, queued", Unit::Nanoseconds),
    ],
);
const BYTES: Measure = Measure::of("bytes a posting", Unit::Bytes);

/// Transactions of history, the largest number first: the others are compared with it.
const HISTORIES: [(&str, u64); 3] = [("10^6", 1_000_000), ("10^5", 100_000), ("10^4", HISTORY_MIN)];
/// The smallest history that can be compared.
pub const HISTORY_MIN: u64 = 10_000;
/// Accounts over which they are spread.
const ACCOUNTS: [(&str, usize); 2] = [("10^3 accounts", 1_000), ("10^5 accounts", 100_000)];
/// Postings of a round: few in comparison with the smallest history.
const POSTINGS: u64 = 5_000;
/// Connections of the clients.
const CONNECTIONS: usize = 64;
/// Connections while the history is written.
const FILLING_CONNECTIONS: usize = 256;
/// The history is posted in runs to one account, which share commits: it takes minutes instead of hours.
const RUN: u64 = 100;
/// Postings whose storage operations are counted, and the connections of their requests.
const COUNTED: u64 = 2_000;

/// The cost may grow by a fifth.
const fn goal(measure: Measure) -> GoalOf {
    (HISTORIES[0].0, measure, Goal::TimesTheOtherAtMost(HISTORIES[2].0, 120))
}

/// Measures SQLite.
pub async fn measure_embedded(options: &Options, machine: &Machine) {
    let mut report = Report::of("growth-embedded");
    for (name, accounts) in counts_of(options) {
        let mut banks = Vec::new();
        for (size, history) in HISTORIES {
            let history = options.transactions(history);
            let arm = arms::embedded(machine.directory(), Way::Waiting).await;
            let accounts = arm.open(accounts).await;
            eprintln!("growth: {name}, {history} transactions of history are being posted");
            fill(&arm, &accounts, RUN, FILLING_CONNECTIONS, history).await;
            banks.push((size, (arm, accounts)));
        }
        let postings = options.transactions(POSTINGS);
        let run = async |(arm, accounts): &(Arm, Vec<AccountKey>)| times(arm, accounts, postings).await;
        let series = interleave(&format!("growth, {name}"), options.rounds(), &banks, machine, run).await;
        let goals: Vec<GoalOf> = [WAITING, QUEUED].into_iter().flat_map(|(_, it)| it).map(goal).collect();
        report.add(name, &series, &goals);
    }
    report.finish(machine);
}

/// Measures Azurite.
pub async fn measure_azure(options: &Options, machine: &Machine) {
    let mut report = Report::of("growth-azure");
    for (name, accounts) in counts_of(options) {
        let (arm, wire) = arms::azure_counted(machine.directory(), Way::Queued).await;
        let accounts = arm.open(accounts).await;
        let mut there = 0;
        let mut samples = Vec::new();
        let histories = HISTORIES.into_iter().rev().filter(|(_, history)| *history <= options.transactions);
        for (size, history) in histories {
            let history = options.transactions(history);
            eprintln!("growth: {name}, {history} transactions of history are being posted");
            fill(&arm, &accounts, RUN, FILLING_CONNECTIONS, history.saturating_sub(there)).await;
            there = history;
            // The measured accounts are warm, whichever accounts were used before.
            let some = accounts.get(..options.accounts(ACCOUNTS[0].1)).expect("enough accounts");
            let counted = options.transactions(COUNTED);
            drop(storage_cost(&arm, some, counted, &wire).await);
            let sample = storage_cost(&arm, some, counted, &wire).await;
            eprintln!("growth: {name}, {size}: {sample:?}");
            samples.push((size, sample));
        }
        samples.reverse();
        report.add(name, &Series::of_round(samples), &[OPERATIONS, BYTES].map(goal));
    }
    report.finish(machine);
}

/// Parses a number of accounts: one of the numbers that are measured.
///
/// # Errors
///
/// The text is another number, or no number.
pub fn number_of_accounts(asked: &str) -> Result<usize, String> {
    let measured = ACCOUNTS.map(|(_, count)| count);
    let found = measured.into_iter().find(|count| asked.parse() == Ok(*count));
    found.ok_or_else(|| format!("must be one of {measured:?}"))
}

fn counts_of(options: &Options) -> impl Iterator<Item = (&'static str, usize)> {
    let only = options.accounts;
    let selected = ACCOUNTS.into_iter().filter(move |(_, count)| only.is_none_or(|only| only == *count));
    selected.map(|(name, count)| (name, options.accounts(count)))
}

/// Measures the time of that many postings in each way.
async fn times(arm: &Arm, accounts: &[AccountKey], postings: u64) -> Sample {
    let mut sample = Sample::new();
    // The worker counts a posting shortly after a waiting client has read it, so the queued ones come first.
    for (way, [time, processor]) in [QUEUED, WAITING] {
        let deposits = Traffic::deposits(&arm.target, accounts, way);
        let cost = post(arm, deposits, CONNECTIONS, Until::Sent(postings)).await;
        sample.extend([(time, cost.each_ns(cost.took)), (processor, cost.processor_each_ns())]);
    }
    sample
}

/// Measures the storage operations of postings, including the retries after refusals of the emulator.
async fn storage_cost(arm: &Arm, accounts: &[AccountKey], counted: u64, wire: &dyn Fn() -> u64) -> Sample {
    let wire_before = wire();
    let posting = async {
        fill(arm, accounts, 1, CONNECTIONS, counted).await;
        counted
    };
    let cost = cost(arm, posting).await;
    let bytes = wire().saturating_sub(wire_before);
    Sample::from([(OPERATIONS, cost.operations_each()), (BYTES, cost.each(bytes))])
}
