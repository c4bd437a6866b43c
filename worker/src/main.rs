//! The worker process: configuration, telemetry, store, listeners, and the wait for the signal. With
//! `--scale` it is the supervisor of such processes instead.

use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Command, FromArgMatches as _};
use futures::FutureExt as _;
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::open;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::config::{Config, add_settings};
use postonce_shared::ports::Store;
use postonce_shared::ports::world::World;
use postonce_shared::telemetry::{self, LogTo};
use postonce_worker::drain::{drain, until_asked_to_stop};
use postonce_worker::meter::Meter;
use postonce_worker::supervised::{Line, SUPERVISED};
use postonce_worker::supervisor::{Program, ScaleRange, Supervisor};
use postonce_worker::worker::{Worker, WorkerConfig};
use tracing::info;

/// What the command line says besides the settings.
#[derive(Debug, Args)]
struct Cli {
    /// Run that many worker processes on this machine: a number, or as many as the work needs within a range
    /// such as 1..8, which then stands in for workers-min and workers-max
    #[arg(long, value_name = "RANGE")]
    scale: Option<ScaleRange>,
    /// Hold the gate first if nobody ever touched it; otherwise obey it as it is
    #[arg(long)]
    held: bool,
    /// Started by a supervisor, which is at the other end of standard input
    #[arg(long = SUPERVISED, hide = true)]
    supervised: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let command = add_settings(Command::new("postonce-worker"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("The worker of Postonce: posts what was accepted, exactly once");
    let matches = Cli::augment_args(command).get_matches();
    let cli = Cli::from_arg_matches(&matches)?;
    let config = Config::read(&matches)?;
    telemetry::start(config.log_format, &config.log, LogTo::Stdout)?;

    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let store = open::open(&config, Arc::clone(&world)).await.context("the store cannot be opened")?;
    // A supervised worker has the arguments of its supervisor, the range among them.
    match cli.scale.filter(|_| !cli.supervised) {
        Some(range) => supervise(range, &config, &store, world).await,
        None => work(&cli, &config, store, world).await,
    }
}

async fn supervise(
    range: ScaleRange,
    config: &Config,
    store: &Store,
    world: Arc<dyn World>,
) -> anyhow::Result<()> {
    let program = Program {
        executable: std::env::current_exe().context("the path of this program is not known")?,
        arguments: std::env::args_os().skip(1).collect(),
    };
    let policy = config.scaling.clone();
    let supervisor = Supervisor::new(program, range, policy, store, config.queue_count, world);
    supervisor.run(until_asked_to_stop()).await;
    Ok(())
}

async fn work(cli: &Cli, config: &Config, store: Store, world: Arc<dyn World>) -> anyhow::Result<()> {
    let Cli { scale: _, held, supervised } = *cli;
    let line = supervised.then(Line::on_standard_input).transpose();
    let line = line.context("--supervised is for workers that postonce-worker --scale starts")?;
    let doorbell = Arc::new(LocalBell::default());
    let bank = Bank::new(store, Arc::clone(&world), doorbell, config.queue_count);

    let (starter, drain) = drain();
    let meter = Arc::new(Meter::default());
    let config = WorkerConfig { held, ..WorkerConfig::from(config) };
    let worker = Worker::new(&bank, config, Arc::clone(&meter));
    let stop = async {
        let asked = std::pin::pin!(until_asked_to_stop());
        match line {
            Some(line) => {
                drop(futures::future::select(asked, line.until_it_ends(meter, world).boxed()).await)
            }
            None => asked.await,
        }
        info!("Draining: receiving no more, finishing what is in hand");
        starter.start();
    };
    futures::future::join(stop, worker.run(&drain)).await;
    Ok(())
}
