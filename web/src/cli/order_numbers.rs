//! `postonce-web order-numbers advance`: prepares a store that went back in time, before the first process starts.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use postonce_shared::adapters::sqlite::restore::NUMBERS_PER_SECOND_MAX;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::change::GateAct;
use postonce_shared::domain::ids::OrderNumber;
use postonce_shared::oversight::audit::AuditTarget;
use postonce_shared::oversight::failover::{LossBound, StoreState};

/// Subcommands of `order-numbers`.
#[derive(Debug, Clone, Subcommand)]
pub enum OrderNumbersCommand {
    /// Skip all order numbers that may have been issued, and hold the gate, after the storage went back in time: a
    /// failover to another region, or restored tables. All processes must be stopped. Prints the plan; with --yes,
    /// carries it out
    Advance(Advance),
}

/// Arguments of `order-numbers advance`.
#[derive(Debug, Clone, Args)]
pub struct Advance {
    /// Seconds before the failure of which writes may be missing: with Azure, the time since the "last sync time" of the
    /// storage account
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    window_s: u64,
    /// Most postings in a second, of all processes together
    #[arg(long, value_name = "NUMBER", default_value_t = NUMBERS_PER_SECOND_MAX,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    postings_per_second: u64,
    /// Most processes that ran at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    processes: u64,
    /// The highest order number that is known from elsewhere, such as the records of a partner
    #[arg(long, value_name = "ORDER_NUMBER", value_parser = parse_number)]
    at_least: Option<OrderNumber>,
    /// Continue although processes are registered as running: they were stopped less than 36 minutes ago, and could not
    /// remove their entries
    #[arg(long)]
    all_stopped: bool,
    /// Carry out the plan
    #[arg(long)]
    yes: bool,
}

fn parse_number(text: &str) -> Result<OrderNumber, String> {
    OrderNumber::parse(text).map_err(|invalid| invalid.to_string())
}

/// Prints the plan, and carries it out if requested.
///
/// # Errors
/// When the store cannot be read or written, processes may be running, or `--yes` is missing.
pub async fn run(
    OrderNumbersCommand::Advance(command): OrderNumbersCommand,
    bank: &Bank,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let Advance { window_s, postings_per_second, processes, at_least, all_stopped, yes } = command;
    let window = Duration::from_secs(window_s);
    let margin = LossBound { window, numbers_per_second: postings_per_second, processes }.numbers();
    let state = StoreState::read(&bank.store, &bank.world, at_least).await?;
    let register = state.advanced(at_least, margin)?;
    let number = |counter: u64| OrderNumber::from_counter(counter);
    match &state.register {
        Some(register) => writeln!(out, "register: the next order number is {}", number(register.next))?,
        None => writeln!(out, "register: missing or not readable")?,
    }
    match state.highest {
        Some(highest) => writeln!(out, "ledger: the highest order number is {highest}")?,
        None => writeln!(out, "ledger: nothing was posted")?,
    }
    writeln!(out, "plan: hold the gate, and continue at {}, after {margin} more", number(register.next))?;
    for process in &state.processes {
        writeln!(out, "registered as running: {} at {}", process.kind.code(), process.address)?;
    }
    if !state.processes.is_empty() && !all_stopped {
        bail!("nothing was changed: stop all processes; if they are stopped, use --all-stopped");
    }
    if !yes {
        bail!("nothing was changed: use --yes to carry out the plan");
    }
    let act = GateAct::by(bank.audit.command());
    let written = state.write(&bank.store, &bank.world, &register, &act).await;
    let on = AuditTarget::one("next", number(register.next));
    let gate = bank.audit.record_command("order_numbers.advance", on, written).await?;
    writeln!(
        out,
        "the gate is held (epoch {}); start the processes, check the ledger with `postonce-web verify`, enqueue lost work \
         with `postonce-web recover`, and release the gate",
        gate.epoch
    )?;
    Ok(())
}
