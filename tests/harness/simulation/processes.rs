//! The processes of the bank: the real web and worker code over simulated ports, several of each,
//! which crash, drain, stand still and start again.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use postonce_shared::adapters::local_doorbell::LocalDoorbell;
use postonce_shared::bank::{Bank, Links};
use postonce_shared::cluster::completions::{Completion, Completions};
use postonce_shared::cluster::doorbell_secret::{DoorbellKeys, DoorbellSecret};
use postonce_shared::cluster::replies::Replies;
use postonce_shared::cluster::reply_to::{ReplySeal, ReplyTo};
use postonce_shared::config::HttpLimits;
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::process_registry::Address;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use postonce_worker::config::Bounds;
use postonce_worker::config::WorkerConfig;
use postonce_worker::drain::{DrainStarter, drain};
use postonce_worker::listening::gatekeeper::Gatekeeper;
use postonce_worker::meter::Meter;
use postonce_worker::worker::Worker;

use super::faults::{Fault, length};
use super::network::Network;
use super::ports::Link;
use super::process_world::ProcessWorld;
use super::scheduler::{Life, Scheduler};

/// How far a wrong clock is off, at most.
const SKEW_MS_MAX: u64 = 600_000;
/// Longest way of a ring or a reply.
const RING_TIME_MAX: Duration = Duration::from_millis(20);
/// Longest time until a process that ended is started again.
const RESTART_TIME_MAX: Duration = Duration::from_secs(20);

/// What the processes of a run sign with.
pub const RING_SECRET: &str = "the-secret-of-the-simulation";

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes requests.
    Web,
    /// It posts.
    Worker,
    /// Both.
    WebWithWorker,
}

/// What all processes of a run go by.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How many queues share the work.
    pub queue_count: u16,
    /// How long a received message is hidden.
    pub visibility_timeout: Duration,
    /// Receipts until a message is taken apart.
    pub dequeue_count_max: u32,
    /// Longest wait between two looks at empty queues.
    pub idle_delay_max: Duration,
}

impl Terms {
    /// Terms drawn by the seed.
    pub fn draw(scheduler: &Scheduler) -> Self {
        let seconds = |choices: &[u64]| Duration::from_secs(scheduler.one_of(choices));
        Self {
            queue_count: scheduler.one_of(&[1, 2, 3]),
            visibility_timeout: seconds(&[2, 5, 20]),
            dequeue_count_max: scheduler.one_of(&[2, 3, 5]),
            idle_delay_max: seconds(&[1, 5, 60]),
        }
    }
}

/// A living process.
#[derive(Clone)]
pub struct Member {
    /// Its life.
    pub life: Life,
    /// What it does.
    pub role: Role,
    /// All that it can do.
    pub bank: Bank,
    /// Who obeys the gate in it, if it posts.
    pub gatekeeper: Option<Arc<Gatekeeper>>,
    bell: Arc<LocalDoorbell>,
    address: Address,
    starter: Option<Arc<DrainStarter>>,
}

/// All processes, by their places.
pub struct Processes {
    /// Their way to the store, and to each other.
    pub network: Arc<Network>,
    terms: Terms,
    members: Mutex<BTreeMap<usize, Member>>,
}

impl Processes {
    /// No process yet.
    pub fn new(network: &Arc<Network>, terms: Terms) -> Arc<Self> {
        Arc::new(Self { network: Arc::clone(network), terms, members: Mutex::default() })
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<usize, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scheduler(&self) -> &Scheduler {
        &self.network.scheduler
    }

    /// Forgets all of them.
    pub fn clear(&self) {
        let members = std::mem::take(&mut *self.members());
        drop(members);
    }

    /// Those that live now.
    pub fn living(&self) -> Vec<Member> {
        self.members().values().filter(|member| self.scheduler().is_living(member.life)).cloned().collect()
    }

    /// A living process that takes requests, chosen at random.
    pub fn any_web(&self) -> Option<Member> {
        let mut webs = self.living();
        webs.retain(|member| member.role != Role::Worker);
        self.scheduler().take_one(webs)
    }

    /// Starts the process of a place.
    pub fn start(self: &Arc<Self>, place: usize, role: Role) {
        let scheduler = self.scheduler().clone();
        let life = scheduler.begin();
        self.network.auditor.born(life);
        let skewed = self.network.strikes(Fault::ClockSkew);
        let skew = if skewed { i64::try_from(scheduler.below(SKEW_MS_MAX)).unwrap_or(0) } else { 0 };
        let skew = if scheduler.below(2) == 0 { skew } else { skew.saturating_neg() };
        self.network.note(format!("{} begins as {role:?}, its clock off by {skew} ms", life.number()));
        let world: Arc<dyn World> = Arc::new(ProcessWorld::new(scheduler, life, skew));
        let bell = Arc::new(LocalDoorbell::default());
        let keys = DoorbellKeys::parse(RING_SECRET).expect("it is long enough");
        let secret = Arc::new(DoorbellSecret::new(Some(&keys)));
        let seal = ReplySeal::new(&secret, &world);
        let (processes, own_bell) = (Arc::clone(self), Arc::clone(&bell));
        let wires = Arc::new(Wires { processes, bell: own_bell, seal: seal.clone() });
        let completions: Arc<Completions> = Arc::default();
        let address = Address::parse(&format!("process-{}:1", life.number())).expect("it is an address");
        completions.set_reply_address(address.clone(), seal);
        let links = Links { doorbell: wires.clone(), completions, replies: wires, seal: Seal::new(&secret) };
        let store = Link::ports(&self.network, life);
        let bank = Bank::linked(store, Arc::clone(&world), links, self.terms.queue_count);
        let (mut gatekeeper, mut starter) = (None, None);
        if role != Role::Web {
            let worker = Worker::new(&bank, self.worker_config(), Arc::new(Meter::default()));
            gatekeeper = Some(worker.gatekeeper());
            let (ends, draining) = drain();
            starter = Some(Arc::new(ends));
            let processes = Arc::clone(self);
            let work = async move {
                worker.run(&draining).await;
                processes.end(place, role, "drained");
            };
            world.spawn(work.boxed());
        }
        let member = Member { life, role, bank, gatekeeper, bell, address, starter };
        drop(self.members().insert(place, member));
    }

    fn worker_config(&self) -> WorkerConfig {
        WorkerConfig {
            visibility_timeout: self.terms.visibility_timeout,
            dequeue_count_max: self.terms.dequeue_count_max,
            idle_delay_max: self.terms.idle_delay_max,
            receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN.saturating_add(2) },
            legacy_partner: None,
            request_rate: HttpLimits::default().rate,
            held: false,
        }
    }

