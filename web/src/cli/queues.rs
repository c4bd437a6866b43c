//! `postonce-web queues`: depth, age, dead letters and listeners of each queue, from the store and the running processes.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use postonce_process::meter::Meter;
use postonce_schemas::json::{Queue, QueueList};
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::bank::Bank;
use postonce_shared::config::Config;

use crate::admin::service::{AdminService, AdminTerms};
use crate::admin::workers::AllWorkers;
use crate::api::views;
use crate::cli::output::{json, table};

/// Arguments of `queues`.
#[derive(Debug, Clone, Args)]
pub struct QueuesCommand {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the queues that `/v1/admin/queues` lists.
///
/// # Errors
/// When the store cannot be read.
pub async fn run(
    QueuesCommand { json: as_json }: QueuesCommand,
    admin: &AdminService,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let now = admin.now();
    let reports = admin.queues().await.context("the queues cannot be read")?;
    let list = views::queues(reports, now);
    if as_json {
        return json(&list, out);
    }
    let QueueList { queues, receivers_rules } = list;
    let row = |queue: &Queue| {
        let Queue { name, depth, oldest_age_s, oldest_age_known, dead_letters, .. } = queue;
        let Queue { active_listeners, listeners_max, .. } = queue;
        let oldest = if *oldest_age_known { format!("{oldest_age_s} s") } else { "unknown".to_owned() };
        let listeners = format!("{active_listeners} of {listeners_max}");
        [name.clone(), depth.to_string(), oldest, dead_letters.to_string(), listeners]
    };
    table(["QUEUE", "DEPTH", "OLDEST", "DEAD LETTERS", "LISTENERS"], queues.iter().map(row), out)?;
    if !receivers_rules.is_empty() {
        writeln!(out, "receivers-rule: {}", receivers_rules.join("; "))?;
    }
    Ok(())
}

/// Creates the source of process statuses for a command, which itself does no work.
pub fn all_workers(bank: &Bank, network: &PeerNetwork) -> Arc<AllWorkers> {
    Arc::new(AllWorkers {
        address: String::new(),
        started_at: bank.world.now(),
        world: Arc::clone(&bank.world),
        meter: Arc::new(Meter::default()),
        served: Arc::clone(bank.acceptor.served()),
        operations: Arc::clone(&bank.store.operations),
        broadcast: Arc::clone(&network.broadcast),
    })
}

/// Creates the administration service for a command.
pub fn admin_service(bank: &Bank, workers: Arc<AllWorkers>, config: &Config) -> AdminService {
    AdminService::new(bank, workers, AdminTerms::from(config))
}
