//! The web process, and the administrative commands. Parses the command line; the library does the work.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use postonce_process::build;
use postonce_process::health::{self, Listening};
use postonce_process::http::LIBRARY_LOG_TARGET;
use postonce_process::runtime::block_on;
use postonce_process::signals::Signals;
use postonce_process::upkeep::membership::find_secret;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::command_output::{CommandOutput, failed, service_failed};
use postonce_shared::config::{Config, Environment, add_settings, parse_command_line};
use postonce_shared::ports::world::World;
use postonce_shared::printable::PrintableOutput;
use postonce_shared::store;
use postonce_shared::telemetry::{self, LogTo};
use postonce_web::access::partner_broadcast::PartnerBroadcast;
use postonce_web::access::partner_service::PartnerService;
use postonce_web::api::openapi::{json_schema, openapi_json, openapi_strict_json};
use postonce_web::cli::accounts::{self, AccountsCommand, TransactionsCommand};
use postonce_web::cli::anchors::{self, AnchorsCommand};
use postonce_web::cli::backup::{self, BackupCommand, RestoreCommand};
use postonce_web::cli::batches::{self, BatchesCommand};
use postonce_web::cli::config::{self, ConfigCommand};
use postonce_web::cli::costs::{self, CostsCommand, ShowCosts};
use postonce_web::cli::dead_letters::{self, DeadLettersCommand};
use postonce_web::cli::gate::{self, GateCommand};
use postonce_web::cli::keys::{self, KeysCommand};
use postonce_web::cli::operator;
use postonce_web::cli::order_numbers::{self, OrderNumbersCommand};
use postonce_web::cli::partners::{self, PartnersCommand};
use postonce_web::cli::queues::{self, QueuesCommand};
use postonce_web::cli::verify::{self, VerifyCommand};
use postonce_web::cli::work;
use postonce_web::cli::workers::{self, WorkersCommand};
use postonce_web::metrics;
use postonce_web::process::{self, Hosting};

/// Serving and posting allocate and free many small objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Maximum time that a command waits for its doorbell requests. Workers find missed work when they poll.
const RINGING_TIME_MAX: Duration = Duration::from_secs(3);

/// The HTTP API of Postonce: deposits and withdrawals that post exactly once
#[derive(Debug, Parser)]
#[command(version = build::DESCRIPTION)]
struct Cli {
    /// Run the worker in this process [default on SQLite]
    #[arg(long, conflicts_with = "no_worker")]
    with_worker: bool,
    /// Run no worker in this process; start postonce-worker separately [default on Azure]
    #[arg(long)]
    no_worker: bool,
    /// Without a command, the service starts.
    #[command(subcommand)]
    command: Option<Operation>,
}

/// An administrative command, by what it needs.
#[derive(Debug, Subcommand)]
enum Operation {
    #[command(flatten)]
    OnBank(BankOperation),
    #[command(flatten)]
    OnStorage(StorageOperation),
    #[command(flatten)]
    OnService(ServiceOperation),
    #[command(flatten)]
    Print(PublishedDocument),
    /// Storage operations and their price: of the running service, and of a plan
    #[command(subcommand)]
    Costs(CostsCommand),
    /// Print the settings in force and where each value comes from, without secrets; check them
    Config(ConfigCommand),
    /// Ask the running web process with these settings whether it is ready. Exit code 0: ready
    Health,
}

/// A command on the open bank.
#[derive(Debug, Subcommand)]
enum BankOperation {
    /// Partners: their permissions, keys and limits
    #[command(subcommand)]
    Partners(PartnersCommand),
    /// API keys of partners: add, list, revoke
    #[command(subcommand)]
    Keys(KeysCommand),
    /// The gate: show, hold and release all posting
    #[command(subcommand)]
    Gate(GateCommand),
    /// Work that cannot be posted: list, show, replay, discard
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Accounts of all partners: list, show, statement
    #[command(subcommand)]
    Accounts(AccountsCommand),
    /// Find transactions of all partners by order number or message id, with their way through the bank
    Transactions(TransactionsCommand),
    /// List the queues with their depth, age, dead letters and listeners
    Queues(QueuesCommand),
    /// List the running processes, and print the wanted number of workers
    Workers(WorkersCommand),
    /// Part of [`CostsCommand`], whose other commands need no bank.
    #[command(skip)]
    Costs(ShowCosts),
    /// Order numbers, after the storage went back in time
    #[command(subcommand)]
    OrderNumbers(OrderNumbersCommand),
    /// Enqueue accepted transactions that have no message, and print their number
    Recover,
    /// Remove payloads of finished work that are older than a day, and print their number
    Sweep,
}

