//! The worker process: configuration, telemetry, store and listeners, until a stop signal. With `--scale`, the process
//! supervises other worker processes instead.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use postonce_process::build;
use postonce_process::health::{self, Listening};
use postonce_process::http::LIBRARY_LOG_TARGET;
use postonce_process::meter::Meter;
use postonce_process::runtime::block_on;
use postonce_process::signals::Signals;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::command_output::service_failed;
use postonce_shared::config::{Config, Environment, add_settings, parse_command_line};
use postonce_shared::ports::Store;
use postonce_shared::ports::world::World;
use postonce_shared::store;
use postonce_shared::telemetry::{self, LogTo};
use postonce_worker::config::WorkerConfig;
use postonce_worker::process;
use postonce_worker::supervisor::socket::{SUPERVISED, SupervisorSocket};
use postonce_worker::supervisor::{Program, ScaleRange, Supervisor};
use postonce_worker::worker::Worker;

/// Requests and postings constantly allocate and free small blocks of memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The worker of Postonce: posts accepted transactions exactly once
#[derive(Debug, Parser)]
#[command(version = build::DESCRIPTION)]
struct Cli {
    /// Number of worker processes on this machine. With a range such as 1..8, the number follows the backlog within
    /// that range, which then replaces workers-min and workers-max
    #[arg(long, value_name = "RANGE")]
    scale: Option<ScaleRange>,
    /// Hold the gate first if it was never set; otherwise leave it unchanged
    #[arg(long)]
    held: bool,
    /// Started by a supervisor, which holds the other end of standard input
    #[arg(long = SUPERVISED, hide = true)]
    supervised: bool,
    /// Without a command, the worker starts.
    #[command(subcommand)]
    command: Option<Operation>,
}

/// A command.
#[derive(Debug, Subcommand)]
enum Operation {
    /// Ask the running worker with these settings whether it is ready. Exit code 0: ready
    Health,
}

fn main() -> ExitCode {
    let matches = parse_command_line(add_settings(Cli::command()));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let ended = block_on(run(cli, &matches)).context("the program cannot be started").flatten();
    ended.map_or_else(|error| service_failed(format_args!("{error:?}")), |()| ExitCode::SUCCESS)
}

async fn run(cli: Cli, matches: &ArgMatches) -> anyhow::Result<()> {
    let (config, settings) = Config::in_force(matches, &Environment::of_process())?;
    if let Some(Operation::Health) = cli.command {
        let address = config.worker_bind;
        return health::check(Listening { setting: "worker-bind", address, is_encrypted: false }).await;
    }
    let log_to = if cli.supervised { LogTo::SharedStdout } else { LogTo::Stdout };
    let _log = telemetry::start(config.log_format, &config.log, log_to, LIBRARY_LOG_TARGET)?;
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let signals = Signals::handle(&world).context("the signals cannot be handled")?;
    build::log_start("postonce-worker", &settings);
    let opened = store::open_bank(&config, Arc::clone(&world)).await;
    let (bank, network) = opened.context("the bank cannot be opened")?;
    // A supervised worker has the same arguments as its supervisor, including the range.
    if let Some(range) = cli.scale.filter(|_| !cli.supervised) {
        return supervise(range, &config, &bank.store, (world, signals)).await;
    }
    let socket = cli.supervised.then(SupervisorSocket::from_stdin).transpose();
    let socket = socket.context("--supervised is only for workers that postonce-worker --scale starts")?;
    let worker = WorkerConfig { held: cli.held, ..WorkerConfig::from(&config) };
    let worker = Worker::new(&bank, worker, Arc::default());
    let stop = until_stopped(signals.until_stop(), socket, Arc::clone(worker.meter()), world);
    process::run(worker, &bank, &network, &config, stop).await?;
    store::checkpoint(&config, &bank.store.files);
    Ok(())
}

async fn supervise(
    range: ScaleRange,
    config: &Config,
    store: &Store,
    (world, signals): (Arc<dyn World>, Signals),
) -> anyhow::Result<()> {
    ensure!(
        config.worker_bind.port() == 0,
        "worker-bind is {}, which is not allowed with --scale: several workers cannot share one port; it must end \
         in port 0, such as 127.0.0.1:0, where each picks a free one",
        config.worker_bind
    );
    if let Some(address) = &config.advertise {
        bail!(
            "advertise is {address}, which is not allowed with --scale: each worker has an address of its own; leave \
             it out, and set worker-bind to an address of this machine that others reach, with port 0"
        );
    }
    let program = Program {
        executable: std::env::current_exe().context("the path of this program cannot be read")?,
        arguments: std::env::args_os().skip(1).collect(),
    };
    let policy = config.scaling.clone();
    let supervisor = Supervisor::new(program, range, policy, store, config.queue_count, world);
    supervisor.run(signals.until_stop()).await;
    Ok(())
}

/// Returns when the worker must stop: after a signal, or when its supervisor, if any, closes the socket.
async fn until_stopped(
    signal: impl Future<Output = ()>,
    socket: Option<SupervisorSocket>,
    meter: Arc<Meter>,
    world: Arc<dyn World>,
) {
    let signal = std::pin::pin!(signal);
    match socket {
        Some(socket) => {
            let ended = std::pin::pin!(socket.until_closed(meter, world));
            futures::future::select(signal, ended).await;
        }
        None => signal.await,
    }
}
