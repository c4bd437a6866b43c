//! The doorbell across processes. It wakes the listeners of this process and sends a ring to every registered worker.
//!
//! A ring triggers a background read of the process registry if the cached registry is outdated. An idle process rarely
//! reads it. Processes that appear in a read for the first time receive all rings since the previous read, so no ring
//! is lost when a process rings before it knows any other process.
//!
//! A process that keeps pinging sends a ring to every registered process once a minute, with the queues whose rings the
//! recipient did not confirm. So lost rings are repeated, and a process that receives the pings of all others has
//! missed no ring ([`PingTimes`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::RING_PATH;
use super::client::{Call, CallFault, PeerClient};
use super::ping_times::{PING_INTERVAL, PingTimes};
use super::ring::{Ping, Ring};
use super::send_queues::{Pending, SendQueues};
use crate::adapters::local_doorbell::LocalDoorbell;
use crate::backoff::{REGISTRY_READ, RING};
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::chain;
use crate::ports::process_registry::{Address, ProcessId, ProcessKind, ProcessRegistry, live_processes};
use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// Maximum age of the cached registry when the doorbell rings.
const ROSTER_AGE_MAX: Duration = Duration::from_secs(15);
/// Maximum age of the cached registry after a failed ring. It is short because another process may have replaced the worker.
const ROSTER_AGE_MAX_IN_DOUBT: Duration = Duration::from_secs(2);
/// Maximum age of the cached registry after a failed ping, and after a ping of an unregistered process.
const ROSTER_AGE_MAX_OF_PINGS: Duration = Duration::from_secs(5 * 60);
/// Maximum age of the cached registry at each ping. Processes that start later announce themselves by their own pings.
const ROSTER_AGE_MAX_IDLE: Duration = Duration::from_secs(3600);
/// Maximum wait for the response to a ring.
const RING_TIMEOUT: Duration = Duration::from_secs(2);

impl Pending for Ring {
    fn add(&mut self, more: Self) {
        self.queues.extend(more.queues);
        self.ping = more.ping.or(self.ping);
    }

    fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.ping.is_none()
    }
}

/// Another registered process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Peer {
    id: ProcessId,
    address: Address,
    /// Whether the process receives rings. All other processes receive only pings.
    listens: bool,
}

/// Wakes the listeners of this process and of all workers.
pub struct HttpDoorbell {
    local: Arc<LocalDoorbell>,
    own: ProcessId,
    registry: Arc<dyn ProcessRegistry>,
    world: Arc<dyn World>,
    send_queues: SendQueues<Peer, Ring>,
    known: Mutex<KnownPeers>,
    /// Weak reference to this doorbell for the tasks that it spawns.
    this: Weak<Self>,
}

/// The cached content of the process registry, and the state of rings and pings.
#[derive(Default)]
struct KnownPeers {
    peers: BTreeSet<Peer>,
    /// When the last successful read ended, by [`World::uptime`].
    read_at: Option<Duration>,
    reading: bool,
    /// Queues that were rung since the last read started. A process that registered since then has not received these rings.
    rung: BTreeSet<QueueName>,
    /// Queues of the rings that a process did not confirm.
    unconfirmed: BTreeMap<ProcessId, BTreeSet<QueueName>>,
    /// Whether this process sends pings. A process that pings is registered.
    pings: bool,
    /// The highest known epoch of the gate; zero if none is known.
    gate_epoch: u64,
    ping_times: PingTimes,
}

