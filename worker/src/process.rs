//! The running worker process: its listeners, its server, its place in the roster.

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

/// Runs a worker until `stop` returns; then drains: what is in hand is finished, for at most 10 s.
///
/// # Errors
/// When the address is taken, or the server fails.
pub async fn run(
    worker: Worker,
    bank: &Bank,
    exchange: &PeerNetwork,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(config.worker_bind)
        .with_context(|| format!("cannot listen on {}", config.worker_bind))?;
    let bound = listener.local_addr().context("the listening address cannot be read")?;
    let address = advertised(config.advertise.as_ref(), bound, config.storage.is_embedded());
    let readiness = Readiness::starting([Part::Ledger, Part::Queue, Part::ProcessRegistry]);
    let callee =
        PeerState::of(bank, exchange, worker.meter(), Some(worker.gatekeeper()), &readiness, address.clone());
    let app = WorkerApp { callee, prices: config.prices.clone() };
    let server = serve(app, listener).context("the server cannot be started")?;
    let handle = server.handle();
    info!("listening on http://{bound}");

    let queue = envelope::queues(bank.queue_count).swap_remove(0);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, Arc::clone(&bank.world));
    bank.world.spawn(watch.boxed());
    find_secret(bank, exchange);
    let (starter, draining) = drain();
    let work = async {
        // Changes of partners are told to processes in the roster: what was read before it is forgotten.
        let announced = || {
            bank.partner_grants.forget(None);
            readiness.gain(Part::ProcessRegistry);
        };
        run_in_roster(worker, bank, exchange, (config, address), &draining, announced).await;
        // Until then others can see it drain.
        handle.stop(true).await;
    };
    let serving = async {
        let (mut server, stop) = (std::pin::pin!(server), std::pin::pin!(stop));
        let ended = select(stop, server.as_mut()).await;
        readiness.lose(Part::Running);
        starter.start();
        match ended {
            Either::Left(((), _)) => {
                info!("Draining: receiving no more, finishing what is in hand");
                server.await
            }
            // A worker that cannot be called would only be slow, but a supervisor can do better.
            Either::Right((served, _)) => served,
        }
    };
    let (served, ()) = join(serving, work).await;
    served.context("the server failed")
}

/// Finds the secret beside the start: the store may be away.
pub fn find_secret(bank: &Bank, exchange: &PeerNetwork) {
    let (secret, sync, world) =
        (Arc::clone(&exchange.secret), Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
    bank.world.spawn(async move { secret.establish(&*sync, &*world).await }.boxed());
}

/// Runs a worker that others can ring at that address. Calls `announced` once they can.
pub async fn run_in_roster(
    mut worker: Worker,
    bank: &Bank,
    exchange: &PeerNetwork,
    (config, address): (&Config, Address),
    draining: &Drain,
    announced: impl FnOnce(),
) {
    let (roster, idle) = (&bank.store.process_registry, config.idle_poll_max);
    let own = (exchange.id, ProcessKind::Worker);
    let heartbeat = Arc::new(Heartbeat::new(roster, &bank.world, own, address, idle));
    worker.add_background_task(heartbeat.clone());
    futures::join!(worker.run(draining), heartbeat.keep(draining, announced));
}
