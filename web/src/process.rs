//! The running service: server, readiness, first key, and the worker where it is hosted here.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::bank::Bank;
use postonce_shared::config::{Config, StorageConfig};
use postonce_shared::envelope;
use postonce_shared::recover::{Recovered, Scope};
use postonce_worker::drain::{Drain, drain};
use postonce_worker::meter::Meter;
use postonce_worker::worker::{Worker, WorkerConfig};
use tracing::{error, info, warn};

use crate::api_keys::{Established, FirstKey};
use crate::gate_desk::{GateDesk, WorkerHere};
use crate::keyring::Keyring;
use crate::metrics::Metrics;
use crate::readiness::{Part, Readiness};
use crate::server::{App, serve};
use crate::worker_metrics::{WorkerCollector, WorkerStatus};
use postonce_shared::ports::fault::chain;

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
    config: &Config,
    hosting: Hosting,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(config.bind).with_context(|| format!("cannot listen on {}", config.bind))?;
    let address = listener.local_addr().context("the listening address cannot be read")?;
    let first_key = FirstKey::try_new(config.bootstrap_key.as_ref()).context("bootstrap-key")?;
    let (meter, readiness) = (Arc::new(Meter::default()), Readiness::starting());
    let worker = match hosting {
        Hosting::WithWorker => Some(Worker::new(bank, WorkerConfig::from(config), Arc::clone(&meter))),
        Hosting::WebOnly => None,
    };
    let mut app = app(bank, &meter, &readiness);
    if let Some(worker) = &worker {
        let here = WorkerHere { gatekeeper: worker.gatekeeper(), address: format!("http://{address}") };
        app.gate = Arc::new(GateDesk::new(bank, vec![Arc::new(here)]));
    }
    let keyring = Arc::clone(&app.keyring);
    keyring.await_first_key();
    let server = serve(app, listener).context("the server cannot be started")?;
    let handle = server.handle();
    info!("listening on http://{address}");

    let queue = envelope::queues(bank.queue_count).swap_remove(0);
    let watch = Arc::clone(&readiness).watch(bank.store.clone(), queue, Arc::clone(&bank.world));
    bank.world.spawn(watch.boxed());
    bank.world.spawn(establish(first_key, bank.clone(), keyring, Arc::clone(&readiness)).boxed());
    let (starter, draining) = drain();
    let work = match worker {
        Some(worker) => work(bank, config, worker, &draining).boxed(),
        None => draining.started().boxed(),
    };
    let serving = async {
        let (mut server, stop) = (std::pin::pin!(server), std::pin::pin!(stop));
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

fn app(bank: &Bank, meter: &Arc<Meter>, readiness: &Arc<Readiness>) -> App {
    let metrics = Metrics::new(Arc::clone(&bank.store.operations));
    metrics.add(Box::new(WorkerCollector(Arc::clone(meter))));
    App::over(bank, Arc::new(WorkerStatus(Arc::clone(meter))), Arc::clone(readiness), metrics)
}

/// The worker in this process. On the embedded store it first looks for work that has no message,
/// as in a file that was copied or repaired.
async fn work(bank: &Bank, config: &Config, worker: Worker, draining: &Drain) {
    if matches!(config.storage, StorageConfig::Sqlite { .. }) {
        match bank.repair.recover(Scope::Unqueued).await {
            Ok(Recovered { enqueued: 0, .. }) => {}
            Ok(Recovered { enqueued, .. }) => {
                warn!("Enqueued {enqueued} accepted transactions that had no message")
            }
            Err(fault) => error!("Could not look for forgotten work: {}", chain(&fault)),
        }
    }
    worker.run(draining).await;
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
            warn!("The store has another first API key already; bootstrap-key is not taken up");
        }
    }
}
