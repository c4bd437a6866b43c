//! The worker process: configuration, telemetry, store, listeners, and the wait for the signal.

use std::sync::Arc;

use anyhow::Context as _;
use clap::{Arg, ArgAction, Command};
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::open;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::config::{Config, add_settings};
use postonce_shared::ports::world::World;
use postonce_shared::telemetry::{self, LogTo};
use postonce_worker::drain::{drain, until_asked_to_stop};
use postonce_worker::meter::Meter;
use postonce_worker::worker::{Worker, WorkerConfig};
use tracing::info;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let command = add_settings(Command::new("postonce-worker"))
        .version(env!("CARGO_PKG_VERSION"))
        .about("The worker of Postonce: posts what was accepted, exactly once")
        .arg(held_flag());
    let matches = command.get_matches();
    let config = Config::read(&matches)?;
    telemetry::start(config.log_format, &config.log, LogTo::Stdout)?;

    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let store = open::open(&config, Arc::clone(&world)).await.context("the store cannot be opened")?;
    let doorbell = Arc::new(LocalBell::default());
    let bank = Bank::new(store, world, doorbell, config.queue_count);

    let (starter, drain) = drain();
    let config = WorkerConfig { held: matches.get_flag("held"), ..WorkerConfig::from(&config) };
    let worker = Worker::new(&bank, config, Arc::new(Meter::default()));
    let stop = async {
        until_asked_to_stop().await;
        info!("Draining: receiving no more, finishing what is in hand");
        starter.start();
    };
    futures::future::join(stop, worker.run(&drain)).await;
    Ok(())
}

fn held_flag() -> Arg {
    Arg::new("held")
        .long("held")
        .action(ArgAction::SetTrue)
        .help("Hold the gate first if nobody ever touched it; otherwise obey it as it is")
}