/// A command that must run before a store is opened for writing: it works on the files, or only reads.
#[derive(Debug, Subcommand)]
enum StorageOperation {
    /// Copy the store to a file while the service runs, check the copy, and print its contents
    Backup(BackupCommand),
    /// Restore a backup while the service is stopped: on SQLite it replaces the store, which is kept beside the new one; on
    /// Azure the store must be empty. Prints the plan; with --yes, carries it out
    Restore(RestoreCommand),
    /// Audit the whole ledger while it is in use, and print the findings. Exit code 1: findings; 2: the ledger
    /// could not be read completely
    Verify(VerifyCommand),
    /// Print the anchors of the store, to keep copies of them elsewhere; make an anchor, or a key for anchors
    Anchors(AnchorsCommand),
}

/// A command that is a client of the running service, and needs neither a store nor settings.
#[derive(Debug, Subcommand)]
enum ServiceOperation {
    /// Batches: submit a document to a running service, as a partner
    #[command(subcommand)]
    Batches(BatchesCommand),
}

/// A document to print, which needs neither a store nor settings.
#[derive(Debug, Subcommand)]
enum PublishedDocument {
    /// Print the OpenAPI document for generators of clients
    Openapi {
        /// Print the one that describes exactly what the service accepts
        #[arg(long)]
        strict: bool,
    },
    /// Print the JSON Schema of the JSON bodies
    JsonSchema,
    /// Print the list of all metrics, in Markdown
    Metrics,
}

fn main() -> ExitCode {
    let matches = parse_command_line(add_settings(Cli::command()));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // A failed audit must be distinguishable from one with findings, which is 1.
    let is_audit = matches!(cli.command, Some(Operation::OnStorage(StorageOperation::Verify(_))));
    let failure = if is_audit { 2 } else { 1 };
    let is_service = cli.command.is_none();
    let ended = block_on(run(cli, &matches)).context("the program cannot be started").flatten();
    ended.unwrap_or_else(|error| {
        let message = format!("{error:?}");
        if is_service { service_failed(message) } else { failed(error.as_ref(), message, failure) }
    })
}

