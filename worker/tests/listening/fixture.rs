//! Processes over one memory store and one clock, with a handler that records messages.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_process::background_task::BackgroundTask;
use postonce_process::drain::{Drain, DrainStarter, drain};
use postonce_process::meter::Meter;
use postonce_process::process_gate::ProcessGate;
use postonce_shared::cluster::gate::permits::GatePermits;
use postonce_shared::config::ReceiversRule;
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered::listed_permits;
use postonce_worker::config::{Bounds, IdleDelays};
use postonce_worker::listening::delivery::{Delivery, DeliveryError};
use postonce_worker::listening::handler::{Handled, Handler, Health};
use postonce_worker::listening::leases::QueueLeases;
use postonce_worker::listening::listener::Listener;
use postonce_worker::listening::session::SessionContext;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub const VISIBILITY: Duration = Duration::from_secs(20);
pub const QUEUES: u16 = 4;

pub fn queue(partition: u16) -> QueueName {
    QueueName::of_partition("letter", partition)
}

/// A handler that records the messages that it deletes, as fast as its permits allow.
pub struct RecordingHandler {
    pub store: Store,
    pub handled: Mutex<BTreeMap<String, usize>>,
    pub allowed: Semaphore,
    /// Permits for `settle`: one for each call.
    pub settling: Semaphore,
    /// `settle` reports that the store is unavailable.
    pub unavailable: AtomicBool,
    pub at_once: AtomicUsize,
    pub at_once_max: AtomicUsize,
    /// The delay for which the next message is returned to the queue, instead of being handled.
    pub give_back: Mutex<Option<Duration>>,
}

impl RecordingHandler {
    pub fn of(store: &Store) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            handled: Mutex::default(),
            allowed: Semaphore::new(Semaphore::MAX_PERMITS),
            settling: Semaphore::new(Semaphore::MAX_PERMITS),
            unavailable: AtomicBool::new(false),
            at_once: AtomicUsize::new(0),
            at_once_max: AtomicUsize::new(0),
            give_back: Mutex::default(),
        })
    }

    pub fn handled_count(&self) -> usize {
        self.handled.lock().values().sum()
    }
}

#[async_trait]
impl Handler for RecordingHandler {
    type Work = String;
    type Done = Vec<Duration>;

    const NAME: &'static str = "letter";

    async fn read(&self, message: &Message) -> Result<String, DeliveryError> {
        Ok(String::from_utf8(message.body.clone()).unwrap())
    }

    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<String>>) -> (Vec<Duration>, Health) {
        let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_max.fetch_max(at_once, Ordering::SeqCst);
        let mut visibility_delays = Vec::new();
        self.allowed.acquire().await.unwrap().forget();
        for delivery in deliveries {
            let lease = delivery.lease().unwrap();
            let back = self.give_back.lock().take();
            if let Some(delay) = back {
                let _ = self.store.queue.extend(queue, &lease, &delivery.message.body, delay).await.unwrap();
                visibility_delays.push(delay);
                continue;
            }
            let _ = self.store.queue.delete(queue, &lease).await.unwrap();
            *self.handled.lock().entry(delivery.content.unwrap()).or_default() += 1;
        }
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        (visibility_delays, Health::Healthy)
    }

    async fn settle(&self, _: &QueueName, visibility_delays: Vec<Duration>) -> Handled {
        self.settling.acquire().await.unwrap().forget();
        let health =
            if self.unavailable.load(Ordering::SeqCst) { Health::Unavailable } else { Health::Healthy };
        Handled { health, visibility_delays }
    }

    async fn is_ready(&self) -> bool {
        true
    }
}

/// One store and one clock for the processes of a test.
pub struct Fixture {
    pub world: Arc<TestWorld>,
    pub store: Store,
}

pub struct Process {
    pub handler: Arc<RecordingHandler>,
    pub bell: Arc<LocalDoorbell>,
    pub permits: Arc<GatePermits>,
    pub process_gate: Arc<ProcessGate>,
    pub meter: Arc<Meter>,
    pub leases: Arc<QueueLeases>,
    pub starter: DrainStarter,
    pub drain: Drain,
    pub task: JoinHandle<()>,
}

