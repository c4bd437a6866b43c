//! `postonce-web workers`: the registered processes with their status, and the wanted number of workers.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use postonce_process::http::{QueueListeners, Status};
use postonce_shared::ports::process_registry::RegisteredProcess;
use serde::Serialize;

use crate::admin::service::AdminService;
use crate::admin::workers::AllWorkers;
use crate::api::views;
use crate::cli::output::{INCOMPLETE, json, table};

/// Arguments of `workers`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes:
  0  every registered process answers
  1  the store cannot be read
  2  wrong usage
  5  a registered process does not answer; one that was killed stays registered for up to 36 minutes")]
pub struct WorkersCommand {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Workers {
    workers_wanted: u32,
    processes: Vec<Process>,
}

#[derive(Clone, Serialize)]
struct Process {
    id: String,
    /// `worker` or `web`.
    kind: &'static str,
    address: String,
    started_at: String,
    /// Time at which the process last renewed its registry entry.
    seen_at: String,
    /// Whether the process reported its status.
    answers: bool,
    /// Number of receivers that handle messages now; absent if the process does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_listeners: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listeners_max: Option<u64>,
}

impl Process {
    fn of(entry: &RegisteredProcess, status: Option<&Status>) -> Self {
        let sum = |count: fn(&QueueListeners) -> u64| {
            let counts = |status: &Status| status.listeners.values().map(count).fold(0, u64::saturating_add);
            status.map(counts)
        };
        Self {
            id: entry.id.to_string(),
            kind: entry.kind.code(),
            address: entry.address.to_string(),
            started_at: entry.started_at.to_string(),
            seen_at: entry.written_at().to_string(),
            answers: status.is_some(),
            active_listeners: sum(|listeners| listeners.active),
            listeners_max: sum(|listeners| listeners.max),
        }
    }

    fn row(&self) -> [String; 6] {
        let listeners = match (self.active_listeners, self.listeners_max) {
            (Some(active), Some(max)) => format!("{active} of {max}"),
            _ => "does not answer".to_owned(),
        };
        let Self { id, address, started_at, seen_at, .. } = self.clone();
        [id, self.kind.to_owned(), address, started_at, seen_at, listeners]
    }
}

/// Prints the processes. Returns exit code 5 unless all of them answer.
///
/// # Errors
/// When the store cannot be read.
pub async fn run(
    WorkersCommand { json: as_json }: WorkersCommand,
    (admin, workers): (&AdminService, &AllWorkers),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    let scale = admin.scale().await.context("the queues cannot be read")?;
    let processes = workers.processes().await.context("the process registry cannot be read")?;
    let processes: Vec<_> =
        processes.iter().map(|(entry, status)| Process::of(entry, status.as_ref())).collect();
    let all_answer = processes.iter().all(|process| process.answers);
    let workers = Workers { workers_wanted: views::scale(scale).workers_wanted, processes };
    if as_json {
        json(&workers, out)?;
    } else {
        let head = ["PROCESS", "KIND", "ADDRESS", "STARTED", "SEEN", "LISTENERS"];
        table(head, workers.processes.iter().map(Process::row), out)?;
        writeln!(out, "workers wanted: {}", workers.workers_wanted)?;
    }
    Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}
