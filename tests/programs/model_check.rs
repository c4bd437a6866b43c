//! Visits every state of the models: `cargo run --release --bin postonce-tests -- model-check [--bounds small|large]`.
//!
//! Prints the number of visited states of each run. If a property is violated, prints the steps that lead to the
//! violation and exits with code 1. Nothing is random: a run always visits the same states.

use std::process::ExitCode;

use clap::Args;
use postonce_tests::model::explore::Bounds;
use postonce_tests::model::runs;

/// Checks the models of Postonce exhaustively
#[derive(Debug, Args)]
pub struct Arguments {
    /// The bounds of the exploration.
    #[arg(long, value_enum, default_value_t = Bounds::Large)]
    bounds: Bounds,
}

/// Checks every run within the bounds.
pub fn run(Arguments { bounds }: &Arguments) -> ExitCode {
    let runs = runs(*bounds);
    let mut total = 0_usize;
    for run in &runs {
        match run.check() {
            Ok(explored) => {
                println!("{}: {} states", run.description, explored.states);
                total = total.saturating_add(explored.states);
            }
            Err(finding) => {
                println!("{}: {finding}", run.description);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("All properties hold. {} runs: {total} states", runs.len());
    ExitCode::SUCCESS
}
