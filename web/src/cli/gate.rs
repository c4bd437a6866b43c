//! `postonce-web gate …`: shows, holds and releases the gate. It works on the store, needs no running server, and notifies
//! the running processes like the same change over HTTP.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use postonce_schemas::json::{self as wire, GateChanged};
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::{Gate, GateState};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::audit::AuditTarget;
use postonce_worker::listening::gatekeeper::Gatekeeper;

use crate::admin::gate::GateService;
use crate::api::gate_report;
use crate::cli::operator::parse_reason;
use crate::cli::output::{EXIT_CODES, INCOMPLETE, json};

/// Subcommands of `gate`.
#[derive(Debug, Clone, Subcommand)]
pub enum GateCommand {
    /// Show whether the gate is held
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Hold the gate: nothing new is posted, and requests are still accepted. Waits for the answers of all processes
    #[command(after_help = EXIT_CODES)]
    Hold(Hold),
    /// Release the gate: all processes post at once. Waits for their answers
    #[command(after_help = EXIT_CODES)]
    Release(Release),
}

/// Arguments of `gate hold`.
#[derive(Debug, Clone, Args)]
pub struct Hold {
    /// Why the gate is held: text for the audit trail
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: String,
    /// Time at which the gate is released, such as 2026-11-23T06:00:00Z; by default an operator releases it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    release_at: Option<Timestamp>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `gate release`.
#[derive(Debug, Clone, Args)]
pub struct Release {
    /// Why the gate is released: text for the audit trail
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_time(text: &str) -> Result<Timestamp, &'static str> {
    Timestamp::parse(text).ok_or("must be a time of RFC 3339, such as 2026-11-23T06:00:00Z")
}

/// Runs a command and prints its result.
///
/// # Errors
/// When the gate cannot be read or changed.
pub async fn run(
    command: GateCommand,
    (bank, network): (&Bank, &PeerNetwork),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let service = GateService::new(bank, network, Gatekeeper::of(bank, false), None);
    match command {
        GateCommand::Show { json: as_json } => {
            let read = Gate::new(&bank.store, &bank.world).read().await;
            let value = read.context("the gate cannot be read, which counts as held")?;
            let gate = gate_report::gate(value);
            if as_json {
                json(&gate, out)?
            } else {
                writeln!(out, "{}", in_words(&gate))?
            }
            Ok(ExitCode::SUCCESS)
        }
        GateCommand::Hold(Hold { reason, release_at, json }) => {
            let now = service.now();
            ensure!(release_at.is_none_or(|at| at > now), "--release-at must be later than now, {now}");
            let state = GateState::Held { release_at };
            set(&service, bank, state, (Some(reason), json), out).await
        }
        GateCommand::Release(Release { reason, json }) => {
            set(&service, bank, GateState::Released, (reason, json), out).await
        }
    }
}

/// Changes the gate. If a process did not acknowledge it, the exit code says so.
async fn set(
    service: &GateService,
    bank: &Bank,
    state: GateState,
    (reason, as_json): (Option<String>, bool),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let changed = service.set(state).await.map(|(order, answers)| gate_report::changed(order, answers));
    let on = match &changed {
        Ok(changed) => AuditTarget::one("state", &changed.state).and("epoch", changed.epoch),
        Err(_) => AuditTarget::nothing(),
    };
    let on = reason.iter().fold(on, |on, reason| on.and("reason", reason));
    let changed = bank.audit.record_command("gate.change", on, changed).await;
    let changed =
        changed.context("the outcome of the change is unknown; it is safe to repeat the command")?;
    if as_json {
        json(&changed, out)?
    } else {
        print(&changed, out)?
    }
    let is_complete = changed.listeners.iter().all(|listener| listener.acknowledged);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

fn print(changed: &GateChanged, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let GateChanged { state, epoch, release_at, listeners } = changed;
    let (state, release_at) = (state.clone(), release_at.clone());
    let gate = wire::Gate { state, epoch: *epoch, release_at, clock_problem: None };
    writeln!(out, "{}", in_words(&gate))?;
    for listener in listeners {
        let answer = match (listener.acknowledged, listener.epoch, &listener.problem) {
            (true, ..) => "acknowledged".to_owned(),
            (false, Some(epoch), _) => format!("applies epoch {epoch}"),
            (false, None, Some(problem)) => format!("{problem} (seen at {})", listener.seen_at),
            (false, None, None) => "does not answer".to_owned(),
        };
        writeln!(out, "  process {} at {}  {answer}", listener.listener, listener.address)?;
    }
    Ok(())
}

fn in_words(gate: &wire::Gate) -> String {
    let until = gate.release_at.iter().map(|at| format!(" until {at}")).collect::<String>();
    format!("the gate is {}{until} (epoch {})", gate.state, gate.epoch)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::bank::BankSettings;
    use postonce_shared::cluster::completions::Completions;
    use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
    use postonce_shared::ports::world::World;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: GateCommand,
    }

    #[tokio::test]
    async fn the_gate_is_held_and_released_with_a_row_of_the_audit_trail() {
        let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(Arc::clone(&world));
        let network = PeerNetwork::new(&store, &world, DoorbellSecret::new(None)).unwrap();
        let links = network.links(&Arc::new(Completions::default()));
        let bank = Bank::linked(store, world, links, BankSettings::of_queues(1));
        bank.audit.name_operator(AuditTarget::one("os_user", "ada").and("host", "till"));
        let run = async |line: &str| {
            let words = line.split('|').map(str::to_owned);
            let line = Line::try_parse_from(std::iter::once("gate".to_owned()).chain(words)).unwrap();
            let mut out = Vec::new();
            let code =
                run(line.command, (&bank, &network), &mut out).await.map_err(|error| format!("{error:#}"));
            code.map(|code| (code, String::from_utf8(out).unwrap()))
        };
        let success = format!("{:?}", ExitCode::SUCCESS);
        let check = |done: Result<(ExitCode, String), String>, expected: &str| {
            let (code, printed) = done.unwrap();
            assert_eq!((format!("{code:?}"), printed.trim()), (success.clone(), expected));
        };
        check(run("show").await, "the gate is released (epoch 0)");
        check(run("hold|--reason|nightly close").await, "the gate is held (epoch 1)");
        let (_, printed) = run("show|--json").await.unwrap();
        let shown: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(shown, serde_json::json!({"state": "held", "epoch": 1}));
        let refused = run("hold|--reason|again|--release-at|1999-01-01T00:00:00Z").await.unwrap_err();
        assert!(refused.contains("must be later than now"), "{refused}");
        check(run("release").await, "the gate is released (epoch 2)");
        let rows = bank.audit.list(None, 10).await.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (row.done.act.as_str(), row.done.target.as_str())).collect();
        let who = "os_user=ada host=till";
        let expected = [
            ("gate.change", format!("state=released epoch=2 {who}")),
            ("gate.change", format!("state=held epoch=1 reason=\"nightly close\" {who}")),
        ];
        assert_eq!(rows, expected.each_ref().map(|(act, target)| (*act, target.as_str())));
        assert!(Line::try_parse_from(["gate", "hold"]).is_err(), "a reason is required");
    }
}