impl HttpDoorbell {
    pub(super) fn new(
        local: &Arc<LocalDoorbell>,
        own: ProcessId,
        registry: &Arc<dyn ProcessRegistry>,
        client: &Arc<PeerClient>,
        world: &Arc<dyn World>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let (client, bell) = (Arc::clone(client), this.clone());
            let send =
                move |peer: Peer, ring: Ring| ring_at(Arc::clone(&client), bell.clone(), peer, ring).boxed();
            Self {
                local: Arc::clone(local),
                own,
                registry: Arc::clone(registry),
                world: Arc::clone(world),
                send_queues: SendQueues::new(Arc::clone(world), RING, Arc::new(send)),
                known: Mutex::default(),
                this: this.clone(),
            }
        })
    }

    /// Waits until every ring was delivered, for at most `longest`. A process calls it before it exits.
    pub async fn flush(&self, longest: Duration) {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);
        let until = self.world.uptime().saturating_add(longest);
        while (self.known.lock().reading || !self.send_queues.are_empty()) && self.world.uptime() < until {
            self.world.sleep(POLL_INTERVAL).await;
        }
    }

    /// Pings all other processes every minute until the future is dropped. Call it after this process was registered,
    /// because a ping from an unknown process makes its recipient read the registry. `gate_epoch` returns the epoch of
    /// the gate that this process knows, or zero.
    pub async fn keep_pinging(&self, gate_epoch: impl Fn() -> u64) {
        loop {
            self.note_gate_epoch(gate_epoch());
            let rings: Vec<(Peer, Ring)> = {
                let mut known = self.known.lock();
                known.pings = true;
                let ping = Some(known.ping(self.own));
                let queues = |peer: &Peer| known.unconfirmed.get(&peer.id).cloned().unwrap_or_default();
                known.peers.iter().map(|peer| (peer.clone(), Ring { queues: queues(peer), ping })).collect()
            };
            rings.into_iter().for_each(|(peer, ring)| self.send_queues.add(peer, ring));
            self.refresh(ROSTER_AGE_MAX_IDLE);
            self.world.sleep(PING_INTERVAL).await;
        }
    }

    /// Records an epoch of the gate. Later pings contain the highest recorded one.
    pub fn note_gate_epoch(&self, epoch: u64) {
        let mut known = self.known.lock();
        known.gate_epoch = known.gate_epoch.max(epoch);
    }

    /// Records a ping of another process. If the process is unknown, the registry is read, so that it is pinged too.
    pub fn record_ping(&self, from: ProcessId) {
        let (is_new, is_peer) = {
            let mut known = self.known.lock();
            let is_peer = known.peers.iter().any(|peer| peer.id == from);
            (known.ping_times.record(from, self.world.uptime()), is_peer)
        };
        if !is_peer {
            self.refresh(if is_new { Duration::ZERO } else { ROSTER_AGE_MAX_OF_PINGS });
        }
    }

    /// Reads the registry in a background task, unless the last read is more recent than `age_max`.
    fn refresh(&self, age_max: Duration) {
        let Some(this) = self.this.upgrade() else { return };
        let mut known = self.known.lock();
        let now = self.world.uptime();
        let fresh = known.read_at.is_some_and(|read_at| now.saturating_sub(read_at) < age_max);
        if fresh || known.reading {
            return;
        }
        known.reading = true;
        drop(known);
        self.world.spawn(async move { this.read_registry().await }.boxed());
    }

    async fn read_registry(&self) {
        let _reading = Reading(self);
        for attempt in 1..=REGISTRY_READ.attempts {
            let missed = std::mem::take(&mut self.known.lock().rung);
            match live_processes(&*self.registry, self.world.now()).await {
                Ok(entries) => {
                    let others = entries.into_iter().filter(|entry| entry.id != self.own);
                    let listed = others.map(|entry| Peer {
                        id: entry.id,
                        address: entry.address,
                        listens: entry.kind == ProcessKind::Worker,
                    });
                    self.update_peers(listed.collect(), missed);
                    return;
                }
                Err(fault) => {
                    self.known.lock().rung.extend(missed);
                    warn!("The process registry cannot be read: {}", chain(&fault));
                }
            }
            if attempt < REGISTRY_READ.attempts {
                REGISTRY_READ.pause(attempt, &*self.world).await;
            }
        }
    }

    /// Replaces the cached registry, and sends new processes the rings that they missed.
    fn update_peers(&self, listed: BTreeSet<Peer>, missed: BTreeSet<QueueName>) {
        let now = self.world.uptime();
        let mut known = self.known.lock();
        known.read_at = Some(now);
        let new_peers: Vec<Peer> = listed.difference(&known.peers).cloned().collect();
        let ids = listed.iter().map(|peer| peer.id).collect();
        known.ping_times.update(&ids, now);
        known.unconfirmed.retain(|id, _| ids.contains(id));
        known.peers = listed;
        let missed: BTreeSet<QueueName> = missed.union(&known.rung).cloned().collect();
        let ping = known.pings.then(|| known.ping(self.own));
        drop(known);
        for peer in new_peers {
            let queues = if peer.listens { missed.clone() } else { BTreeSet::new() };
            let ring = Ring { queues, ping };
            if !ring.is_empty() {
                self.send_queues.add(peer, ring);
            }
        }
    }

    /// Records whether the recipient confirmed a ring. Returns false if the ring must be sent again.
    fn on_ring_end(&self, peer: &Peer, ring: Ring, is_confirmed: bool) -> bool {
        let mut known = self.known.lock();
        let unconfirmed = known.unconfirmed.entry(peer.id).or_default();
        if is_confirmed {
            unconfirmed.retain(|queue| !ring.queues.contains(queue));
            return true;
        }
        unconfirmed.extend(ring.queues);
        drop(known);
        self.refresh(if ring.ping.is_some() { ROSTER_AGE_MAX_OF_PINGS } else { ROSTER_AGE_MAX_IN_DOUBT });
        // A process that is no longer registered is not retried.
        !self.known.lock().peers.iter().any(|known| known.id == peer.id)
    }
}

