//! The programs of the tests, in one executable: the benchmark and the services that it compares the bank with, the
//! simulation, the model check, chaos, floods, and a worker that crashes.
//!
//! `cargo run --release --bin postonce-tests -- --help` lists them.

mod bench;
mod chaos;
mod crashing_worker;
mod floods;
mod model_check;
mod peers;
mod simulate;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use peers::{classic, postgres};

/// The allocator of the bank. The services that the bank is compared with have the same one, and the clients of the
/// benchmark should cost little.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The programs of the tests of Postonce
#[derive(Debug, Parser)]
#[command(name = "postonce-tests")]
enum Program {
    Bench(bench::Arguments),
    Simulate(simulate::Options),
    ModelCheck(model_check::Arguments),
    Chaos(chaos::Arguments),
    Floods(floods::Arguments),
    PeerClassic(classic::Arguments),
    PeerPostgres(Box<postgres::Settings>),
}

fn main() -> anyhow::Result<ExitCode> {
    let matches = Program::command().subcommand(crashing_worker::command()).get_matches();
    if let Some((crashing_worker::NAME, matches)) = matches.subcommand() {
        return crashing_worker::run(matches);
    }
    match Program::from_arg_matches(&matches)? {
        Program::Bench(arguments) => bench::run(arguments),
        Program::Simulate(options) => simulate::run(&options)?,
        Program::ModelCheck(arguments) => return Ok(model_check::run(&arguments)),
        Program::Floods(arguments) => return Ok(floods::run(arguments)),
        Program::Chaos(arguments) => return Ok(chaos::run(arguments)),
        Program::PeerClassic(arguments) => classic::run(arguments)?,
        Program::PeerPostgres(settings) => postgres::run(*settings)?,
    }
    Ok(ExitCode::SUCCESS)
}
