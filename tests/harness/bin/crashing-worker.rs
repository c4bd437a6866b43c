//! The worker of production over ports that die at a named point: `postonce-dying-worker <point>`; or
//! over ports that delete a message before its work is committed: `postonce-dying-worker deletes-early`.
//! It takes the same settings as the real one.

use std::sync::Arc;

use anyhow::Context as _;
use clap::{Arg, Command};
use postonce_shared::adapters::bell::LocalBell;
use postonce_shared::adapters::open;
use postonce_shared::adapters::system::SystemWorld;
use postonce_shared::bank::Bank;
use postonce_shared::config::{Config, add_settings};
use postonce_shared::envelope::seal::Seal;
use postonce_shared::ports::world::World;
use postonce_shared::ring_secret::RingSecret;
use postonce_shared::telemetry::{self, LogTo};
use postonce_tests::faults::{DELETES_EARLY, Point, deadly, hasty};
use postonce_worker::drain::drain;
use postonce_worker::worker::{Worker, WorkerConfig};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let point = Arg::new("point")
        .required(true)
        .help("Where to die: after-receive, before-commit, after-commit; or deletes-early");
    let matches = add_settings(Command::new("postonce-dying-worker").arg(point)).get_matches();
    let code: &String = matches.get_one("point").context("the point is required")?;
    let point = match code.as_str() {
        DELETES_EARLY => None,
        code => Some(Point::from_code(code).with_context(|| format!("{code:?} is no point to die at"))?),
    };
    let config = Config::read(&matches)?;
    let _log = telemetry::start(config.log_format, &config.log, LogTo::Stdout)?;

    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let secret = Arc::new(RingSecret::new(config.ring_secret.as_ref()));
    let seal = Seal::new(&secret);
    let store = open::open(&config, Arc::clone(&world), &Arc::default(), &seal).await;
    let store = store.context("the store cannot be opened")?;
    secret.establish(&*store.sync, &*world).await;
    let doorbell = Arc::new(LocalBell::default());
    let store = match point {
        Some(point) => deadly(store, point),
        None => hasty(store),
    };
    let bank = Bank::new(store, world, doorbell, seal, config.queue_count);
    // Nobody asks it to stop: it listens until it dies.
    let (_starter, drain) = drain();
    Worker::new(&bank, WorkerConfig::from(&config), Arc::default()).run(&drain).await;
    Ok(())
}
