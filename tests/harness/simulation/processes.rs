//! The processes of the bank: the production code of web and worker over simulated ports. Several processes run, crash, drain,
//! pause and restart.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};
use postonce_process::background_task::run_every;
use postonce_process::drain::{Drain, DrainStarter, drain};
use postonce_process::meter::Meter;
use postonce_process::process_gate::ProcessGate;
use postonce_process::upkeep::heartbeat::Heartbeat;
use postonce_shared::backoff::BATCH_COMMIT;
use postonce_shared::batches::messages;
use postonce_shared::cluster::contention::ContentionNotices;
use postonce_shared::cluster::replies::Replies;
use postonce_shared::cluster::reply_to::{ReplySeal, ReplyTo};
use postonce_shared::config::{AnchorTerms, HttpLimits, ReceiversRule};
use postonce_shared::messaging::envelope;
use postonce_shared::oversight::scrubber::ScrubberTerms;
use postonce_shared::ports::process_registry::{Address, ProcessId as RegistryId, ProcessKind};
use postonce_shared::posting::waiting::ServedCounts;
use postonce_shared::testing::prelude::*;
use postonce_worker::config::{Bounds, IdleDelays, WorkerConfig};
use postonce_worker::worker::Worker;

use super::batches::auditor::BatchAudit;
use super::faults::{Fault, length};
use super::immediate_counts::ImmediateCounts;
use super::mutations::Mutation;
use super::network::Network;
use super::ports::StoreConnection;
use super::process_world::ProcessWorld;
use super::scheduler::{ProcessId, Scheduler};

/// Maximum error of a wall clock, in milliseconds.
const SKEW_MS_MAX: u64 = 600_000;
/// Maximum delivery time of a ring or a reply.
const RING_TIME_MAX: Duration = Duration::from_millis(20);
/// Interval at which a process that only accepts requests reads the gate.
const GATE_POLL: Duration = Duration::from_secs(20);
/// Time for which a ping proves that rings arrive.
const PING_VALID: Duration = Duration::from_secs(75);
/// Maximum time until an ended process is restarted.
const RESTART_TIME_MAX: Duration = Duration::from_secs(20);

/// With this rate, a round of the scrubber over a simulated store takes less than a second.
const SCRUBBER_OPERATIONS_PER_DAY: u32 = 1_000_000;

/// Reason in the trace for the end of a process that did not drain.
const CRASHES: &str = "crashes";

/// The secret of all processes of a run.
pub const RING_SECRET: &str = "the-secret-of-the-simulation";

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Accepts requests.
    Web,
    /// Posts work.
    Worker,
    /// Accepts requests and posts work.
    WebWithWorker,
}

/// The settings of all processes of a run.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSettings {
    /// Number of work queues.
    pub queue_count: u16,
    /// Visibility timeout of received messages.
    pub visibility_timeout: Duration,
    /// Number of receipts after which the items of a message are posted one by one.
    pub dequeue_count_max: u32,
    /// Maximum times between two polls of empty queues.
    pub idle_delays: IdleDelays,
    /// Whether requests that wait are posted immediately if possible.
    pub immediate_posting: bool,
    /// Maximum number of items in a chunk of a batch.
    pub chunk_items_max: usize,
    /// Number of consecutive faults after which a chunk ends.
    pub chunk_faults_max: u32,
}

impl ProcessSettings {
    /// Draws settings from the seed.
    pub fn draw(scheduler: &Scheduler) -> Self {
        let seconds = |choices: &[u64]| Duration::from_secs(scheduler.one_of(choices));
        Self {
            queue_count: scheduler.one_of(&[1, 2, 3]),
            visibility_timeout: seconds(&[2, 5, 20]),
            dequeue_count_max: scheduler.one_of(&[2, 3, 5]),
            idle_delays: IdleDelays {
                unproven: seconds(&[1, 5, 60]),
                proven: seconds(&[60, 600]),
                ..IdleDelays::DEFAULT
            },
            immediate_posting: scheduler.below(8) > 0,
            chunk_items_max: scheduler.one_of(&[1, 2, 3, 5]),
            chunk_faults_max: scheduler.one_of(&[1, 1, 1, BATCH_COMMIT.attempts]),
        }
    }
}

