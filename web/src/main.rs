//! The web process, and the commands of operators: what was asked for, done by the library.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::completions::Completions;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::config::{Config, StorageConfig, add_settings};
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::sweep::{Sweep, Swept};
use postonce_shared::oversight::audit::{AuditTarget, Event};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::store;
use postonce_shared::telemetry::{self, LogTo};
use postonce_web::access::adoption::adopt;
use postonce_web::access::partner_broadcast::PartnerBroadcast;
use postonce_web::access::partner_service::PartnerService;
use postonce_web::api::openapi::{json_schema, openapi_json};
use postonce_web::cli::backup::{self, BackupCommand, RestoreCommand};
use postonce_web::cli::keys::{self, KeysCommand};
use postonce_web::cli::partners::{self, PartnersCommand};
use postonce_web::cli::verify::{self, Verdict, VerifyCommand};
use postonce_web::process::{self, Hosting};
use postonce_worker::drain::until_stop_signal;
use postonce_worker::process::find_secret;

/// Serving and posting take and give back small pieces of memory all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a command waits for workers to hear its rings. What they do not hear they find later.
const RINGING_TIME_MAX: Duration = Duration::from_secs(3);

/// The HTTP API of Postonce: deposits and withdrawals that post exactly once
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Run the worker in this process [default on SQLite]
    #[arg(long, conflicts_with = "no_worker")]
    with_worker: bool,
    /// Leave the worker to processes of its own [default on Azure]
    #[arg(long)]
    no_worker: bool,
    #[command(subcommand)]
    command: Option<Operation>,
}

/// Without one of these, the service starts.
#[derive(Debug, Subcommand)]
enum Operation {
    /// Partners: who may call, what they may touch, and on what terms
    #[command(subcommand)]
    Partners(PartnersCommand),
    /// API keys of partners: add, list, revoke
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Enqueue accepted work again that was forgotten, and say how much it was
    Recover,
    /// Remove payloads of work that is settled, older than a day, and say how many
    Sweep,
    /// Copy the embedded store into a file, while the service runs; check the copy, and say what is in it
    Backup(BackupCommand),
    /// Put a backup in the place of the embedded store, while the service is stopped: say what that means, and
    /// with --yes do it. The store that is replaced is kept beside it
    Restore(RestoreCommand),
    /// Audit the whole ledger while it is in use, and print what is wrong; exit code 1 on a finding, 2
    /// when the ledger could not be read to its end
    Verify(VerifyCommand),
    /// Print the OpenAPI document
    Openapi,
    /// Print the JSON Schema of the JSON bodies
    JsonSchema,
}

