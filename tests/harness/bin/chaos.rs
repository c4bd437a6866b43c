//! Kills the processes of the bank for as long as it is told to, and audits what is left.
//!
//! `cargo run --release -p postonce-tests --bin chaos -- --store azurite --minutes 10 [--seed 7]`
//!
//! Exit code 1 when something was found.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use postonce_tests::chaos::Course;
use postonce_tests::scenario::Stand;

/// Kills web and worker processes at random, with a storage that fails at random, and audits the bank
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    /// The store under the bank
    #[arg(long)]
    store: StoreName,
    /// How long processes are killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// Decides everything that is random [default: a new one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StoreName {
    /// Azurite, behind a proxy that fails at random
    Azurite,
    /// One SQLite file
    Sqlite,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { store, minutes, seed } = Arguments::parse();
    let stand = match store {
        StoreName::Azurite => Stand::Azurite,
        StoreName::Sqlite => Stand::Sqlite,
    };
    let seed = seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is valid");
    let progress = ProgressBar::new_spinner().with_style(style);
    let duration = Duration::from_secs(minutes.saturating_mul(60));
    let report = Course::on(stand, seed, duration)
        .run(|report| {
            progress.set_message(report.line());
            progress.tick();
        })
        .await;
    progress.finish_and_clear();
    println!("{report}");
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
