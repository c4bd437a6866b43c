//! Floods a bank with each kind of request, and prints a table: the largest memory of the process, and the time of requests of
//! another partner, compared with a flood of another process on the same machine.
//!
//! `cargo run --release --bin postonce-tests -- floods [--only livez] [--web PATH]`
//!
//! Exits with code 1 when a bound is exceeded.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use postonce_tests::binaries::Binary;
use postonce_tests::floods::{Answer, Flood, FloodBank, MEMORY_KIB_MAX, Way};

/// Largest quotient of the times, in hundredths.
const PERCENT_MAX: u64 = 200;
/// Times below this one are no sign of anything on a busy machine.
const AT_ONCE_US: u64 = 5_000;

/// Floods a bank with each kind of request, and prints its memory and the time of others
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only floods whose names contain this text
    #[arg(long, default_value = "")]
    only: String,
    /// How long each flood lasts, in seconds
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Connections of a flood over HTTP/1.1, and of the larger one over HTTP/2
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// An executable of the web process that was built before, instead of a new one
    #[arg(long)]
    web: Option<PathBuf>,
    /// Only the memory, without the requests to another process
    #[arg(long)]
    memory_only: bool,
}

/// Runs all floods, and prints a line for each.
#[tokio::main]
pub async fn run(arguments: Arguments) -> ExitCode {
    if let Some(web) = &arguments.web {
        Binary::use_web(web.clone());
    }
    println!(
        "flood; connections; sent; largest memory; p99 of another partner, when another process is flooded"
    );
    let (mut failed, mut floods) = (0_u32, 0_u32);
    let lasting = Duration::from_secs(arguments.seconds);
    let many = usize::try_from(arguments.connections).unwrap_or(usize::MAX);
    for (way, way_name) in Way::ALL {
        let sizes = if way == Way::Http1 { vec![many] } else { vec![1, many.div_ceil(4)] };
        for (answer, answer_name) in Answer::ALL {
            for has_key in [false, true] {
                let name =
                    format!("{answer_name}, {way_name}, {} a key", if has_key { "with" } else { "without" });
                if !name.contains(&arguments.only) {
                    continue;
                }
                for connections in sizes.iter().copied() {
                    let flood = Flood { answer, way, has_key, connections, lasting };
                    floods = floods.saturating_add(1);
                    // Memory that a flood needed is kept for a while, so each has a process of its own.
                    let (bank, other) = (FloodBank::start().await, FloodBank::start().await);
                    if !holds(flood, &name, (&bank, &other), arguments.memory_only).await {
                        failed = failed.saturating_add(1);
                    }
                }
            }
        }
    }
    println!("{failed} of {floods} floods exceed a bound");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a flood and prints it. Returns whether the bounds hold.
async fn holds(flood: Flood, name: &str, banks: (&FloodBank, &FloodBank), memory_only: bool) -> bool {
    let (bank, other) = banks;
    let control = if memory_only { None } else { Some(flood.run(other, bank).await.latency) };
    let outcome = flood.run(bank, bank).await;
    let (memory, latency) = (outcome.memory_kib, outcome.latency);
    let is_fast = control.is_none_or(|control| {
        latency.p99_us <= AT_ONCE_US
            || latency.p99_us.saturating_mul(100) <= control.p99_us.saturating_mul(PERCENT_MAX)
    });
    let (is_small, is_served) = (memory <= MEMORY_KIB_MAX, latency.failed == 0);
    let marks = [(is_small, "MEMORY"), (is_fast, "TIME"), (is_served, "FAILED")];
    let marks: Vec<&str> = marks.into_iter().filter(|(holds, _)| !holds).map(|(_, mark)| mark).collect();
    println!(
        "{name}; {}; {} KiB; {} MiB; {} us, {} us; {} failed {}",
        flood.connections,
        outcome.sent.div_euclid(1024),
        memory.div_euclid(1024),
        latency.p99_us,
        control.map_or(0, |control| control.p99_us),
        latency.failed,
        marks.join(" ")
    );
    marks.is_empty()
}
