//! Kills the processes of the bank at random for some time, and audits the bank afterwards.
//!
//! `cargo run --release --bin postonce-tests -- chaos --store azurite --minutes 10 [--seed 7]`
//!
//! Exits with code 1 when there are findings.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use postonce_tests::chaos::{BatchPlan, ChaosConfig};
use postonce_tests::scenario::StoreKind;

/// Kills web and worker processes at random, injects storage faults, and audits the bank
#[derive(Debug, Args)]
pub struct Arguments {
    /// The store of the bank
    #[arg(long)]
    store: StoreName,
    /// How long processes are killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// The number of batches that are sent meanwhile
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1000))]
    batches: u32,
    /// The number of items of each batch
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    items: u32,
    /// The visibility timeout of received messages, in seconds
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    visibility_timeout_s: u32,
    /// The seed of all random decisions [default: a new one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoreName {
    /// Azurite, behind a proxy that injects faults
    Azurite,
    /// One SQLite file
    Sqlite,
}

/// Runs it, and prints the report.
#[tokio::main]
pub async fn run(arguments: Arguments) -> ExitCode {
    let Arguments { store, minutes, batches, items, visibility_timeout_s, seed } = arguments;
    let store_kind = match store {
        StoreName::Azurite => StoreKind::Azurite,
        StoreName::Sqlite => StoreKind::Sqlite,
    };
    let seed = seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is valid");
    let progress = ProgressBar::new_spinner().with_style(style);
    let duration = Duration::from_secs(minutes.saturating_mul(60));
    let batches = BatchPlan { batches, items: usize::try_from(items).unwrap_or(usize::MAX) };
    let report = ChaosConfig { batches, visibility_timeout_s, ..ChaosConfig::on(store_kind, seed, duration) }
        .run(|report| {
            progress.set_message(report.line());
            progress.tick();
        })
        .await;
    progress.finish_and_clear();
    println!("{report}");
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
