//! The production worker with ports that kill the process at a named point, `postonce-tests crashing-worker <point>`, or with
//! ports that delete a message before its work is committed, `postonce-tests crashing-worker deletes-early`. It has the same
//! settings as the production worker.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};
use postonce_process::drain::drain;
use postonce_process::http::LIBRARY_LOG_TARGET;
use postonce_shared::config::{Config, Environment, add_settings};
use postonce_shared::store;
use postonce_shared::telemetry::{self, LogTo};
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered;
use postonce_tests::faults::{CrashPoint, DELETES_EARLY, crashing, deleting_early};
use postonce_worker::config::WorkerConfig;
use postonce_worker::worker::Worker;

/// The name of the command.
pub const NAME: &str = "crashing-worker";
/// Longer than the grace period of an entry.
const STALE: Duration = Duration::from_secs(60);

/// Registers the process with an entry that is stale, as if it had crashed long ago: the other workers of a test must not
/// wait for that.
async fn register(bank: &Bank) -> anyhow::Result<()> {
    let long_ago = bank.world.now().before(STALE);
    let entry = RegisteredProcess { started_at: long_ago, next_by: long_ago, ..registered::entry(bank) };
    bank.store.process_registry.announce(&entry).await.context("the process cannot be registered")?;
    bank.gate_permits.register(&entry, Duration::MAX);
    Ok(())
}

/// Its command line.
pub fn command() -> Command {
    let point = Arg::new("point")
        .required(true)
        .help("Where to crash: after-receive, before-commit, after-commit; or deletes-early");
    add_settings(Command::new(NAME).about("A worker that crashes at a named point").arg(point))
}

/// Runs the worker until it crashes.
#[tokio::main]
pub async fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let code: &String = matches.get_one("point").context("the point is required")?;
    let point = match code.as_str() {
        DELETES_EARLY => None,
        code => Some(CrashPoint::from_code(code).with_context(|| format!("{code:?} is not a crash point"))?),
    };
    let config = Config::read(matches, &Environment::of_process())?;
    let _log = telemetry::start(config.log_format, &config.log, LogTo::Stdout, LIBRARY_LOG_TARGET)?;

    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let (bank, network) = store::open_bank(&config, world).await.context("the bank cannot be opened")?;
    network.secret.establish(&*bank.store.sync, &*bank.world).await;
    let store = match point {
        Some(point) => crashing(bank.store, point),
        None => deleting_early(bank.store),
    };
    let bank = Bank::new(store, bank.world, Arc::new(LocalDoorbell::default()), bank.seal, bank.queue_count);
    register(&bank).await?;
    // No drain is ever started: the worker runs until it crashes or is killed.
    let (_starter, drain) = drain();
    Worker::new(&bank, WorkerConfig::from(&config), Arc::default()).run(&drain).await;
    Ok(ExitCode::SUCCESS)
}
