//! What the bank costs and how fast it is, measured on this machine with the real processes, beside what
//! a user would pick instead.
//!
//! `cargo run --release -p postonce-tests --bin bench -- [scenario…]`; `--help` lists the scenarios.
//!
//! Arms take turns, and each round is a pair of its own: quotients are of figures that were taken within
//! seconds of each other. Store, bank, peers and clients share one machine, so figures say how things
//! compare, and not what a deployment can do. A goal stands beside its figure.

mod arm;
mod arms;
mod azure;
mod backlog;
mod embedded;
mod figures;
mod gate;
mod growth;
mod idle;
mod latency;
mod load;
mod machine;
mod memory;
mod operations;
mod order_numbers;
mod report;
mod rounds;
mod throughput;
mod wake;

use clap::{Parser, ValueEnum};

use machine::Machine;

/// The same allocator as all arms have: clients should cost little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Singles to 10,000 accounts on Azurite, beside the classic design
    AzureSpread,
    /// Singles to 10 accounts on Azurite, beside the classic design
    AzureHot,
    /// Singles to 10,000 accounts on SQLite, beside PostgreSQL
    EmbeddedSpread,
    /// Singles to 10 accounts on SQLite, beside PostgreSQL
    EmbeddedHot,
    /// Open loop at parts of the capacity, on both stores, beside both peers
    Latency,
    /// Order numbers of one process and of a hundred, beside the original algorithm: takes 10 minutes
    OrderNumbers,
    /// What a posting costs beside much history and many accounts, on SQLite
    GrowthEmbedded,
    /// The same on Azurite: takes an hour for each number of accounts
    GrowthAzure,
    /// Memory of the processes, on both stores, over a million transactions
    Memory,
    /// Storage operations of a posting on Azurite by kind, cold and warm; postings a second on both stores
    Operations,
    /// Accept to posted after idleness, beside a worker that polls
    Wake,
    /// A cold worker and much work: depth and receivers over time
    Backlog,
    /// Release to first posting, for each of four workers
    Gate,
    /// Storage operations of idle processes, a day: takes 20 minutes
    Idle,
}

/// Measures the bank beside what a user would pick instead.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Cli {
    /// What to measure
    #[arg(value_enum, required = true)]
    scenarios: Vec<Scenario>,
    #[command(flatten)]
    wanted: Wanted,
}

/// How much is measured.
#[derive(Debug, clap::Args)]
pub struct Wanted {
    /// Rounds, each of which runs every arm once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only the bank
    #[arg(long = "without-peers", action = clap::ArgAction::SetFalse)]
    peers: bool,
    /// Only the phases with so many connections
    #[arg(long)]
    connections: Option<usize>,
    /// Only with so many accounts, for what grows
    #[arg(long, value_parser = growth::number_of_accounts)]
    accounts: Option<usize>,
    /// Most transactions of history, for what grows with it on Azurite and for memory
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(growth::HISTORY_MIN..))]
    transactions: u64,
}

#[tokio::main]
async fn main() {
    let Cli { scenarios, wanted } = Cli::parse();
    let machine = Machine::here();
    for scenario in scenarios {
        match scenario {
            Scenario::AzureSpread => azure::measure(&azure::SPREAD, &wanted, &machine).await,
            Scenario::AzureHot => azure::measure(&azure::HOT, &wanted, &machine).await,
            Scenario::EmbeddedSpread => embedded::measure(&embedded::SPREAD, &wanted, &machine).await,
            Scenario::EmbeddedHot => embedded::measure(&embedded::HOT, &wanted, &machine).await,
            Scenario::Latency => latency::measure(&wanted, &machine).await,
            Scenario::OrderNumbers => order_numbers::measure(&wanted, &machine).await,
            Scenario::GrowthEmbedded => growth::measure_embedded(&wanted, &machine).await,
            Scenario::GrowthAzure => growth::measure_azure(&wanted, &machine).await,
            Scenario::Memory => memory::measure(&wanted, &machine).await,
            Scenario::Operations => operations::measure().await,
            Scenario::Wake => wake::measure(wake::SAMPLES).await,
            Scenario::Backlog => backlog::measure(backlog::TRANSACTIONS).await,
            Scenario::Gate => gate::measure().await,
            Scenario::Idle => idle::measure(idle::MINUTES, idle::MINUTES_BEFORE).await,
        }
    }
}
