//! A running worker process: its listeners, its server and its registry entry.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_process::drain::{Drain, drain};
use postonce_process::http::{PeerState, WorkerApp, serve};
use postonce_process::metrics::{PriceCollector, ProcessMetrics};
use postonce_process::readiness::{Part, Readiness};
use postonce_process::upkeep::membership::{find_secret, keep_registered};
use postonce_process::upkeep::trace_export::TraceExport;
use postonce_process::upkeep::{
    activity, deleted_queues, disk, posted_numbers, scheduled_backup, secret_check,
};
use postonce_shared::adapters::http::{PeerNetwork, advertised};
use postonce_shared::bank::Bank;
use postonce_shared::config::Config;
use postonce_shared::messaging::envelope;
use postonce_shared::ports::process_registry::{Address, ProcessKind};
use postonce_shared::ports::rights::QueueUse;
use tracing::info;

use crate::worker::Worker;

/// Runs a worker until `stop` returns, and then drains it: work in progress has at most 10 s to finish.
///
/// # Errors
/// Fails if the export of traces or the server cannot be started, or if the server fails.
pub async fn run(
    worker: Worker,
    bank: &Bank,
    network: &PeerNetwork,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let traces = TraceExport::start("postonce-worker", config, bank, network)?;
    let listener = TcpListener::bind(config.worker_bind)
        .with_context(|| format!("cannot listen on {}", config.worker_bind))?;
    let bound = listener.local_addr().context("the listening address cannot be read")?;
    let address = advertised(config.advertise.as_ref(), bound, config.storage.is_embedded());
    let parts = [Part::Ledger, Part::Queue, Part::Rights, Part::ProcessRegistry, Part::Secret];
    let readiness = Readiness::starting(parts, &bank.world);
    let callee =
        PeerState::of(bank, network, worker.meter(), worker.process_gate(), &readiness, address.clone());
    let meter = Arc::clone(worker.meter());
    let mut metrics = ProcessMetrics::of(bank, &meter, &readiness);
    PriceCollector::register(config, bank, metrics.of_bank());
    let app = WorkerApp { callee, metrics };
    let server = serve(app, listener).context("the server cannot be started")?;
    let handle = server.handle();
    info!("listening on http://{bound}");

    let queue = (envelope::queues(bank.queue_count).swap_remove(0), QueueUse::Process);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, Arc::clone(&bank.world));
    bank.world.spawn(watch.boxed());
    let follow = Arc::clone(&readiness).follow(Arc::clone(&meter), bank.store.files.clone());
    bank.world.spawn(follow.boxed());
    find_secret(bank, network);
    secret_check::start(bank, network, &readiness);
    deleted_queues::watch(bank);
    let (starter, draining) = drain();
    bank.prepare_order_numbers();
    let work = async {
        // Only registered processes are notified when a partner changes, so values read before may be outdated.
        let on_registered = || {
            bank.partner_grants.forget(None);
            readiness.gain(Part::ProcessRegistry);
        };
        run_registered(worker, bank, network, address, &draining, on_registered).await;
        bank.close_order_numbers().await;
        // The server stops last, so that other processes can read the status of this one while it drains.
        handle.stop(true).await;
    };
    let serving = async {
        let (mut server, stop) = (std::pin::pin!(server), std::pin::pin!(stop));
        let ended = select(stop, server.as_mut()).await;
        readiness.lose(Part::Running);
        starter.start();
        match ended {
            Either::Left(((), _)) => {
                info!("Draining: receiving no more messages, finishing work in progress");
                server.await
            }
            // A worker without a server would only be slower. Ending it lets a supervisor replace it.
            Either::Right((served, _)) => served,
        }
    };
    let disk = disk::watch(&config.storage, &readiness, &meter, (&*bank.world, &draining));
    let numbers = posted_numbers::record(bank, &draining);
    let backups = scheduled_backup::run(config, &meter, &bank.world, &draining);
    let activity = activity::record(bank, &meter, &draining);
    let (served, ..) = futures::join!(serving, work, disk, numbers, backups, activity);
    traces.close().await;
    served.context("the server failed")
}

/// Runs a worker that other processes can ring at `address`. Calls `on_registered` once the process is registered.
pub async fn run_registered(
    worker: Worker,
    bank: &Bank,
    network: &PeerNetwork,
    address: Address,
    draining: &Drain,
    on_registered: impl FnOnce(),
) {
    let own = (ProcessKind::Worker, address);
    futures::join!(worker.run(draining), keep_registered(bank, network, own, draining, on_registered));
}
