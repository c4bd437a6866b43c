//! A worker: the listeners and tasks that post in one process.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, join, select};
use postonce_process::background_task::BackgroundTask;
use postonce_process::drain::{DRAIN_MAX, Drain};
use postonce_process::meter::Meter;
use postonce_process::process_gate::ProcessGate;
use postonce_process::upkeep::deleted_queues;
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages;
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::queue_count::QueueCount;
use postonce_shared::oversight::anchors::{AnchorFolder, AnchorSigner};
use postonce_shared::oversight::scrubber::{Anchoring, Scrubber};
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::WorldExt as _;
use tracing::{error, info};

use crate::batches::upkeep::BatchUpkeep;
use crate::batches::{BatchHandler, Controller, Initiator, Processor, Role};
use crate::config::{IdleDelays, WorkerConfig};
use crate::ingest::Ingest;
use crate::listening::handler::Handler;
use crate::listening::leases::QueueLeases;
use crate::listening::listener::Listener;
use crate::listening::session::SessionContext;
use crate::posting::posting_handler::PostingHandler;
use crate::upkeep::payload_sweep::PayloadSweep;
use crate::upkeep::queue_growth::QueueGrowth;

/// A worker that was not started yet.
pub struct Worker {
    bank: Bank,
    config: WorkerConfig,
    meter: Arc<Meter>,
    process_gate: Arc<ProcessGate>,
    background_tasks: Vec<Arc<dyn BackgroundTask>>,
}

impl Worker {
    /// Creates a worker of the bank. Reads nothing yet.
    pub fn new(bank: &Bank, config: WorkerConfig, meter: Arc<Meter>) -> Self {
        let process_gate = ProcessGate::of(bank, config.held);
        let background_tasks: Vec<Arc<dyn BackgroundTask>> = vec![
            process_gate.clone(),
            Arc::new(PayloadSweep::new(bank)),
            Arc::new(BatchUpkeep::new(bank)),
            Arc::new(QueueGrowth::new(bank)),
        ];
        Self { bank: bank.clone(), config, meter, process_gate, background_tasks }
    }

    /// Returns the counters of the worker.
    pub const fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns the gate, which applies the gate in this process.
    pub fn process_gate(&self) -> Arc<ProcessGate> {
        Arc::clone(&self.process_gate)
    }

    /// Listens to all queues of the bank until the drain starts. Then work in progress has at most [`DRAIN_MAX`] to finish.
    pub async fn run(self, drain: &Drain) {
        let (queue_count, before) = self.queue_count(drain).await;
        // Without the secret, no seal can be verified, and each message would cost reads of its rows.
        self.bank.seal.ready(&*self.bank.world).await;
        info!("Listening to {queue_count} queue(s)");
        if before > 0 {
            deleted_queues::restore_missing(&self.bank, envelope::queues(before));
        }
        deleted_queues::create(&self.bank, messages::queues(queue_count));
        let ingest = Ingest::new(&self.bank, &self.meter, &self.config);
        // Each in a task of its own: a queue that the process may not create does not delay the others.
        ingest.queues().into_iter().for_each(|queue| deleted_queues::create(&self.bank, vec![queue]));
        let process_gate = Arc::clone(&self.process_gate);
        let bank = self.bank.clone();
        let accepting = join(ingest.run(drain), self.scrub(drain));
        let listening = join(process_gate.watch(drain), join(self.listen(queue_count, drain), accepting));
        let late = async {
            drain.started().await;
            bank.world.sleep(DRAIN_MAX).await;
        };
        match select(pin!(listening), pin!(late)).await {
            Either::Left(_) => info!("Drained: no work is in progress"),
            Either::Right(_) => {
                error!("The drain did not end within {DRAIN_MAX:?}; unfinished work will be redelivered")
            }
        }
    }