impl ProcessSettings {
    /// Returns the queues of all kinds.
    pub fn queues(&self) -> Vec<QueueName> {
        [envelope::queues(self.queue_count), self.batch_queues()].concat()
    }

    /// Returns the queues of batches.
    pub fn batch_queues(&self) -> Vec<QueueName> {
        let others = vec![messages::split_queue(), messages::count_queue()];
        [others, messages::post_queues(self.queue_count)].concat()
    }
}

/// A running process.
#[derive(Clone)]
pub struct RunningProcess {
    /// Id of this run of the process.
    pub id: ProcessId,
    /// Id in the process registry.
    pub registry_id: RegistryId,
    /// The role of the process.
    pub role: Role,
    /// The production code of the process.
    pub bank: Bank,
    /// Applies the gate.
    pub process_gate: Arc<ProcessGate>,
    bell: Arc<LocalDoorbell>,
    address: Address,
    starter: Arc<DrainStarter>,
}

/// All processes, by slot. A slot keeps its role when its process restarts.
pub struct Processes {
    /// The network between the processes and the store.
    pub network: Arc<Network>,
    settings: ProcessSettings,
    slots: Mutex<BTreeMap<usize, RunningProcess>>,
    /// Counts of the requests of all processes, including ended ones.
    served: Mutex<Vec<Arc<ServedCounts>>>,
}

impl Processes {
    /// Creates an empty set of processes.
    pub fn new(network: &Arc<Network>, settings: ProcessSettings) -> Arc<Self> {
        let (network, served) = (Arc::clone(network), Mutex::default());
        Arc::new(Self { network, settings, slots: Mutex::default(), served })
    }