async fn run(cli: Cli, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Cli { with_worker, no_worker, command } = cli;
    let mut out = CommandOutput::stdout();
    if let Some(Operation::Print(document)) = command {
        writeln!(out, "{}", text(&document))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The output contains texts of partners and of the store.
    let out = &mut PrintableOutput(out);
    if let Some(Operation::OnService(ServiceOperation::Batches(command))) = &command {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        return Ok(batches::run(command, &world, out).await);
    }
    if let Some(Operation::Config(command)) = command {
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        return config::run(command, matches, &world, out).await;
    }
    let command = match command {
        Some(Operation::Costs(CostsCommand::Estimate(plan))) => {
            costs::estimate(plan, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Operation::Costs(CostsCommand::Show(show))) => {
            Some(Operation::OnBank(BankOperation::Costs(show)))
        }
        other => other,
    };
    let (config, settings) = Config::in_force(matches, &Environment::of_process())?;
    if let Some(Operation::Health) = command {
        health::check(listening(&config)?).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let log_to = if command.is_some() { LogTo::Stderr } else { LogTo::Stdout };
    let _log = telemetry::start(config.log_format, &config.log, log_to, LIBRARY_LOG_TARGET)?;
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    if let Some(Operation::OnStorage(command)) = command {
        return run_on_storage(command, &config, world, out).await;
    }
    if let Some(Operation::OnBank(command)) = command {
        let opened = store::open_existing_bank(&config, world).await;
        let (bank, network) = opened.context("the bank cannot be opened")?;
        bank.audit.name_operator(operator::identity());
        find_secret(&bank, &network);
        return run_on_bank(command, &bank, &network, (&config, out)).await;
    }
    let signals = Signals::handle(&world).context("the signals cannot be handled")?;
    build::log_start("postonce-web", &settings);
    let (bank, network) = store::open_bank(&config, world).await.context("the bank cannot be opened")?;
    let worker_here = with_worker || (config.storage.is_embedded() && !no_worker);
    let hosting = if worker_here { Hosting::WithWorker } else { Hosting::WebOnly };
    process::run(&bank, &network, &config, hosting, signals.until_stop()).await?;
    store::checkpoint(&config, &bank.store.files);
    Ok(ExitCode::SUCCESS)
}

/// Returns where the web process with this configuration listens. Prefers the address for operators, which needs no
/// client certificate.
///
/// # Errors
/// When every client needs a certificate, which this command does not have.
fn listening(config: &Config) -> anyhow::Result<Listening> {
    let is_encrypted = config.tls.is_some();
    if let Some(address) = config.admin_bind {
        return Ok(Listening { setting: "admin-bind", address, is_encrypted });
    }
    let clients = config.tls.as_ref().and_then(|tls| tls.clients.as_ref());
    ensure!(
        !clients.is_some_and(|clients| clients.required),
        "tls-client-certificates is required, and health has no certificate: set admin-bind, which needs none"
    );
    Ok(Listening { setting: "bind", address: config.bind, is_encrypted })
}

fn text(document: &PublishedDocument) -> String {
    match document {
        PublishedDocument::Openapi { strict: false } => openapi_json(),
        PublishedDocument::Openapi { strict: true } => openapi_strict_json(),
        PublishedDocument::JsonSchema => json_schema(),
        PublishedDocument::Metrics => metrics::page(),
    }
}

async fn run_on_storage(
    command: StorageOperation,
    config: &Config,
    world: Arc<dyn World>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<ExitCode> {
    match command {
        StorageOperation::Backup(backup) => {
            store::refuse_missing(config)?;
            backup::back_up(&backup, config, &world, out).await?;
        }
        StorageOperation::Restore(restore) => backup::restore(&restore, config, &world, out).await?,
        StorageOperation::Verify(verify) => {
            let store = store::open_to_read(config, Arc::clone(&world)).await;
            let store = store.context("the store cannot be opened")?;
            let key = config.anchors.signing_key();
            return verify::run(&verify, (&store, key.as_ref()), &world, out).await;
        }
        StorageOperation::Anchors(command) => anchors::run(command, config, &world, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_on_bank(
    command: BankOperation,
    bank: &Bank,
    network: &PeerNetwork,
    (config, out): (&Config, &mut (dyn Write + Send)),
) -> anyhow::Result<ExitCode> {
    match command {
        BankOperation::Keys(command) => {
            let service = partner_service(bank, network);
            keys::run(command, &bank.store, (&service, &bank.audit), out).await?;
        }
        BankOperation::Partners(command) => {
            let service = partner_service(bank, network);
            let err = &mut PrintableOutput(CommandOutput::stderr());
            partners::run(command, (&service, &bank.audit), (out, err)).await?;
        }
        BankOperation::Gate(command) => return gate::run(command, (bank, network), out).await,
        BankOperation::DeadLetters(command) => {
            let code = dead_letters::run(command, bank, out).await?;
            network.bell.flush(RINGING_TIME_MAX).await;
            return Ok(code);
        }
        BankOperation::Accounts(command) => return accounts::run(command, bank, out).await,
        BankOperation::Transactions(command) => return accounts::find(command, bank, out).await,
        BankOperation::Queues(command) => {
            let admin = queues::admin_service(bank, queues::all_workers(bank, network), config);
            queues::run(command, &admin, out).await?;
        }
        BankOperation::Workers(command) => {
            let all = queues::all_workers(bank, network);
            let admin = queues::admin_service(bank, Arc::clone(&all), config);
            return workers::run(command, (&admin, &all), out).await;
        }
        BankOperation::Costs(command) => {
            let admin = queues::admin_service(bank, queues::all_workers(bank, network), config);
            costs::show(command, &admin, out).await?;
        }
        BankOperation::OrderNumbers(command) => order_numbers::run(command, bank, out).await?,
        BankOperation::Recover => {
            work::recover(bank, out).await?;
            network.bell.flush(RINGING_TIME_MAX).await;
        }
        BankOperation::Sweep => work::sweep(bank, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the partner service, which broadcasts its changes to the running processes.
fn partner_service(bank: &Bank, network: &PeerNetwork) -> PartnerService {
    let broadcast = PartnerBroadcast::new(network, Arc::clone(&bank.world), None);
    PartnerService::new(&bank.store, Arc::clone(&bank.world), broadcast)
}
