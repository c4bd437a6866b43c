//! The running service: HTTP servers, readiness, the first key, and the worker if it runs in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_process::background_task::run_every;
use postonce_process::drain::{Drain, DrainStarter, drain};
use postonce_process::meter::Meter;
use postonce_process::metrics::PriceCollector;
use postonce_process::process_gate::ProcessGate;
use postonce_process::readiness::{Part, Readiness};
use postonce_process::upkeep::membership::{find_secret, keep_registered};
use postonce_process::upkeep::trace_export::TraceExport;
use postonce_process::upkeep::{
    activity, deleted_queues, disk, posted_numbers, scheduled_backup, secret_check,
};
use postonce_shared::adapters::http::{PeerNetwork, advertised};
use postonce_shared::bank::Bank;
use postonce_shared::config::{Config, StorageConfig};
use postonce_shared::messaging::envelope;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::process_registry::{Address, ProcessKind};
use postonce_shared::ports::rights::QueueUse;
use postonce_shared::protocol::recover::{Recovered, RecoveryScope};
use postonce_worker::config::WorkerConfig;
use postonce_worker::process::run_registered;
use postonce_worker::worker::Worker;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{error, info, warn};

use crate::access::api_keys::{BOOTSTRAP_PARTNER, FirstKey, FirstKeyOutcome, FirstKeyPlace};
use crate::access::keyring::Keyring;
use crate::access::scopes::Scope;
use crate::access::signatures::Verifier;
use crate::admin::service::AdminTerms;
use crate::api::ingest_bells::IngestBells;
use crate::http_servers::{HttpServers, Serving};
use crate::server::App;

/// Number of open files besides client connections: files of the store, connections to other processes, logs.
const OTHER_FILES: usize = 512;

/// Interval at which a process without a worker reads the gate. It bounds the delay when a notification and all pings are
/// lost.
const GATE_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Where the worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosting {
    /// In this process.
    WithWorker,
    /// In separate processes.
    WebOnly,
}

impl Hosting {
    /// Returns how this process uses queues.
    const fn queue_use(self) -> QueueUse {
        match self {
            Self::WithWorker => QueueUse::Process,
            Self::WebOnly => QueueUse::Send,
        }
    }
}