    /// Returns the largest number of queues ever used, or the configured number if the drain starts before the largest is
    /// known. The second value is the largest number before this process started: zero if this is the first process of the
    /// bank, or if the number is unknown.
    async fn queue_count(&self, drain: &Drain) -> (u16, u16) {
        let count = QueueCount::new(&self.bank.store, Arc::clone(&self.bank.world));
        let configured = self.bank.queue_count;
        let noted = async {
            let before = count.largest().await;
            (count.record_with_retry(configured).await, before.unwrap_or(0))
        };
        match select(pin!(noted), pin!(drain.started())).await {
            Either::Left((noted, _)) => noted,
            Either::Right(_) => (configured, 0),
        }
    }

    /// Listens to the queues of all kinds of work. Only the listener of single requests runs safety polls and the background
    /// tasks, one of which continues open batches.
    async fn listen(&self, queue_count: u16, drain: &Drain) {
        let Self { bank, config, meter, background_tasks, .. } = self;
        let posting = PostingHandler::new(bank, Arc::clone(meter), config);
        let delays = (config.idle_delays, background_tasks.clone());
        let posting = self.listener(posting, envelope::queues(queue_count), delays, drain);
        let batches = || bank.batches.clone();
        let processor = Processor { batches: batches(), world: Arc::clone(&bank.world) };
        let controller = Controller { batches: batches(), seal: bank.seal.clone() };
        futures::join!(
            posting.run(),
            self.batch_listener(Initiator(batches()), vec![messages::split_queue()], drain).run(),
            self.batch_listener(processor, messages::post_queues(queue_count), drain).run(),
            self.batch_listener(controller, vec![messages::count_queue()], drain).run(),
        );
    }

    /// Scrubs the store until the drain starts.
    async fn scrub(&self, drain: &Drain) {
        let Self { bank, config, meter, .. } = self;
        let (registration, world) = (Arc::clone(&bank.registration), Arc::clone(&bank.world));
        let status = Arc::clone(&meter.scrubber);
        let mut scrubber =
            Scrubber::new(&bank.store, bank.repair.clone(), registration, world, config.scrubber, status);
        if let Some(key) = config.anchors.key.clone() {
            let signer = AnchorSigner::new(&bank.store, &bank.world, key);
            let folder = config.anchors.folder.clone().map(AnchorFolder::new);
            scrubber.make_anchors(Anchoring { signer, folder });
        }
        let scrubbing = async {
            loop {
                let pause = scrubber.step().await;
                bank.world.sleep(pause).await;
            }
        };
        select(pin!(scrubbing), pin!(drain.started())).await;
    }

    fn batch_listener<R: Role>(
        &self,
        role: R,
        queues: Vec<QueueName>,
        drain: &Drain,
    ) -> Listener<BatchHandler<R>> {
        let handler = BatchHandler::new(role, &self.bank, &self.meter, &self.config);
        self.listener(handler, queues, (IdleDelays::NEVER, Vec::new()), drain)
    }

    fn listener<H: Handler>(
        &self,
        handler: H,
        queues: Vec<QueueName>,
        (idle_delays, background_tasks): (IdleDelays, Vec<Arc<dyn BackgroundTask>>),
        drain: &Drain,
    ) -> Listener<H> {
        let Self { bank, config, meter, process_gate, .. } = self;
        let WorkerConfig { visibility_timeout, receivers, ref receivers_rule, .. } = *config;
        let world = || Arc::clone(&bank.world);
        let leases = QueueLeases::new(
            bank.world.uuid(),
            H::NAME,
            queues,
            Arc::clone(&bank.store.sync),
            world(),
            // Half of the visibility timeout, so that queues of a dead worker are taken over before its messages become
            // visible.
            visibility_timeout.checked_div(2).unwrap_or_default(),
        );
        let context = SessionContext {
            handler: Arc::new(handler),
            queue: Arc::clone(&bank.store.queue),
            process_gate: Arc::clone(process_gate),
            leases: Arc::new(leases),
            world: world(),
            meter: Arc::clone(meter),
            visibility_timeout,
            receivers,
            receivers_rule: receivers_rule.clone(),
            drain: drain.clone(),
        };
        Listener {
            context: Arc::new(context),
            doorbell: Arc::clone(&bank.doorbell),
            idle_delays,
            background_tasks,
        }
    }
}
