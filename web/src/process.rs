//! The running service: server, readiness, first key, and the worker where it is hosted here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::adapters::http::{PeerNetwork, advertised};
use postonce_shared::bank::Bank;
use postonce_shared::config::{Config, StorageConfig};
use postonce_shared::messaging::envelope;
use postonce_shared::protocol::recover::{Recovered, RecoveryScope};
use postonce_worker::config::WorkerConfig;
use postonce_worker::drain::{Drain, drain};
use postonce_worker::meter::Meter;
use postonce_worker::process::{find_secret, run_in_roster};
use postonce_worker::upkeep::heartbeat::Heartbeat;
use postonce_worker::worker::Worker;
use tracing::{error, info, warn};

use crate::access::api_keys::{Established, FirstKey};
use crate::access::keyring::Keyring;
use crate::access::signatures::Verifier;
use crate::admin::service::AdminTerms;
use crate::http_servers::HttpServers;
use crate::server::App;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::process_registry::{Address, ProcessKind};
use postonce_worker::readiness::{Part, Readiness};

/// Files that a process opens besides its connections: the store, other processes, logs.
const FILES_BESIDES: usize = 512;

/// How often a process without a worker looks whether it has to announce itself anew. It does every 15 minutes
/// then: about a hundred writes a day.
const BEAT: Duration = Duration::from_secs(5 * 60);

/// Where the worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosting {
    /// In this process.
    WithWorker,
    /// In processes of its own.
    WebOnly,
}

/// Serves until `stop` returns; then drains: what is in hand is finished, for at most 10 s.
///
/// # Errors
/// When the configuration cannot be used, or the address is taken.
pub async fn run(
    bank: &Bank,
    exchange: &PeerNetwork,
    config: &Config,
    hosting: Hosting,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    make_room(config.http.connections_max);
    find_secret(bank, exchange);
    if matches!(config.storage, StorageConfig::Sqlite { .. }) {
        // This store enqueues while it accepts, and cannot wait for the secret then.
        bank.seal.ready(&*bank.world).await;
    }
    let doors = HttpServers::open(config)?;
    let address = advertised(config.advertise.as_ref(), doors.for_peers(), config.storage.is_embedded());
    warn_of_loopback(config, doors.for_peers());
    // Known only now, where the port was left open; nothing was accepted yet.
    bank.completions.set_reply_address(address.clone(), exchange.seal.clone());
    let first_key = FirstKey::try_new(config.bootstrap_key.as_ref()).context("bootstrap-key")?;
    let meter: Arc<Meter> = Arc::default();
    let readiness = Readiness::starting([Part::Ledger, Part::Queue, Part::FirstKey]);
    let worker = match hosting {
        Hosting::WithWorker => Some(Worker::new(bank, WorkerConfig::from(config), Arc::clone(&meter))),
        Hosting::WebOnly => None,
    };
    let gatekeeper = worker.as_ref().map(Worker::gatekeeper);
    let terms = AdminTerms {
        address: address.clone(),
        scaling: config.scaling.clone(),
        prices: config.prices.clone(),
    };
    let app = App::over(bank, exchange, (&meter, gatekeeper), terms, Arc::clone(&readiness));
    let verifier = Verifier { terms: config.signatures.clone(), is_tls: config.tls.is_some() };
    let app = App { verifier, ..app.within(config.http) };
    let keyring = Arc::clone(&app.keyring);
    let forget_partner = Arc::clone(&app.callee.partners);
    keyring.await_first_key();
    let server = doors.serve(app)?;
    let handle = server.handle();

    let queue = envelope::queues(bank.queue_count).swap_remove(0);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, Arc::clone(&bank.world));
    bank.world.spawn(watch.boxed());
    bank.world
        .spawn(establish(first_key, bank.clone(), Arc::clone(&keyring), Arc::clone(&readiness)).boxed());
    let (starter, draining) = drain();
    // Changes of partners are rung at those who are in the roster: what was looked up before is of then.
    let announced = {
        let (readiness, forget) = (Arc::clone(&readiness), forget_partner);
        move || {
            forget(None);
            readiness.gain(Part::ProcessRegistry);
        }
    };
    let work = match worker {
        Some(worker) => work(worker, bank, exchange, (config, address), &draining, announced).boxed(),
        None => be_found(bank, exchange, address, &draining, announced).boxed(),
    };
    let serving = async {
        let (mut server, stop) = (std::pin::pin!(server.until_ended()), std::pin::pin!(stop));
        let ended = select(stop, server.as_mut()).await;
        readiness.lose(Part::Running);
        starter.start();
        match ended {
            Either::Left(((), _)) => {
                info!("Draining: accepting no more, finishing what is in hand");
                futures::join!(server, handle.stop(true)).0
            }
            // Without a server there is no service: a supervisor starts another process.
            Either::Right((served, _)) => served,
        }
    };
    let (served, ()) = futures::join!(serving, work);
    served.context("the server failed")
}

