//! `postonce-web gate …`: shows, holds and releases the gate. It accesses the store directly, needs no running server,
//! and notifies the running processes in the same way as the HTTP API.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use postonce_process::process_gate::ProcessGate;
use postonce_schemas::json::{self as wire, GateChanged, rules};
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::change::GateAct;
use postonce_shared::cluster::gate::{Gate, GateState};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::audit::AuditTarget;

use crate::admin::gate::GateService;
use crate::api::views;
use crate::cli::output::{EXIT_CODES, INCOMPLETE, json};
use crate::cli::times::parse_time;
use crate::formats::violations;

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
    /// Why the gate is held: shown with it, and text for the audit trail
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
    /// Why the gate is released: shown with it, and text for the audit trail
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_reason(text: &str) -> Result<String, String> {
    violations::checked(text.trim(), rules::gate_reason)
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
    let service = GateService::new(bank, network, ProcessGate::of(bank, false), None);
    match command {
        GateCommand::Show { json: as_json } => {
            let read = Gate::new(&bank.store, &bank.world).read_record().await;
            let record = read.context("the gate cannot be read, which counts as held")?;
            let gate = views::gate(record);
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

/// Changes the gate. Returns exit code 5 if not every process acknowledged or the registry could not be read.
async fn set(
    service: &GateService,
    bank: &Bank,
    state: GateState,
    (reason, as_json): (Option<String>, bool),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let act = GateAct { by: bank.audit.command(), reason: reason.clone() };
    let changed =
        async { Ok::<_, anyhow::Error>(views::changed_gate(service.set(state, act, |_| true).await??)) };
    let changed = changed.await;
    let on = match &changed {
        Ok(changed) => AuditTarget::one("state", &changed.state).and("epoch", changed.epoch),
        Err(_) => AuditTarget::nothing(),
    };
    let on = reason.iter().fold(on, |on, reason| on.and("reason", reason));
    let changed = bank.audit.record_command("gate.change", on, changed).await;
    let changed =
        changed.context("the outcome of the change is unknown; it is safe to repeat the command")?;
    let is_complete =
        changed.registry_problem.is_none() && changed.listeners.iter().all(|listener| listener.acknowledged);
    if as_json {
        json(&changed, out)?
    } else {
        print(changed, out)?
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

fn print(changed: GateChanged, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let GateChanged { state, epoch, release_at, since, by, reason, registry_problem, listeners } = changed;
    let gate = wire::Gate { state, epoch, release_at, since, by, reason, clock_problem: None };
    writeln!(out, "{}", in_words(&gate))?;
    if let Some(problem) = registry_problem {
        writeln!(out, "  no process was notified, because the process registry cannot be read: {problem}")?;
        writeln!(
            out,
            "  repeat the command; until then, processes apply the change when they read the gate"
        )?;
    }
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
    let text =
        |before: &str, text: &Option<String>| text.iter().map(|text| format!("{before}{text}")).collect();
    let until: String = text(" until ", &gate.release_at);
    let (since, by): (String, String) = (text(", since ", &gate.since), text(", by ", &gate.by));
    // Escaped, because the text may contain control characters for the terminal.
    let reason = gate.reason.iter().map(|reason| format!(": {}", reason.escape_debug())).collect::<String>();
    format!("the gate is {}{until} (epoch {}){since}{by}{reason}", gate.state, gate.epoch)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use clap::Parser;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::bank::BankSettings;
    use postonce_shared::cluster::completions::Completions;
    use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
    use postonce_shared::ports::Store;
    use postonce_shared::ports::fault::StoreFault;
    use postonce_shared::ports::process_registry::{ProcessRegistry, RegisteredProcess};
    use postonce_shared::ports::world::World;
    use postonce_shared::testing::decorators::ProcessRegistryDecorator;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: GateCommand,
    }

    /// A process registry that cannot be read.
    struct Unreadable(Arc<dyn ProcessRegistry>);

    #[async_trait]
    impl ProcessRegistryDecorator for Unreadable {
        fn inner(&self) -> &dyn ProcessRegistry {
            &*self.0
        }

        async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
            Err(StoreFault::Unavailable { doing: "reading the process registry", source: "a test".into() })
        }
    }

    /// Creates the bank of a command, with its network.
    fn bank_over(change: impl FnOnce(&mut Store)) -> (Bank, PeerNetwork) {
        let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
        let mut store = MemoryStore::new(Arc::clone(&world));
        change(&mut store);
        let network = PeerNetwork::new(&store, &world, DoorbellSecret::new(None)).unwrap();
        let links = network.links(&Arc::new(Completions::default()));
        let bank = Bank::linked(store, world, links, BankSettings::of_queues(1));
        bank.audit.name_operator(AuditTarget::one("os_user", "ada").and("host", "till"));
        (bank, network)
    }

    /// Runs a command line, whose words are separated by `|`. Returns the exit code and output, or the error.
    async fn run_line(bank: &(Bank, PeerNetwork), line: &str) -> Result<(String, String), String> {
        let words = line.split('|').map(str::to_owned);
        let line = Line::try_parse_from(std::iter::once("gate".to_owned()).chain(words)).unwrap();
        let mut out = Vec::new();
        let code = run(line.command, (&bank.0, &bank.1), &mut out).await;
        let code = code.map_err(|error| format!("{error:#}"))?;
        Ok((format!("{code:?}"), String::from_utf8(out).unwrap()))
    }

    #[tokio::test]
    async fn a_change_that_no_process_was_told_of_is_incomplete() {
        let bank = bank_over(|store| {
            store.process_registry = Arc::new(Unreadable(Arc::clone(&store.process_registry)))
        });
        let (code, printed) = run_line(&bank, "hold|--reason|nightly close").await.unwrap();
        assert_eq!(code, format!("{:?}", ExitCode::from(INCOMPLETE)), "{printed}");
        assert!(printed.starts_with("the gate is held (epoch 1)"), "{printed}");
        assert!(printed.contains("no process was notified"), "{printed}");
        let (code, printed) = run_line(&bank, "release|--json").await.unwrap();
        assert_eq!(code, format!("{:?}", ExitCode::from(INCOMPLETE)), "{printed}");
        let changed: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(changed["state"], "released");
        assert!(changed["registry_problem"].as_str().unwrap().contains("a test"), "{changed}");
    }

    #[tokio::test]
    async fn the_gate_is_held_and_released_with_a_row_of_the_audit_trail() {
        let bank = bank_over(|_| {});
        let run = async |line: &str| run_line(&bank, line).await;
        let success = format!("{:?}", ExitCode::SUCCESS);
        let check = |done: Result<(String, String), String>, expected: &str| {
            let (code, printed) = done.unwrap();
            assert_eq!((code, printed.trim()), (success.clone(), expected));
        };
        check(run("show").await, "the gate is released (epoch 0)");
        let since = bank.0.world.now().to_string();
        let last = format!("since {since}, by command os_user=ada host=till");
        let held = format!("the gate is held (epoch 1), {last}: nightly close");
        check(run("hold|--reason| nightly close ").await, &held);
        check(run("show").await, &held);
        let (_, printed) = run("show|--json").await.unwrap();
        let shown: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let by = "command os_user=ada host=till";
        let expected = serde_json::json!({
            "state": "held", "epoch": 1, "since": since, "by": by, "reason": "nightly close"
        });
        assert_eq!(shown, expected);
        let refused = run("hold|--reason|again|--release-at|1999-01-01T00:00:00Z").await.unwrap_err();
        assert!(refused.contains("must be later than now"), "{refused}");
        check(run("release").await, &format!("the gate is released (epoch 2), {last}"));
        let rows = bank.0.audit.list(None, 10).await.unwrap();
        let rows: Vec<_> = rows.iter().map(|row| (row.done.act.as_str(), row.done.target.as_str())).collect();
        let who = "os_user=ada host=till";
        let expected = [
            ("gate.change", format!("state=released epoch=2 {who}")),
            ("gate.change", format!("state=held epoch=1 reason=\"nightly close\" {who}")),
        ];
        assert_eq!(rows, expected.each_ref().map(|(act, target)| (*act, target.as_str())));
        assert!(Line::try_parse_from(["gate", "hold"]).is_err(), "a reason is required");
        let long = "x".repeat(201);
        for wrong in ["", " ", "a\nb", &long] {
            let refused =
                Line::try_parse_from(["gate", "hold", "--reason", wrong]).err().unwrap().to_string();
            assert!(refused.contains("1 to 200 characters"), "{refused}");
        }
    }
}
