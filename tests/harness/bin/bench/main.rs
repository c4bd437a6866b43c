//! What the bank costs and how fast it is, measured on this machine with the real processes.
//!
//! `cargo run --release -p postonce-tests --bin bench -- <what>`
//!
//! | what | prints |
//! |---|---|
//! | `operations [azurite\|sqlite [<queue count>]]` | storage operations of a posting, and postings a second; without a word, this |
//! | `wake [<samples>]` | accept to posted after idleness, beside a worker that polls |
//! | `backlog [<transactions>]` | a cold worker and much work: depth and receivers over time |
//! | `gate` | release to first posting, for each of four workers |
//! | `idle [<minutes> [<minutes before>]]` | storage operations of idle processes, a day |
//!
//! Store, bank and clients share one machine, so figures say how versions compare, and not what a
//! deployment can do. A goal stands beside its figure.

mod backlog;
mod figures;
mod gate;
mod idle;
mod operations;
mod wake;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match measure(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("{refusal}");
            ExitCode::FAILURE
        }
    }
}

/// Measures what the arguments name.
async fn measure(arguments: &[&str]) -> Result<(), String> {
    match arguments {
        [] => operations::measure(&[]).await,
        ["operations", rest @ ..] => operations::measure(rest).await,
        ["wake"] => wake::measure(wake::SAMPLES).await,
        ["wake", samples] => wake::measure(number("samples", samples)?).await,
        ["backlog"] => backlog::measure(backlog::TRANSACTIONS).await,
        ["backlog", transactions] => backlog::measure(number("transactions", transactions)?).await,
        ["gate"] => gate::measure().await,
        ["idle"] => idle::measure(idle::MINUTES, idle::MINUTES_BEFORE).await,
        ["idle", minutes] => idle::measure(number("minutes", minutes)?, idle::MINUTES_BEFORE).await,
        ["idle", minutes, before] => {
            idle::measure(number("minutes", minutes)?, number_or_zero("minutes before", before)?).await
        }
        other => Err(format!(
            "{other:?} cannot be measured; there are operations [azurite|sqlite [<queue count>]], \
             wake [<samples>], backlog [<transactions>], gate, idle [<minutes> [<minutes before>]]"
        )),
    }
}

fn number(what: &str, text: &str) -> Result<u32, String> {
    match number_or_zero(what, text)? {
        0 => Err(format!("{what} must be at least 1")),
        number => Ok(number),
    }
}

fn number_or_zero(what: &str, text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{what} must be a whole number, not {text:?}"))
}
