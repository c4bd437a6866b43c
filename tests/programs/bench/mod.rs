//! Cost and speed of the bank, measured on this machine with the real processes, in comparison with the
//! alternatives that users could choose.
//!
//! `cargo run --release --bin postonce-tests -- bench [scenario…]`; `--help` lists the scenarios.
//!
//! Arms run in turns, and each round is compared by itself: a ratio is of figures that were measured within
//! seconds of each other. The bank has two arms: clients that wait until their deposit is posted, and clients whose
//! deposits are queued. Store, bank, peers and clients share one machine, so the figures show how the arms
//! compare, and not what a deployment can do. Goals are printed beside the figures.

mod arm;
mod arms;
mod azure;
mod backlog;
mod backup;
mod batch;
mod consoles;
mod embedded;
mod figures;
mod flood;
mod gate;
mod growth;
mod idle;
mod latency;
mod load;
mod machine;
mod memory;
mod operations;
mod order_numbers;
mod prelude;
mod report;
mod rounds;
mod throughput;
mod traces;
mod wake;

use std::time::Duration;

use clap::{Args, ValueEnum};

use machine::Machine;
use postonce_tests::storage_proxy::Likeness;

/// With `--smoke`, durations, accounts and transactions are divided by this.
const SMOKE_DIVISOR: u32 = 20;

/// The scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Single deposits to 10,000 accounts on Azurite, beside the classic design
    AzureSpread,
    /// Single deposits to 10 accounts on Azurite, beside the classic design
    AzureHot,
    /// Single deposits to 10,000 accounts on SQLite, beside PostgreSQL
    EmbeddedSpread,
    /// Single deposits to 10 accounts on SQLite, beside PostgreSQL
    EmbeddedHot,
    /// A batch of a million items to 1,000 accounts and to a million, on SQLite, beside PostgreSQL and plain inserts
    BatchEmbedded,
    /// Batches on Azurite: storage operations, and one, two and four worker processes
    BatchAzure,
    /// Latency under an open loop at parts of the capacity, on both stores, beside both peers
    Latency,
    /// Order numbers of one process and of a hundred, beside the original algorithm: takes 10 minutes
    OrderNumbers,
    /// Time of a posting with a large history and many accounts, on SQLite
    GrowthEmbedded,
    /// Storage operations of the same on Azurite: takes an hour for each number of accounts
    GrowthAzure,
    /// Memory of the processes, on both stores, over a million transactions
    Memory,
    /// Storage operations of a posting on Azurite by kind, cold and warm, with one and with two web processes
    Operations,
    /// A backup of 100,000 transactions on Azurite, and its restore on SQLite
    Backup,
    /// What open pages of the console cost on SQLite
    Consoles,
    /// What traces cost on SQLite: none, a tenth and all are exported
    Traces,
    /// One partner floods a process on SQLite, and another one works
    Flood,
    /// From acceptance to posting after idleness, beside a worker that polls
    Wake,
    /// A cold worker and a large backlog: depth and receivers over time
    Backlog,
    /// From the release of the gate to the first posting, for each of four workers
    Gate,
    /// Storage operations of idle processes in a day: takes 45 minutes
    Idle,
}

/// Measures the bank, and the alternatives that users could choose
#[derive(Debug, Args)]
pub struct Arguments {
    /// The scenarios to run
    #[arg(value_enum, required = true)]
    scenarios: Vec<Scenario>,
    #[command(flatten)]
    options: Options,
}

/// The extent of the measurements.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each of them runs every arm once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measure only the bank
    #[arg(long = "without-peers", action = clap::ArgAction::SetFalse)]
    peers: bool,
    /// Measure only the peers, in the batch scenario on SQLite
    #[arg(long = "without-bank", action = clap::ArgAction::SetFalse, conflicts_with = "peers")]
    bank: bool,
    /// Run only the phases with this number of connections
    #[arg(long)]
    connections: Option<usize>,
    /// Run only the growth scenarios with this number of accounts
    #[arg(long, value_parser = growth::number_of_accounts)]
    accounts: Option<usize>,
    /// Most transactions of history, in the growth scenario on Azurite and in the memory scenario
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(growth::HISTORY_MIN..))]
    transactions: u64,
    /// Items of each batch, instead of the number of the scenario
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    items: Option<u64>,
    /// Test the benchmark and not the bank: one round, with a twentieth of the time, of the accounts and of the
    /// transactions. Has no effect on order-numbers, gate and idle
    #[arg(long)]
    smoke: bool,
    /// Give Azurite the rules, the limits and the latency of Azure, by proxies in front of it; without this, it has
    /// none of them
    #[arg(long)]
    azure_latency: bool,
}

impl Options {
    /// The number of rounds.
    fn rounds(&self) -> usize {
        if self.smoke { 1 } else { self.rounds }
    }

    /// The duration of a load.
    fn lasting(&self, full: Duration) -> Duration {
        full.checked_div(if self.smoke { SMOKE_DIVISOR } else { 1 }).unwrap_or(full)
    }

    /// A number of accounts.
    fn accounts(&self, full: usize) -> usize {
        usize::try_from(self.transactions(u64::try_from(full).unwrap_or(u64::MAX))).unwrap_or(full)
    }

    /// The number of items of a batch.
    fn items(&self, full: u64) -> u64 {
        self.transactions(self.items.unwrap_or(full))
    }

    /// A number of transactions.
    fn transactions(&self, full: u64) -> u64 {
        full.div_ceil(if self.smoke { SMOKE_DIVISOR.into() } else { 1 })
    }
}

/// Measures the scenarios, one after the other.
#[tokio::main]
pub async fn run(Arguments { scenarios, options }: Arguments) {
    if options.azure_latency { Likeness::RulesAndLatency } else { Likeness::Emulator }.choose();
    let machine = Machine::here();
    for scenario in scenarios {
        match scenario {
            Scenario::AzureSpread => azure::measure(&azure::SPREAD, &options, &machine).await,
            Scenario::AzureHot => azure::measure(&azure::HOT, &options, &machine).await,
            Scenario::EmbeddedSpread => embedded::measure(&embedded::SPREAD, &options, &machine).await,
            Scenario::EmbeddedHot => embedded::measure(&embedded::HOT, &options, &machine).await,
            Scenario::BatchEmbedded => batch::measure_embedded(&options, &machine).await,
            Scenario::BatchAzure => batch::measure_azure(&options, &machine).await,
            Scenario::Latency => latency::measure(&options, &machine).await,
            Scenario::OrderNumbers => order_numbers::measure(&options, &machine).await,
            Scenario::GrowthEmbedded => growth::measure_embedded(&options, &machine).await,
            Scenario::GrowthAzure => growth::measure_azure(&options, &machine).await,
            Scenario::Memory => memory::measure(&options, &machine).await,
            Scenario::Operations => operations::measure(&options, &machine).await,
            Scenario::Backup => backup::measure(&options, &machine).await,
            Scenario::Consoles => consoles::measure(&options, &machine).await,
            Scenario::Traces => traces::measure(&options, &machine).await,
            Scenario::Flood => flood::measure(&options, &machine).await,
            Scenario::Wake => wake::measure(options.transactions(wake::SAMPLES)).await,
            Scenario::Backlog => backlog::measure(options.transactions(backlog::TRANSACTIONS)).await,
            Scenario::Gate => gate::measure().await,
            Scenario::Idle => idle::measure(idle::MINUTES, idle::MINUTES_BEFORE).await,
        }
    }
}
