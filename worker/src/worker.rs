//! A worker: what listens and posts in one process, put together.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, join, select};
use postonce_shared::bank::Bank;
use postonce_shared::config::Config;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::RequestRate;
use postonce_shared::envelope;
use postonce_shared::gate::Gate;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::WorldExt as _;
use postonce_shared::queue_count::QueueCount;
use tracing::{error, info, warn};

use crate::drain::Drain;
use crate::errand::Errand;
use crate::gatekeeper::Gatekeeper;
use crate::leases::QueueLeases;
use crate::listener::Listener;
use crate::meter::Meter;
use crate::posting::Posting;
use crate::receivers::Bounds;
use crate::session::Means;
use crate::sweeping::Sweeping;

/// How long a drain may take: what is in hand then comes back when its leases end.
pub const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long giving back unused order numbers may take: losing some of them does no harm.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(2);

/// What a worker goes by.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// How long a received message is hidden from others; renewed at half of it.
    pub visibility_timeout: Duration,
    /// Receipts after which a message is taken apart, and a single item set aside.
    pub dequeue_count_max: u32,
    /// Longest wait between two looks at empty queues.
    pub idle_delay_max: Duration,
    /// How many receivers a queue may have.
    pub receivers: Bounds,
    /// In whose name orders of direct producers are accepted; they are refused without one.
    pub legacy_partner: Option<PartnerId>,
    /// How many orders a second are accepted for it, if it has no rate of its own; in each process.
    pub request_rate: RequestRate,
    /// Whether to hold the gate first, if nobody ever touched it.
    pub held: bool,
}

impl From<&Config> for WorkerConfig {
    fn from(config: &Config) -> Self {
        Self {
            visibility_timeout: config.visibility_timeout,
            dequeue_count_max: config.dequeue_count_max,
            idle_delay_max: config.idle_poll_max,
            receivers: Bounds { floor: config.receivers_min, ceiling: config.receivers_max },
            legacy_partner: config.legacy_partner.clone(),
            request_rate: config.http.rate(),
            held: false,
        }
    }
}

/// A worker that does not run yet.
pub struct Worker {
    bank: Bank,
    config: WorkerConfig,
    meter: Arc<Meter>,
    gatekeeper: Arc<Gatekeeper>,
    errands: Vec<Arc<dyn Errand>>,
}

impl Worker {
    /// A worker of the bank. Nothing is read yet.
    pub fn new(bank: &Bank, config: WorkerConfig, meter: Arc<Meter>) -> Self {
        let gate = Gate::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
        let gatekeeper = Arc::new(Gatekeeper::new(gate, Arc::clone(&bank.world), config.held));
        let errands: Vec<Arc<dyn Errand>> = vec![gatekeeper.clone(), Arc::new(Sweeping::new(bank))];
        Self { bank: bank.clone(), config, meter, gatekeeper, errands }
    }

    /// What it counts.
    pub const fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Who obeys the gate here.
    pub fn gatekeeper(&self) -> Arc<Gatekeeper> {
        Arc::clone(&self.gatekeeper)
    }

    /// Adds a chore to those that ride on the safety poll, one at each.
    pub fn add_errand(&mut self, errand: Arc<dyn Errand>) {
        self.errands.push(errand);
    }

    /// Listens to all queues of the bank until the drain starts, and finishes what is in hand, for at
    /// most [`DRAIN_MAX`]. Unused order numbers are given back at the end.
    pub async fn run(self, drain: &Drain) {
        self.prepare_order_numbers();
        let queue_count = self.queue_count(drain).await;
        // Without it no message could be believed, and each would cost the reads of its rows.
        self.bank.seal.ready(&*self.bank.world).await;
        info!("Listening to {queue_count} queue(s)");
        let gatekeeper = Arc::clone(&self.gatekeeper);
        let bank = self.bank.clone();
        let listening = join(gatekeeper.watch(drain), self.listener(queue_count, drain).run());
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

    /// Reserves the first order numbers beside the start: the first posting need not wait for them, and
    /// neither do many workers that begin at the same moment, for each other.
    fn prepare_order_numbers(&self) {
        let numbers = Arc::clone(&self.bank.order_numbers);
        let prepare = async move {
            match numbers.take(1).await {
                Ok(unused) => numbers.give_back(unused),
                Err(fault) => warn!("No order numbers could be reserved yet: {}", chain(&fault)),
            }
        };
        self.bank.world.spawn(prepare.boxed());
    }

    /// The largest number of queues that work was ever spread over; as configured if that cannot be
    /// known before the drain starts.
    async fn queue_count(&self, drain: &Drain) -> u16 {
        let count = QueueCount::new(Arc::clone(&self.bank.store.sync), Arc::clone(&self.bank.world));
        let configured = self.bank.queue_count;
        let noted = count.note_at_last(configured);
        match select(std::pin::pin!(noted), std::pin::pin!(drain.started())).await {
            Either::Left((largest, _)) => largest,
            Either::Right(_) => configured,
        }
    }

    fn listener(&self, queue_count: u16, drain: &Drain) -> Listener<Posting> {
        let Self { bank, config, meter, gatekeeper, errands } = self;
        let WorkerConfig { visibility_timeout, idle_delay_max, receivers, .. } = config.clone();
        let world = || Arc::clone(&bank.world);
        let leases = QueueLeases::new(
            bank.world.uuid(),
            envelope::WORK,
            envelope::queues(queue_count),
            Arc::clone(&bank.store.sync),
            world(),
            // Half of it, so that a queue passes on well before the messages of a dead worker do.
            visibility_timeout.checked_div(2).unwrap_or_default(),
        );
        let means = Means {
            handler: Arc::new(Posting::new(bank, Arc::clone(meter), config)),
            queue: Arc::clone(&bank.store.queue),
            gatekeeper: Arc::clone(gatekeeper),
            leases: Arc::new(leases),
            world: world(),
            meter: Arc::clone(meter),
            visibility_timeout,
            receivers,
            drain: drain.clone(),
        };
        Listener {
            means: Arc::new(means),
            doorbell: Arc::clone(&bank.doorbell),
            idle_delay_max,
            errands: errands.clone(),
        }
    }
}