/// A process that takes requests of the whole network is likely one of several machines, whose workers then could
/// not tell it what became of a request that waits.
fn warn_of_loopback(config: &Config, internal: SocketAddr) {
    let is_shared = matches!(config.storage, StorageConfig::Azure { .. }) && config.advertise.is_none();
    if is_shared && internal.ip().is_loopback() && !config.bind.ip().is_loopback() {
        warn!(
            "bind is {}, but the other processes of the bank can call this one only on this machine, at {internal}: set \
             worker-bind, such as 0.0.0.0:0, where there are several machines",
            config.bind
        );
    }
}

/// Lets the process open as many files as its connections can take: each is two, as the watch over
/// them has the socket once more. Systems often begin with 1024, whatever they would allow.
fn make_room(connections_max: usize) {
    let wanted = connections_max.saturating_mul(2).saturating_add(FILES_BESIDES);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    match rlimit::increase_nofile_limit(wanted) {
        Ok(room) if room >= wanted => {}
        Ok(room) => warn!(
            "connections-max is {connections_max}, for which the process may have to open {wanted} files, but the \
             system allows {room}: lower it, or raise the limit (ulimit -n)"
        ),
        Err(error) => warn!("The limit of open files cannot be raised: {error}"),
    }
}

/// The worker in this process. On the embedded store it first looks for work that has no message,
/// as in a file that was copied or repaired.
async fn work(
    worker: Worker,
    bank: &Bank,
    exchange: &PeerNetwork,
    (config, address): (&Config, Address),
    draining: &Drain,
    announced: impl FnOnce(),
) {
    if matches!(config.storage, StorageConfig::Sqlite { .. }) {
        match bank.repair.recover(RecoveryScope::Unqueued).await {
            Ok(Recovered { enqueued: 0, .. }) => {}
            Ok(Recovered { enqueued, .. }) => {
                warn!("Enqueued {enqueued} accepted transactions that had no message")
            }
            Err(fault) => error!("Could not look for forgotten work: {}", chain(&fault)),
        }
    }
    run_in_roster(worker, bank, exchange, (config, address), draining, announced).await;
}

/// The place in the roster of a process without a worker.
async fn be_found(
    bank: &Bank,
    exchange: &PeerNetwork,
    address: Address,
    draining: &Drain,
    announced: impl FnOnce(),
) {
    let own = (exchange.id, ProcessKind::Web);
    let heartbeat = Heartbeat::new(&bank.store.roster, &bank.world, own, address, BEAT);
    futures::join!(heartbeat.keep(draining, announced), heartbeat.beat(draining, BEAT));
}

/// Gives an empty store its first key, and shows it.
async fn establish(first_key: FirstKey, bank: Bank, keyring: Arc<Keyring>, readiness: Arc<Readiness>) {
    let established = first_key.establish_at_last(&bank.store, &*bank.world, &readiness).await;
    keyring.first_key_is_known();
    match established {
        // On standard output and not in the log: logs are kept and shipped.
        Established::Made(key) => println!(
            "The first API key, for partner bootstrap with every scope, shown only this once:\n\n    {}\n",
            key.expose()
        ),
        Established::Configured | Established::Before => {}
        Established::ConfiguredIgnored => {
            warn!("Partner bootstrap has other keys already; bootstrap-key is not taken up");
        }
    }
}
