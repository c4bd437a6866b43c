//! A worker: the listeners of all queues in one process.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, join_all, select};
use postonce_shared::bank::Bank;
use postonce_shared::envelope;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::queue::QueueName;
use tracing::{error, info, warn};

use crate::drain::Drain;
use crate::listener::{LedgerWatch, Listener, ListenerConfig};
use crate::meter::Meter;
use crate::settle::Settlement;

/// How long a drain may take: what is in hand then comes back when its leases end.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long giving back unused order numbers may take: losing some of them does no harm.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(2);
/// Wait before a listener that fell over is started again.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Listens to all queues of the bank until the drain starts, and finishes what is in hand, for at
/// most [`DRAIN_MAX`]. Unused order numbers are given back at the end.
pub async fn run(bank: &Bank, config: &ListenerConfig, meter: &Arc<Meter>, drain: &Drain) {
    let ledger_watch = Arc::new(LedgerWatch::default());
    let queues = envelope::queues(bank.queue_count);
    info!("Listening to {} queue(s)", queues.len());
    let mut listeners = Vec::with_capacity(queues.len());
    for name in queues {
        meter.listeners(&name).add_listener();
        let assembly = Assembly {
            bank: bank.clone(),
            name,
            config: config.clone(),
            meter: Arc::clone(meter),
            ledger_watch: Arc::clone(&ledger_watch),
        };
        listeners.push(keep_listening(assembly, drain));
    }
    let listening = join_all(listeners);
    let late = async {
        drain.started().await;
        bank.world.sleep(DRAIN_MAX).await;
    };
    match select(std::pin::pin!(listening), std::pin::pin!(late)).await {
        Either::Left(_) => info!("Drained: nothing is in hand"),
        Either::Right(_) => {
            error!("Gave up draining after {DRAIN_MAX:?}; what is in hand will be redelivered")
        }
    }
    match select(bank.order_numbers.close().boxed(), bank.world.sleep(CLOSING_TIME_MAX)).await {
        Either::Left((Ok(()), _)) => {}
        Either::Left((Err(fault), _)) => warn!("Unused order numbers are lost: {}", chain(&fault)),
        Either::Right(_) => warn!("Unused order numbers are lost: the store did not answer in time"),
    }
}

/// What the listener of one queue is made of.
struct Assembly {
    bank: Bank,
    name: QueueName,
    config: ListenerConfig,
    meter: Arc<Meter>,
    ledger_watch: Arc<LedgerWatch>,
}

/// Runs a listener, and another one after it should it fall over a bug: one bad batch must not
/// silence a queue. The batch comes back when its leases end.
async fn keep_listening(assembly: Assembly, drain: &Drain) {
    while !drain.is_started() {
        let listening = assembly.listener().run(drain.clone());
        if AssertUnwindSafe(listening).catch_unwind().await.is_err() {
            let name = &assembly.name;
            error!(queue = %name, "The listener of {name} fell over a bug; starting another one");
            assembly.bank.world.sleep(RESTART_DELAY).await;
        }
    }
}

impl Assembly {
    fn listener(&self) -> Listener {
        let Self { bank, name, config, meter, ledger_watch } = self;
        let settlement = Settlement {
            name: name.clone(),
            queue: Arc::clone(&bank.store.queue),
            ledger: Arc::clone(&bank.store.ledger),
            office: Arc::clone(&bank.dead_letter_office),
            world: Arc::clone(&bank.world),
            meter: Arc::clone(meter),
        };
        Listener {
            name: name.clone(),
            config: config.clone(),
            queue: Arc::clone(&bank.store.queue),
            ledger: Arc::clone(&bank.store.ledger),
            poster: Arc::clone(&bank.poster),
            settlement,
            doorbell: Arc::clone(&bank.doorbell),
            world: Arc::clone(&bank.world),
            meter: Arc::clone(meter),
            ledger_watch: Arc::clone(ledger_watch),
        }
    }
}
