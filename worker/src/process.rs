//! The running worker process: its listeners, its server and its entry in the process registry.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{Either, join, select};
use postonce_shared::adapters::http::{PeerNetwork, advertised};
use postonce_shared::bank::Bank;
use postonce_shared::config::Config;
use postonce_shared::messaging::envelope;
use postonce_shared::ports::process_registry::{Address, ProcessKind};
use tracing::info;

use crate::drain::{Drain, drain};
use crate::http::{PeerState, WorkerApp, serve};
use crate::readiness::{Part, Readiness};
use crate::upkeep::heartbeat::Heartbeat;
use crate::worker::Worker;

/// Runs a worker until `stop` returns, and then drains it: work in progress is finished, for at most 10 s.
///
/// # Errors
/// Fails if the address is in use or the server fails.
pub async fn run(
    worker: Worker,
    bank: &Bank,
    network: &PeerNetwork,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(config.worker_bind)
        .with_context(|| format!("cannot listen on {}", config.worker_bind))?;
    let bound = listener.local_addr().context("the listening address cannot be read")?;
    let address = advertised(config.advertise.as_ref(), bound, config.storage.is_embedded());
    let readiness = Readiness::starting([Part::Ledger, Part::Queue, Part::ProcessRegistry]);
    let callee =
        PeerState::of(bank, network, worker.meter(), worker.gatekeeper(), &readiness, address.clone());
    let app = WorkerApp { callee, prices: config.prices.clone() };
    let server = serve(app, listener).context("the server cannot be started")?;
    let handle = server.handle();
    info!("listening on http://{bound}");

    let queue = envelope::queues(bank.queue_count).swap_remove(0);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, Arc::clone(&bank.world));
    bank.world.spawn(watch.boxed());
    find_secret(bank, network);
    let (starter, draining) = drain();
    bank.prepare_order_numbers();
    let work = async {
        // Only registered processes are notified when a partner or the gate changes. What was read before registration
        // may be outdated.
        let on_registered = || {
            bank.partner_grants.forget(None);
            bank.gate_permits.forget();
            readiness.gain(Part::ProcessRegistry);
        };
        run_registered(worker, bank, network, (config, address), &draining, on_registered).await;
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
            // A worker without a server would only be slower. Ending lets a supervisor replace it.
            Either::Right((served, _)) => served,
        }
    };
    let (served, ()) = join(serving, work).await;
    served.context("the server failed")
}

/// Establishes the secret during the start: the store may be unavailable.
pub fn find_secret(bank: &Bank, network: &PeerNetwork) {
    let (secret, sync, world) =
        (Arc::clone(&network.secret), Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
    bank.world.spawn(async move { secret.establish(&*sync, &*world).await }.boxed());
}

/// Runs a worker that other processes can ring at the address. Calls `on_registered` once the process is registered.
pub async fn run_registered(
    mut worker: Worker,
    bank: &Bank,
    network: &PeerNetwork,
    (config, address): (&Config, Address),
    draining: &Drain,
    on_registered: impl FnOnce(),
) {
    let (registry, idle) = (&bank.store.process_registry, config.idle_poll_max);
    let own = (network.id, ProcessKind::Worker);
    let heartbeat = Arc::new(Heartbeat::new(registry, &bank.world, own, address, idle));
    worker.add_background_task(heartbeat.clone());
    futures::join!(worker.run(draining), heartbeat.keep_registered(draining, on_registered));
}