impl Process {
    /// From now on its handler waits for permits.
    pub fn block(&self) {
        self.handler.allowed.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Ends the process at once: the messages that it has received stay leased.
    pub fn die(self) {
        self.task.abort();
    }
}

impl Fixture {
    pub fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        Self { world, store }
    }

    pub fn gate(&self) -> Gate {
        let world: Arc<dyn World> = self.world.clone();
        Gate::new(&self.store, &world)
    }

    /// Holds the gate. Returns its epoch.
    pub async fn hold(&self) -> u64 {
        let held = GateState::Held { release_at: None };
        self.gate().set(held, &GateAct::by("a test")).await.unwrap().value.epoch
    }

    /// Releases the gate. Returns its epoch.
    pub async fn release(&self) -> u64 {
        self.gate().set(GateState::Released, &GateAct::by("a test")).await.unwrap().value.epoch
    }

    /// Sends a message, and rings for it at a process.
    pub async fn deliver(&self, process: &Process, partition: u16, body: &str) {
        self.send(partition, body).await;
        process.bell.ring(&queue(partition));
    }

    /// Starts a process that polls at least every `idle_delay_max` and has up to `ceiling` receivers.
    pub fn process(&self, idle_delay_max: Duration, ceiling: usize) -> Process {
        let bell: Arc<LocalDoorbell> = Arc::default();
        let doorbell = Arc::clone(&bell);
        self.process_rung_by(bell, doorbell, IdleDelays::fixed(idle_delay_max), ceiling)
    }

    /// Starts a process with a doorbell of the test. `bell` receives its rings.
    pub fn process_rung_by(
        &self,
        bell: Arc<LocalDoorbell>,
        doorbell: Arc<dyn Doorbell>,
        idle_delays: IdleDelays,
        ceiling: usize,
    ) -> Process {
        let world: Arc<dyn World> = self.world.clone();
        let (starter, drain) = drain();
        let (handler, meter) = (RecordingHandler::of(&self.store), Arc::new(Meter::default()));
        let permits = listed_permits(&world);
        let process_gate =
            Arc::new(ProcessGate::new(self.gate(), Arc::clone(&permits), Arc::clone(&world), false));
        let queues = (0..QUEUES).map(queue).collect();
        let (me, sync) = (world.uuid(), Arc::clone(&self.store.sync));
        let leases =
            QueueLeases::new(me, RecordingHandler::NAME, queues, sync, Arc::clone(&world), VISIBILITY / 2);
        let leases = Arc::new(leases);
        let ceiling = NonZeroUsize::new(ceiling).unwrap();
        let context = SessionContext {
            handler: Arc::clone(&handler),
            queue: Arc::clone(&self.store.queue),
            process_gate: Arc::clone(&process_gate),
            leases: Arc::clone(&leases),
            world,
            meter: Arc::clone(&meter),
            visibility_timeout: VISIBILITY,
            receivers: Bounds { floor: NonZeroUsize::MIN, ceiling },
            receivers_rule: ReceiversRule::Adaptive,
            drain: drain.clone(),
        };
        let background_tasks: Vec<Arc<dyn BackgroundTask>> = vec![process_gate.clone()];
        let listener = Listener { context: Arc::new(context), doorbell, idle_delays, background_tasks };
        let (watching, until) = (Arc::clone(&process_gate), drain.clone());
        let task = tokio::spawn(async move {
            futures::join!(watching.watch(&until), listener.run());
        });
        Process { handler, bell, permits, process_gate, meter, leases, starter, drain, task }
    }

    pub async fn send(&self, partition: u16, body: &str) {
        self.store.queue.send(&queue(partition), body.as_bytes(), Duration::ZERO).await.unwrap();
    }

    pub fn operations(&self) -> u64 {
        self.store.operations.snapshot().values().sum()
    }

    /// Advances the clock in steps, and runs all tasks after each step.
    pub async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(250);
        let mut passed = Duration::ZERO;
        settle().await;
        while passed < time {
            self.world.advance(step);
            passed += step;
            settle().await;
        }
    }
}

/// Runs all tasks until they wait.
pub async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}