/// Serves until `stop` completes, then drains: the process is not ready any more, accepts requests for the drain delay, and
/// answers requests that wait for a result. Requests in progress have at most 10 s to finish.
///
/// # Errors
/// When the configuration is not usable, or an address is already in use.
pub async fn run(
    bank: &Bank,
    network: &PeerNetwork,
    config: &Config,
    hosting: Hosting,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    raise_file_limit(config.http.connections_max);
    let traces = TraceExport::start("postonce-web", config, bank, network)?;
    let parts = [Part::Ledger, Part::Queue, Part::Rights, Part::FirstKey, Part::Secret];
    let readiness = Readiness::starting(parts, &bank.world);
    find_secret(bank, network);
    secret_check::start(bank, network, &readiness);
    deleted_queues::watch(bank);
    if matches!(config.storage, StorageConfig::Sqlite { .. }) {
        // SQLite enqueues in the transaction that accepts, where it cannot wait for the secret.
        bank.seal.ready(&*bank.world).await;
    }
    let servers = HttpServers::open(config)?;
    let address = advertised(config.advertise.as_ref(), servers.peer_address(), config.storage.is_embedded());
    warn_of_loopback(config, servers.peer_address());
    // If the configured port is 0, the port is known only now. No request was accepted yet.
    bank.completions.set_reply_address(address.clone(), network.seal.clone());
    let first_key =
        FirstKey::try_new(config.bootstrap_key.as_ref(), FirstKeyPlace::of_process(&config.storage))
            .context("bootstrap-key")?;
    let meter: Arc<Meter> = Arc::default();
    let worker = match hosting {
        Hosting::WithWorker => Some(Worker::new(bank, WorkerConfig::from(config), Arc::clone(&meter))),
        Hosting::WebOnly => None,
    };
    let process_gate = worker.as_ref().map_or_else(|| ProcessGate::of(bank, false), Worker::process_gate);
    let app = app((bank, network, config), (&meter, &process_gate), &address, &readiness);
    let keyring = Arc::clone(&app.keyring);
    let forget_partner = Arc::clone(&app.callee.partners);
    keyring.await_first_key();
    let server = servers.serve(app)?;

    let queue = (envelope::queues(bank.queue_count).swap_remove(0), hosting.queue_use());
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, Arc::clone(&bank.world));
    bank.world.spawn(watch.boxed());
    let follow = Arc::clone(&readiness).follow(Arc::clone(&meter), bank.store.files.clone());
    bank.world.spawn(follow.boxed());
    bank.world.spawn(
        establish_first_key(first_key, bank.clone(), Arc::clone(&keyring), Arc::clone(&readiness)).boxed(),
    );
    let (starter, draining) = drain();
    // Changes of partners are sent to registered processes only, so partners cached before the registration may be outdated.
    let on_registered = {
        let (readiness, forget) = (Arc::clone(&readiness), forget_partner);
        move || {
            forget(None);
            readiness.gain(Part::ProcessRegistry);
        }
    };
    let work = match worker {
        Some(worker) => {
            run_worker(worker, bank, network, (config, address), &draining, on_registered).boxed()
        }
        None => run_without_worker(bank, network, (&process_gate, address), &draining, on_registered).boxed(),
    };
    bank.prepare_order_numbers();
    let stop = until_drain(stop, bank, &readiness, config.drain_delay);
    let serving = serve_until(stop, server, &readiness, starter);
    let disk = disk::watch(&config.storage, &readiness, &meter, (&*bank.world, &draining));
    let numbers = posted_numbers::record(bank, &draining);
    let backups = scheduled_backup::run(config, &meter, &bank.world, &draining);
    let activity = activity::record(bank, &meter, &draining);
    let (served, ..) = futures::join!(serving, work, disk, numbers, backups, activity);
    bank.close_order_numbers().await;
    traces.close().await;
    served.context("the server failed")
}

/// Creates the application for the configuration. Other processes reach this one at `address`.
fn app(
    (bank, network, config): (&Bank, &PeerNetwork, &Config),
    (meter, process_gate): (&Arc<Meter>, &Arc<ProcessGate>),
    address: &Address,
    readiness: &Arc<Readiness>,
) -> App {
    let terms = (AdminTerms::from(config), address.clone());
    let app = App::over(bank, network, (meter, Arc::clone(process_gate)), terms, Arc::clone(readiness));
    app.metrics.register(|registry| PriceCollector::register(config, bank, registry));
    let verifier = Verifier { terms: config.signatures.clone(), is_tls: config.tls.is_some() };
    let trusted_proxies = config.trusted_proxies.clone().unwrap_or_default();
    let trusted_proxies = Arc::new(trusted_proxies.with_headers(config.proxy_headers));
    let console = Some(config.console).filter(|terms| terms.is_served);
    let ingest = Arc::new(IngestBells::new(bank, config.ingest.clone()));
    App { verifier, trusted_proxies, console, ingest, ..app.within(config.http) }
}

/// Waits for `stop` and then for the drain delay, during which the process is not ready but accepts requests. Then ends the
/// waits of requests for results.
async fn until_drain(stop: impl Future<Output = ()>, bank: &Bank, readiness: &Readiness, delay: Duration) {
    stop.await;
    if !delay.is_zero() {
        // The process posts and answers other processes until the drain starts.
        readiness.lose(Part::Staying);
        info!("Not ready any more: accepting requests for another {delay:?}");
        bank.world.sleep(delay).await;
    }
    bank.completions.end_waits();
}

/// Serves until `stop` completes or the server ends, starts the drain, and waits for the requests in progress.
async fn serve_until(
    stop: impl Future<Output = ()>,
    server: Serving,
    readiness: &Readiness,
    draining: DrainStarter,
) -> std::io::Result<()> {
    let handle = server.handle();
    let (mut server, stop) = (std::pin::pin!(server.until_ended()), std::pin::pin!(stop));
    let ended = select(stop, server.as_mut()).await;
    readiness.lose(Part::Running);
    draining.start();
    match ended {
        Either::Left(((), _)) => {
            info!("Draining: accepting no new requests, finishing those in progress");
            futures::join!(server, handle.stop(true)).0
        }
        // The process ends with its server; a supervisor starts a new one.
        Either::Right((served, _)) => served,
    }
}