#[tokio::main]
async fn main() -> ExitCode {
    let matches = add_settings(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // An audit that could not be done must not look like one that found something.
    let failure = if matches!(cli.command, Some(Operation::Verify(_))) { 2 } else { 1 };
    run(cli, &matches).await.unwrap_or_else(|error| {
        eprintln!("Error: {error:?}");
        ExitCode::from(failure)
    })
}

/// The document that a command prints, where it is one of these: they need no store and no settings.
fn document(command: Option<&Operation>) -> Option<String> {
    match command {
        Some(Operation::Openapi) => Some(openapi_json()),
        Some(Operation::JsonSchema) => Some(json_schema()),
        Some(_) | None => None,
    }
}

async fn run(cli: Cli, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Cli { with_worker, no_worker, command } = cli;
    if let Some(document) = document(command.as_ref()) {
        println!("{document}");
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::read(matches)?;
    let log_to = if command.is_some() { LogTo::Stderr } else { LogTo::Stdout };
    let _log = telemetry::start(config.log_format, &config.log, log_to)?;

    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    // Before a store is opened: backup and restore work on its files, and an audit only reads.
    match &command {
        Some(Operation::Backup(backup)) => {
            backup::back_up(backup, &config.storage, &*world, &mut std::io::stdout())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Operation::Restore(restore)) => {
            backup::restore(restore, &config.storage, &*world, &mut std::io::stdout())?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Operation::Verify(verify)) => return audit(verify, &config, world).await,
        Some(
            Operation::Partners(_)
            | Operation::Keys(_)
            | Operation::Recover
            | Operation::Sweep
            | Operation::Openapi
            | Operation::JsonSchema,
        )
        | None => {}
    }
    let completions: Arc<Completions> = Arc::default();
    let secret = Arc::new(DoorbellSecret::new(config.ring_secret.as_ref()));
    let seal = Seal::new(&secret);
    let store = store::open(&config, Arc::clone(&world), &completions, &seal);
    let store = store.await.context("the store cannot be opened")?;
    let exchange = PeerNetwork::with(&store, &world, secret)?;
    let bank = Bank::linked(store, world, exchange.links(&completions), config.queue_count);
    if let Some(command) = command {
        operate(command, &bank, &exchange).await?;
    } else {
        let embedded = matches!(config.storage, StorageConfig::Sqlite { .. });
        let worker_here = with_worker || (embedded && !no_worker);
        let hosting = if worker_here { Hosting::WithWorker } else { Hosting::WebOnly };
        process::run(&bank, &exchange, &config, hosting, until_stop_signal()).await?;
        store::checkpoint(&config);
    }
    Ok(ExitCode::SUCCESS)
}

/// Carries out a command on a store that is open.
async fn operate(command: Operation, bank: &Bank, exchange: &PeerNetwork) -> anyhow::Result<()> {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    match command {
        Operation::Keys(command) => {
            let desk = partner_desk(bank, exchange).await?;
            keys::run(command, &bank.store, &desk, (&mut out, &mut err)).await
        }
        Operation::Partners(command) => {
            let desk = partner_desk(bank, exchange).await?;
            partners::run(command, &desk, (&mut out, &mut err)).await
        }
        Operation::Recover => recover(bank, exchange).await,
        Operation::Sweep => sweep(bank).await,
        // Done before a store was opened.
        Operation::Backup(_)
        | Operation::Restore(_)
        | Operation::Verify(_)
        | Operation::Openapi
        | Operation::JsonSchema => Ok(()),
    }
}

async fn recover(bank: &Bank, exchange: &PeerNetwork) -> anyhow::Result<()> {
    find_secret(bank, exchange);
    let recovered = bank.repair.recover(RecoveryScope::Unqueued).await;
    let on = recovered
        .as_ref()
        .map_or_else(|_| AuditTarget::nothing(), |it| AuditTarget::one("enqueued", it.enqueued));
    let recovered = Event::record_command("work.recover", on, recovered);
    let recovered = recovered.context("the log cannot be recovered")?;
    println!("looked at {} accepted transactions, enqueued {} again", recovered.examined, recovered.enqueued);
    exchange.bell.flush(RINGING_TIME_MAX).await;
    Ok(())
}

async fn sweep(bank: &Bank) -> anyhow::Result<()> {
    let swept = Sweep::new(&bank.store, Arc::clone(&bank.world)).run().await;
    let on =
        swept.as_ref().map_or_else(|_| AuditTarget::nothing(), |it| AuditTarget::one("removed", it.removed));
    let swept = Event::record_command("payloads.sweep", on, swept);
    let Swept { removed, open, unreadable, young } = swept.context("the payloads cannot be swept")?;
    println!(
        "removed {removed} payloads; kept {open} with open work, {unreadable} that cannot be read \
         and {young} younger than a day"
    );
    Ok(())
}

/// Where it is decided who may do what; those that run hear of it.
async fn partner_desk(bank: &Bank, exchange: &PeerNetwork) -> anyhow::Result<PartnerService> {
    find_secret(bank, exchange);
    adopt(&bank.store, &*bank.world).await.context("the partners of older keys cannot be made")?;
    let ring = PartnerBroadcast::new(exchange, Arc::clone(&bank.world), None);
    Ok(PartnerService::new(&bank.store, Arc::clone(&bank.world), ring))
}

async fn audit(command: &VerifyCommand, config: &Config, world: Arc<dyn World>) -> anyhow::Result<ExitCode> {
    let store =
        store::open_to_read(config, Arc::clone(&world)).await.context("the store cannot be opened")?;
    let verdict = verify::run(command, &store, &world, &mut std::io::stdout()).await?;
    Ok(match verdict {
        Verdict::Sound => ExitCode::SUCCESS,
        Verdict::Findings => ExitCode::from(1),
    })
}