    /// Ends the process of a place, and starts another one there later.
    pub fn end(self: &Arc<Self>, place: usize, role: Role, why: &str) {
        let Some(member) = self.members().get(&place).cloned() else { return };
        if !self.scheduler().is_living(member.life) {
            return;
        }
        self.network.note(format!("{} {why}", member.life.number()));
        self.scheduler().kill(member.life);
        let processes = Arc::clone(self);
        let delay = self.scheduler().up_to(RESTART_TIME_MAX);
        let restart = async move {
            processes.scheduler().sleep(Life::OUTSIDE, delay).await;
            processes.start(place, role);
        };
        self.scheduler().spawn(Life::OUTSIDE, restart.boxed());
    }

    /// Between two steps: somebody may crash, be told to drain, or stand still.
    pub fn strike(self: &Arc<Self>) {
        if let Some(life) = self.network.doomed() {
            let place =
                self.members().iter().find(|(_, member)| member.life == life).map(|(p, m)| (*p, m.role));
            if let Some((place, role)) = place {
                self.end(place, role, "crashes");
            }
        }
        for fault in [Fault::Crash, Fault::Drain, Fault::Pause] {
            // A step is short: of the steps, far fewer than of other occasions.
            if self.scheduler().below(10) > 0 || !self.network.strikes(fault) {
                continue;
            }
            let members: Vec<(usize, Member)> =
                self.members().iter().map(|(place, member)| (*place, member.clone())).collect();
            let Some((place, member)) = self.scheduler().take_one(members) else { return };
            match (fault, &member.starter) {
                (Fault::Crash, _) => self.end(place, member.role, "crashes"),
                (Fault::Pause, _) => {
                    let time = length(Fault::Pause, self.scheduler());
                    self.network.note(format!("{} stands still for {time:?}", member.life.number()));
                    self.scheduler().pause(member.life, time);
                }
                (_, Some(starter)) => {
                    self.network.note(format!("{} drains", member.life.number()));
                    starter.start();
                }
                (_, None) => {}
            }
        }
        if self.scheduler().below(10) == 0 && self.network.strikes(Fault::RingSpurious) {
            for queue in envelope::queues(self.terms.queue_count) {
                self.living().iter().for_each(|member| member.bell.ring(&queue));
            }
        }
    }
}

/// What one process hears and says beside the store.
struct Wires {
    processes: Arc<Processes>,
    bell: Arc<LocalDoorbell>,
    seal: ReplySeal,
}

#[async_trait]
impl Doorbell for Wires {
    fn ring(&self, queue: &QueueName) {
        self.bell.ring(queue);
        let Processes { network, .. } = &*self.processes;
        for member in self.processes.living() {
            if member.role == Role::Web || network.strikes(Fault::RingLost) {
                continue;
            }
            let (scheduler, queue) = (network.scheduler.clone(), queue.clone());
            let time = scheduler.up_to(RING_TIME_MAX);
            let arrives = async move {
                scheduler.sleep(Life::OUTSIDE, time).await;
                member.bell.ring(&queue);
            };
            network.scheduler.spawn(Life::OUTSIDE, arrives.boxed());
        }
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.bell.rung(kind).await
    }
}

impl Replies for Wires {
    fn send(&self, to: &ReplyTo, completion: Completion) {
        let Processes { network, .. } = &*self.processes;
        // Clocks that are too far apart cost the reply, as they do over HTTP.
        let Ok(to) = self.seal.verify(to) else { return };
        let addressee = self.processes.living().into_iter().find(|member| member.address == *to);
        let Some(addressee) = addressee.filter(|_| !network.strikes(Fault::ReplyLost)) else { return };
        let scheduler = network.scheduler.clone();
        let time = scheduler.up_to(RING_TIME_MAX);
        let arrives = async move {
            scheduler.sleep(Life::OUTSIDE, time).await;
            addressee.bank.completions.complete(&completion.key, &completion.outcome);
        };
        network.scheduler.spawn(Life::OUTSIDE, arrives.boxed());
    }
}