    /// Returns the counts of requests that were posted immediately, and of the reasons why others were not.
    pub fn immediate_counts(&self) -> ImmediateCounts {
        let mut counts = self.network.immediate_counts();
        self.served.lock().iter().for_each(|served| counts.add_served(served));
        counts
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<usize, RunningProcess>> {
        self.slots.lock()
    }

    fn scheduler(&self) -> &Scheduler {
        &self.network.scheduler
    }

    /// Drops all processes.
    pub fn clear(&self) {
        let processes = std::mem::take(&mut *self.slots());
        drop(processes);
    }

    /// Returns the running processes.
    pub fn running(&self) -> Vec<RunningProcess> {
        self.slots().values().filter(|process| self.scheduler().is_running(process.id)).cloned().collect()
    }

    /// Returns a random running process that accepts requests.
    pub fn any_web(&self) -> Option<RunningProcess> {
        let mut webs = self.running();
        webs.retain(|process| process.role != Role::Worker);
        self.scheduler().take_one(webs)
    }

    /// Starts the process of a slot.
    pub fn start(self: &Arc<Self>, slot: usize, role: Role) {
        let scheduler = self.scheduler().clone();
        let process_id = scheduler.start_process();
        self.network.auditor.started(process_id);
        let skewed = self.network.injects(Fault::ClockSkew);
        let skew = if skewed { i64::try_from(scheduler.below(SKEW_MS_MAX)).unwrap_or(0) } else { 0 };
        let skew = if scheduler.below(2) == 0 { skew } else { skew.saturating_neg() };
        self.network.note(format!("{} starts as {role:?}, its clock off by {skew} ms", process_id.number()));
        let world: Arc<dyn World> = Arc::new(ProcessWorld::new(scheduler, process_id, skew));
        let bell = Arc::new(LocalDoorbell::default());
        let keys = DoorbellKeys::parse(RING_SECRET).expect("it is long enough");
        let secret = DoorbellSecret::new(Some(&keys));
        let seal = ReplySeal::new(&secret, &world);
        let (processes, own_bell) = (Arc::clone(self), Arc::clone(&bell));
        let peers = Arc::new(PeerMessages { processes, bell: own_bell, seal: seal.clone() });
        let completions: Arc<Completions> = Arc::default();
        let address =
            Address::parse(&format!("process-{}:1", process_id.number())).expect("it is an address");
        completions.set_reply_address(address.clone(), seal);
        let seal = Seal::new(&secret);
        let (doorbell, replies, contention) = (peers.clone(), peers.clone(), peers);
        let links = Links { doorbell, completions, replies, seal, contention };
        let store = StoreConnection::ports(&self.network, process_id, &world);
        let mut bank = Bank::linked(store, world, links, self.bank_settings());
        bank.batches.chunk_items_max = self.settings.chunk_items_max;
        bank.batches.poster.faults_max = self.settings.chunk_faults_max;
        self.served.lock().push(Arc::clone(bank.acceptor.served()));
        let (ends, draining) = drain();
        let registry_id = RegistryId::from_uuid(bank.world.uuid());
        self.network.auditor.letters(|letters, _| letters.registered(process_id, registry_id));
        let kind = if role == Role::Web { ProcessKind::Web } else { ProcessKind::Worker };
        let (heartbeat, ending) =
            (Heartbeat::new(&bank, (registry_id, kind), address.clone()), draining.clone());
        let processes = Arc::clone(self);
        let ignores_gate = role == Role::Web && self.network.mutation == Some(Mutation::PostedAtHeldGate);
        let permits = Arc::clone(&bank.gate_permits);
        let on_registered = move || {
            if ignores_gate {
                // The maximum epoch, so that no later value is newer.
                let value = GateValue { epoch: u64::MAX, state: GateState::Released };
                permits.apply(&permits.begin_read(), &GateRecord { value, ..GateRecord::UNSET });
            }
        };
        let (process_gate, work) = if role == Role::Web {
            let process_gate = ProcessGate::of(&bank, false);
            (Arc::clone(&process_gate), run_web(process_gate, bank.clone(), draining).boxed())
        } else {
            let worker = Worker::new(&bank, self.worker_config(), Arc::new(Meter::default()));
            (worker.process_gate(), run_worker(worker, bank.clone(), draining).boxed())
        };
        let work = async move {
            futures::join!(work, heartbeat.keep_registered(&ending, on_registered));
            processes.end(slot, role, "drained");
        };
        bank.world.spawn(work.boxed());
        let starter = Arc::new(ends);
        let process =
            RunningProcess { id: process_id, registry_id, role, bank, process_gate, bell, address, starter };
        drop(self.slots().insert(slot, process));
    }

    fn bank_settings(&self) -> BankSettings {
        let forgets_open_work = self.network.mutation == Some(Mutation::OwnOpenWorkForgotten);
        BankSettings {
            immediate_posting: self.settings.immediate_posting,
            // The bank uses it only as the time for which it remembers its open work.
            visibility_timeout: if forgets_open_work {
                Duration::ZERO
            } else {
                self.settings.visibility_timeout
            },
            ..BankSettings::of_queues(self.settings.queue_count)
        }
    }

    fn worker_config(&self) -> WorkerConfig {
        WorkerConfig {
            visibility_timeout: self.settings.visibility_timeout,
            dequeue_count_max: self.settings.dequeue_count_max,
            idle_delays: self.settings.idle_delays,
            receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN.saturating_add(2) },
            receivers_rule: ReceiversRule::Adaptive,
            ingest: Vec::new(),
            request_rate: HttpLimits::default().rate(),
            scrubber: ScrubberTerms {
                operations_per_day: SCRUBBER_OPERATIONS_PER_DAY,
                delay: Duration::from_secs(30),
            },
            anchors: AnchorTerms::default(),
            held: false,
        }
    }

    /// Ends the process of a slot, and starts another one there later.
    pub fn end(self: &Arc<Self>, slot: usize, role: Role, why: &str) {
        let Some(process) = self.slots().get(&slot).cloned() else { return };
        if !self.scheduler().is_running(process.id) {
            return;
        }
        self.network.note(format!("{} {why}", process.id.number()));
        if why == CRASHES {
            self.network.auditor.crashed(process.registry_id);
        }
        self.scheduler().kill(process.id);
        self.network.auditor.batches(BatchAudit::process_ended);
        let processes = Arc::clone(self);
        let delay = self.scheduler().up_to(RESTART_TIME_MAX);
        let restart = async move {
            processes.scheduler().sleep(ProcessId::ENVIRONMENT, delay).await;
            processes.start(slot, role);
        };
        self.scheduler().spawn(ProcessId::ENVIRONMENT, restart.boxed());
    }

