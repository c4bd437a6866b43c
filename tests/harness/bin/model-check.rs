//! Visits every state of the models of accepting and posting, and of the order numbers, within larger
//! bounds than the tests have time for.
//!
//! `cargo run --release -p postonce-tests --bin model-check -- [--bounds small|large] [--threads N]`
//!
//! Prints for each run how many states it has seen and how long that took; ends with code 1 and the
//! steps that lead there when a promise is broken. Nothing is random: a run always visits the same.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use postonce_tests::model::bounds::{LARGE, Run, SMALL};
use postonce_tests::model::explore::Figures;

/// Checks the models of Postonce exhaustively.
#[derive(Parser)]
struct Arguments {
    /// How far to go.
    #[arg(long, value_enum, default_value_t = Bounds::Large)]
    bounds: Bounds,
    /// Threads of the checker; by default one for each core.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bounds {
    /// What every run of the tests visits: seconds.
    Small,
    /// Minutes, and some gigabytes of memory.
    Large,
}

fn main() -> ExitCode {
    let Arguments { bounds, threads } = Arguments::parse();
    let threads = threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let runs = match bounds {
        Bounds::Small => SMALL,
        Bounds::Large => LARGE,
    };
    let mut total = Figures::default();
    for run in runs {
        match check(run, threads) {
            Ok(figures) => {
                println!("{}: {figures}", run.about);
                total = total.with(&figures);
            }
            Err(findings) => {
                println!("{}: {findings}", run.about);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("All promises hold. {} runs: {total}", runs.len());
    ExitCode::SUCCESS
}

/// One run with a line that says how far it is.
fn check(run: &Run, threads: usize) -> Result<Figures, String> {
    let line = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {prefix}: {msg}").expect("a sound template");
    line.set_style(style);
    line.set_prefix(run.about);
    line.enable_steady_tick(Duration::from_millis(200));
    let checked = run.exhaust(threads, |figures| line.set_message(figures.to_string()));
    line.finish_and_clear();
    checked
}
