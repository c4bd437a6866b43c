//! Visits every state of the models of the protocol and of the order numbers, within larger bounds than the
//! tests use.
//!
//! `cargo run --release --bin postonce-tests -- model-check [--bounds small|large] [--threads N]`
//!
//! Prints the number of visited states and the time of each run. If a property is violated, prints the
//! steps that lead to the violation and exits with code 1. Nothing is random: a run always visits the same
//! states.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use postonce_tests::model::bounds::{LARGE, Run, SMALL};
use postonce_tests::model::explore::Figures;

/// Checks the models of Postonce exhaustively
#[derive(Debug, Args)]
pub struct Arguments {
    /// The bounds of the exploration.
    #[arg(long, value_enum, default_value_t = Bounds::Large)]
    bounds: Bounds,
    /// Number of threads; by default one for each core.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bounds {
    /// The bounds of the tests, which take seconds.
    Small,
    /// Larger bounds, which take minutes and some gigabytes of memory.
    Large,
}

/// Checks every run within the bounds.
pub fn run(Arguments { bounds, threads }: &Arguments) -> ExitCode {
    let threads =
        (*threads).or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let runs = match bounds {
        Bounds::Small => SMALL,
        Bounds::Large => LARGE,
    };
    let mut total = Figures::default();
    for run in runs {
        match check(run, threads) {
            Ok(figures) => {
                println!("{}: {figures}", run.description);
                total = total.with(&figures);
            }
            Err(findings) => {
                println!("{}: {findings}", run.description);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("All properties hold. {} runs: {total}", runs.len());
    ExitCode::SUCCESS
}

/// Checks one run, and shows its progress.
fn check(run: &Run, threads: usize) -> Result<Figures, String> {
    let line = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}").expect("a valid template");
    line.set_style(style);
    line.set_prefix(run.description);
    line.enable_steady_tick(Duration::from_millis(200));
    let checked = run.exhaust(threads, |figures| line.set_message(figures.to_string()));
    line.finish_and_clear();
    checked
}