    /// Called between two steps: may crash, drain or pause a process.
    pub fn inject_faults(self: &Arc<Self>) {
        if let Some(process_id) = self.network.due_crash() {
            let found =
                self.slots().iter().find(|(_, it)| it.id == process_id).map(|(slot, it)| (*slot, it.role));
            if let Some((slot, role)) = found {
                self.end(slot, role, CRASHES);
            }
        }
        for fault in [Fault::Crash, Fault::Drain, Fault::Pause] {
            // Steps are far more frequent than other occasions, so most steps are skipped.
            if self.scheduler().below(10) > 0 || !self.network.injects(fault) {
                continue;
            }
            let processes: Vec<(usize, RunningProcess)> =
                self.slots().iter().map(|(slot, process)| (*slot, process.clone())).collect();
            let Some((slot, process)) = self.scheduler().take_one(processes) else { return };
            if fault == Fault::Crash {
                self.end(slot, process.role, CRASHES);
            } else if fault == Fault::Pause {
                let time = length(Fault::Pause, self.scheduler());
                self.network.note(format!("{} pauses for {time:?}", process.id.number()));
                self.scheduler().pause(process.id, time);
            } else {
                self.network.note(format!("{} drains", process.id.number()));
                process.bank.registration.end();
                process.starter.start();
            }
        }
        if self.scheduler().below(10) == 0 && self.network.injects(Fault::RingSpurious) {
            for queue in self.settings.queues() {
                self.running().iter().for_each(|process| process.bell.ring(&queue));
            }
        }
    }
}

/// Runs a process that accepts requests and applies the gate, until it drains.
async fn run_web(process_gate: Arc<ProcessGate>, bank: Bank, draining: Drain) {
    bank.prepare_order_numbers();
    let poll = run_every(&*process_gate, GATE_POLL, &*bank.world, &draining);
    futures::join!(process_gate.watch(&draining), poll);
    bank.close_order_numbers().await;
}

/// Runs a process that posts work, until it drains.
async fn run_worker(worker: Worker, bank: Bank, draining: Drain) {
    bank.prepare_order_numbers();
    worker.run(&draining).await;
    bank.close_order_numbers().await;
}

/// Sends messages of one process to other processes.
struct PeerMessages {
    processes: Arc<Processes>,
    bell: Arc<LocalDoorbell>,
    seal: ReplySeal,
}

#[async_trait]
impl Doorbell for PeerMessages {
    fn ring(&self, queue: &QueueName) {
        self.bell.ring(queue);
        let Processes { network, .. } = &*self.processes;
        for process in self.processes.running() {
            if process.role == Role::Web || network.injects(Fault::RingLost) {
                continue;
            }
            let (scheduler, queue) = (network.scheduler.clone(), queue.clone());
            let time = scheduler.up_to(RING_TIME_MAX);
            let arrives = async move {
                scheduler.sleep(ProcessId::ENVIRONMENT, time).await;
                process.bell.ring(&queue);
            };
            network.scheduler.spawn(ProcessId::ENVIRONMENT, arrives.boxed());
        }
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.bell.rung(kind).await
    }

    /// Pings are lost like rings. A ring may be lost even if a ping arrives: a wrong proof may only delay work.
    fn proven_until(&self) -> Option<Duration> {
        let network = &self.processes.network;
        let until = network.scheduler.now().saturating_add(PING_VALID);
        (!network.injects(Fault::RingLost)).then_some(until)
    }
}

impl Replies for PeerMessages {
    fn send(&self, to: &ReplyTo, completion: Completion) {
        let Processes { network, .. } = &*self.processes;
        // As over HTTP, a reply is lost if the clocks differ too much.
        let Ok(to) = self.seal.verify(to) else { return };
        let addressee = self.processes.running().into_iter().find(|process| process.address == *to);
        let Some(addressee) = addressee.filter(|_| !network.injects(Fault::ReplyLost)) else { return };
        let scheduler = network.scheduler.clone();
        let time = scheduler.up_to(RING_TIME_MAX);
        let arrives = async move {
            scheduler.sleep(ProcessId::ENVIRONMENT, time).await;
            addressee.bank.completions.complete(&completion.key, &completion.outcome);
        };
        network.scheduler.spawn(ProcessId::ENVIRONMENT, arrives.boxed());
    }
}

impl ContentionNotices for PeerMessages {
    fn send(&self, account: AccountKey) {
        let Processes { network, .. } = &*self.processes;
        for process in self.processes.running() {
            if !network.injects(Fault::RingLost) {
                process.bank.immediate.leave_to_worker(account);
            }
        }
    }
}
