//! Whether a posting costs more when there is much history, and when there are many accounts.
//!
//! On SQLite it is time: banks with different histories stand side by side and take turns, so that a
//! change of the machine meets all of them. On Azurite it is storage operations and bytes: the emulator
//! itself slows down with what it holds, so that its time says nothing about a storage service.

use postonce_shared::domain::ids::AccountKey;

use crate::arm::Arm;
use crate::load::{Traffic, Until};
use crate::machine::Machine;
use crate::report::{Goal, Report};
use crate::rounds::{Measure, Sample, Series, Unit, interleave};
use crate::throughput::{OPERATIONS, PROCESSOR, fill, post, spent};
use crate::{Wanted, arms};

const TIME: Measure = Measure::of("time a posting", Unit::Nanoseconds);
const BYTES: Measure = Measure::of("bytes a posting", Unit::Bytes);

/// Transactions of history, the most first: it is what the others are compared with.
const HISTORIES: [(&str, u64); 3] = [("10^6", 1_000_000), ("10^5", 100_000), ("10^4", HISTORY_MIN)];
/// The least history: without it there is nothing to compare with.
pub const HISTORY_MIN: u64 = 10_000;
/// Accounts that they are spread over.
const ACCOUNTS: [(&str, usize); 2] = [("10^3 accounts", 1_000), ("10^5 accounts", 100_000)];
/// Postings of a round: few beside the smallest history.
const POSTINGS: u64 = 5_000;
/// Connections of the clients.
const CONNECTIONS: usize = 64;
/// Connections while history is made.
const FILLING_CONNECTIONS: usize = 256;
/// History comes many at a time to one account, so that they share its commits: minutes instead of hours.
const RUN: u64 = 100;
/// Postings whose storage operations are counted, and the connections that they come over.
const COUNTED: u64 = 2_000;

/// Time may grow by a fifth.
const GOALS: [(Measure, Goal); 2] =
    [(TIME, Goal::TimesTheOtherAtMost(120)), (PROCESSOR, Goal::TimesTheOtherAtMost(120))];

/// Measures SQLite.
pub async fn measure_embedded(wanted: &Wanted, machine: &Machine) {
    let mut report = Report::of("growth-embedded");
    for (name, accounts) in counts_of(wanted) {
        let mut banks = Vec::new();
        for (size, history) in HISTORIES {
            let arm = arms::embedded(machine.directory()).await;
            let accounts = arm.open(accounts).await;
            eprintln!("growth: {name}, {history} transactions of history come");
            fill(&arm, &accounts, RUN, FILLING_CONNECTIONS, history).await;
            banks.push((size, (arm, accounts)));
        }
        let run = async |(arm, accounts): &(Arm, Vec<AccountKey>)| time(arm, accounts).await;
        let series = interleave(&format!("growth, {name}"), wanted.rounds, &banks, machine, run).await;
        report.add(name, &series, &GOALS);
    }
    report.finish(machine);
}

/// Measures Azurite.
pub async fn measure_azure(wanted: &Wanted, machine: &Machine) {
    let mut report = Report::of("growth-azure");
    for (name, accounts) in counts_of(wanted) {
        let (arm, wire) = arms::azure_counted(machine.directory()).await;
        let accounts = arm.open(accounts).await;
        let mut there = 0;
        let mut samples = Vec::new();
        let histories = HISTORIES.into_iter().rev().filter(|(_, history)| *history <= wanted.transactions);
        for (size, history) in histories {
            eprintln!("growth: {name}, {history} transactions of history come");
            fill(&arm, &accounts, RUN, FILLING_CONNECTIONS, history.saturating_sub(there)).await;
            there = history;
            // The accounts that are asked are warm, whatever was asked of them before.
            let some = accounts.get(..ACCOUNTS[0].1).expect("there are as many accounts");
            drop(cost(&arm, some, &wire).await);
            let sample = cost(&arm, some, &wire).await;
            eprintln!("growth: {name}, {size}: {sample:?}");
            samples.push((size, sample));
        }
        samples.reverse();
        let goals = [OPERATIONS, BYTES].map(|it| (it, Goal::TimesTheOtherAtMost(120)));
        report.add(name, &Series::of_round(samples), &goals);
    }
    report.finish(machine);
}

/// How many accounts are asked for: one of the numbers that are measured.
///
/// # Errors
///
/// It is another, or no number.
pub fn number_of_accounts(asked: &str) -> Result<usize, String> {
    let measured = ACCOUNTS.map(|(_, count)| count);
    let found = measured.into_iter().find(|count| asked.parse() == Ok(*count));
    found.ok_or_else(|| format!("must be one of {measured:?}"))
}

fn counts_of(wanted: &Wanted) -> impl Iterator<Item = (&'static str, usize)> {
    let only = wanted.accounts;
    ACCOUNTS.into_iter().filter(move |(_, count)| only.is_none_or(|only| only == *count))
}

/// What postings cost in time.
async fn time(arm: &Arm, accounts: &[AccountKey]) -> Sample {
    let deposits = Traffic::deposits(&arm.target, accounts);
    let spent = post(arm, deposits, CONNECTIONS, Until::Sent(POSTINGS)).await;
    Sample::from([(TIME, spent.each_ns(spent.took)), (PROCESSOR, spent.processor_each_ns())])
}

/// What postings cost the storage, with what is refused while the emulator is away, and asked for again.
async fn cost(arm: &Arm, accounts: &[AccountKey], wire: &dyn Fn() -> u64) -> Sample {
    let wire_before = wire();
    let posting = async {
        fill(arm, accounts, 1, CONNECTIONS, COUNTED).await;
        COUNTED
    };
    let spent = spent(arm, posting).await;
    let bytes = wire().saturating_sub(wire_before);
    Sample::from([(OPERATIONS, spent.operations_each()), (BYTES, spent.each(bytes))])
}