impl KnownPeers {
    /// Returns the listening processes that run as far as known. A process that was killed stays registered for longer.
    fn running_listeners(&self, now: Duration) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(move |peer| peer.listens && self.ping_times.is_running(peer.id, now))
    }

    const fn ping(&self, from: ProcessId) -> Ping {
        Ping { from, gate_epoch: self.gate_epoch }
    }
}

/// Clears `reading` when it is dropped, also after a panic.
struct Reading<'a>(&'a HttpDoorbell);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.known.lock().reading = false;
    }
}

async fn ring_at(client: Arc<PeerClient>, bell: Weak<HttpDoorbell>, peer: Peer, ring: Ring) -> bool {
    // There is no time limit here: a slow store must not cause the loss of a ring at startup.
    client.secret.get().await;
    let call = Call::post(RING_PATH, ring.encode());
    let result = client.call(&peer.address, call, RING_TIMEOUT).await.map(drop);
    let Peer { id, address, listens: _ } = &peer;
    // A final result is not retried: the ring was delivered, or the process is running and would reject it again.
    let mut is_final = result.is_ok();
    if let Err(fault) = &result {
        match fault {
            // A 5xx status is temporary: the process may not have loaded the secret yet.
            CallFault::Refused(500..) | CallFault::Unreachable(_) | CallFault::Late => {
                debug!(process = %id, "Process {id} at {address} did not receive a ring: {}", chain(fault));
            }
            CallFault::Unauthorized | CallFault::Replaced | CallFault::Refused(_) | CallFault::TooLarge => {
                is_final = true;
                warn!(process = %id, "Process {id} at {address} rejects a ring: {}", chain(fault));
            }
        }
    }
    let Some(bell) = bell.upgrade() else { return true };
    bell.on_ring_end(&peer, ring, result.is_ok()) || is_final
}

#[async_trait]
impl Doorbell for HttpDoorbell {
    fn ring(&self, queue: &QueueName) {
        self.local.ring(queue);
        let peers: Vec<Peer> = {
            let mut known = self.known.lock();
            known.rung.insert(queue.clone());
            match queue.ingest() {
                // One of them, at random.
                Some(_) => {
                    let running = known.running_listeners(self.world.uptime());
                    running.min_by_key(|_| self.world.random()).cloned().into_iter().collect()
                }
                None => known.peers.iter().filter(|peer| peer.listens).cloned().collect(),
            }
        };
        for peer in peers {
            self.send_queues.add(peer, Ring { queues: BTreeSet::from([queue.clone()]), ping: None });
        }
        self.refresh(ROSTER_AGE_MAX);
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.local.rung(kind).await
    }

    fn proven_until(&self) -> Option<Duration> {
        let now = self.world.uptime();
        let (proven_until, needs_read) = {
            let known = self.known.lock();
            if !known.pings {
                // Other processes do not know this process yet.
                return None;
            }
            (known.ping_times.proven_until(now), known.ping_times.needs_read(now))
        };
        if needs_read {
            self.refresh(Duration::ZERO);
        }
        proven_until
    }

    fn other_listeners(&self) -> u32 {
        let count = self.known.lock().running_listeners(self.world.uptime()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}