/// Warns if the process serves a network but its address for other processes is a loopback address: workers on other
/// machines could not send it the results that its requests wait for.
fn warn_of_loopback(config: &Config, internal: SocketAddr) {
    let is_shared = matches!(config.storage, StorageConfig::Azure { .. }) && config.advertise.is_none();
    if is_shared && internal.ip().is_loopback() && !config.bind.ip().is_loopback() {
        warn!(
            "bind is {}, but other processes of the bank can reach this one only on this machine, at {internal}: set \
             worker-bind, for example to 0.0.0.0:0, if there are several machines",
            config.bind
        );
    }
}

/// Raises the limit of open files for `connections_max`. Each connection uses two files, because the connection monitor
/// duplicates the socket. Many systems start with a limit of 1024 although they allow more.
fn raise_file_limit(connections_max: usize) {
    let wanted = connections_max.saturating_mul(2).saturating_add(OTHER_FILES);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let limits = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let is_below = |limit: Option<u64>| limit.is_some_and(|limit| limit < wanted);
    if !is_below(limits.current) {
        return;
    }
    let raised = limits.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limits }) {
        warn!("The limit of open files cannot be raised: {error}");
    } else if raised < wanted {
        warn!(
            "connections-max is {connections_max}, which may need {wanted} open files, but the system allows \
             {raised}: lower connections-max, or raise the limit (ulimit -n)"
        );
    }
}

/// Runs the worker in this process. On the embedded store it first enqueues accepted transactions without a message, which
/// a copied or repaired file can contain.
async fn run_worker(
    worker: Worker,
    bank: &Bank,
    network: &PeerNetwork,
    (config, address): (&Config, Address),
    draining: &Drain,
    on_registered: impl FnOnce(),
) {
    if matches!(config.storage, StorageConfig::Sqlite { .. }) {
        match bank.repair.recover(RecoveryScope::Unqueued).await {
            Ok(Recovered { enqueued: 0, .. }) => {}
            Ok(Recovered { enqueued, .. }) => {
                warn!("Enqueued {enqueued} accepted transactions that had no message")
            }
            Err(fault) => {
                error!("Could not look for accepted transactions without a message: {}", chain(&fault))
            }
        }
    }
    run_registered(worker, bank, network, address, draining, on_registered).await;
}

/// Keeps a process without a worker registered, and applies the gate, because the process posts requests that wait.
async fn run_without_worker(
    bank: &Bank,
    network: &PeerNetwork,
    (process_gate, address): (&ProcessGate, Address),
    draining: &Drain,
    on_registered: impl FnOnce(),
) {
    futures::join!(
        keep_registered(bank, network, (ProcessKind::Web, address), draining, on_registered),
        process_gate.watch(draining),
        run_every(process_gate, GATE_INTERVAL, &*bank.world, draining),
    );
}

/// Establishes the first key of an empty store, and prints or saves the key if it was generated.
async fn establish_first_key(
    first_key: FirstKey,
    bank: Bank,
    keyring: Arc<Keyring>,
    readiness: Arc<Readiness>,
) {
    let established = first_key.establish_with_retry(&bank.store, &*bank.world, &readiness).await;
    keyring.first_key_is_known();
    match established {
        FirstKeyOutcome::Made(key) => first_key.place().show(&key),
        FirstKeyOutcome::NotKept(failure) => error!(
            "No API key was made: standard output is not a terminal, and a private file for the key cannot be written: \
             {failure}. Make a key with: postonce-web partners add {BOOTSTRAP_PARTNER} --all-accounts --scope {}",
            Scope::ALL.iter().map(|scope| scope.code()).collect::<Vec<_>>().join(",")
        ),
        FirstKeyOutcome::Configured | FirstKeyOutcome::AlreadyPresent => {}
        FirstKeyOutcome::ConfiguredIgnored => {
            warn!("Partner bootstrap already has other keys; the setting bootstrap-key is ignored");
        }
    }
}
