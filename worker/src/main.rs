//! The worker process: configuration, telemetry, store, listeners, and the wait for the signal.

use std::sync::Arc;

use anyhow::Context as _;
use clap::{Arg, ArgAction, Command};
use postonce_shared::adapters::http::Exchange;
use postonce_shared::adapters::open;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::completions::Completions;
use postonce_shared::config::{Config, add_settings};
use postonce_shared::ports::world::World;
use postonce_shared::telemetry::{self, LogTo};
use postonce_worker::drain::until_asked_to_stop;
use postonce_worker::process;
use postonce_worker::worker::WorkerConfig;

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
    let completions: Arc<Completions> = Arc::default();
    let store = open::open(&config, Arc::clone(&world), &completions);
    let store = store.await.context("the store cannot be opened")?;
    let exchange = Exchange::new(&store, &world, config.ring_secret.as_ref())?;
    let bank = Bank::linked(store, world, exchange.links(&completions), config.queue_count);
    let worker = WorkerConfig { held: matches.get_flag("held"), ..WorkerConfig::from(&config) };
    process::run(&bank, &exchange, &config, worker, until_asked_to_stop()).await
}

fn held_flag() -> Arg {
    Arg::new("held")
        .long("held")
        .action(ArgAction::SetTrue)
        .help("Hold the gate first if nobody ever touched it; otherwise obey it as it is")
}
