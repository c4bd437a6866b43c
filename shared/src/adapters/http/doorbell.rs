//! The doorbell across processes: rings in this process, and at every registered worker.
//!
//! The process registry is read only when the doorbell rings and the known registry is outdated; the ring does not wait
//! for it. Processes that a read finds for the first time receive all rings since the last read, so that the first ring
//! of a process is not lost although it knows no other process yet.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::client::{Call, CallFault, PeerClient};
use super::send_queues::{Pending, SendQueues};
use super::{RING_PATH, encode_ring};
use crate::adapters::local_doorbell::LocalDoorbell;
use crate::backoff::{REGISTRY_READ, RING};
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::chain;
use crate::ports::process_registry::{Address, ProcessId, ProcessKind, ProcessRegistry, live_processes};
use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// Maximum age of the known registry when the doorbell rings.
const ROSTER_AGE_MAX: Duration = Duration::from_secs(15);
/// The same after a failed ring: another process may have replaced the worker.
const ROSTER_AGE_MAX_IN_DOUBT: Duration = Duration::from_secs(2);
/// Maximum wait for the response to a ring.
const RING_TIMEOUT: Duration = Duration::from_secs(2);

/// The queues that a ring names.
impl Pending for BTreeSet<QueueName> {
    fn add(&mut self, more: Self) {
        self.extend(more);
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// A worker that is rung.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Peer {
    id: ProcessId,
    address: Address,
}

/// Wakes the listeners of this process, and those of all workers.
pub struct HttpDoorbell {
    local: Arc<LocalDoorbell>,
    own: ProcessId,
    registry: Arc<dyn ProcessRegistry>,
    world: Arc<dyn World>,
    send_queues: SendQueues<Peer, BTreeSet<QueueName>>,
    known: Mutex<KnownPeers>,
    /// Reference to this doorbell, for the tasks that it starts.
    this: Weak<Self>,
}

/// The known content of the process registry.
#[derive(Default)]
struct KnownPeers {
    peers: BTreeSet<Peer>,
    /// When the registry was last read, by [`World::uptime`].
    read_at: Option<Duration>,
    reading: bool,
    /// Queues that were rung since the last read started: a process that registered since has not received them.
    rung: BTreeSet<QueueName>,
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
            let send = move |peer: Peer, queues: BTreeSet<QueueName>| {
                ring_at(Arc::clone(&client), bell.clone(), peer, queues).boxed()
            };
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

    /// Waits until every ring was delivered, at most for `longest`. Called by a process that is about to end.
    pub async fn flush(&self, longest: Duration) {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);
        let until = self.world.uptime().saturating_add(longest);
        while (self.known.lock().reading || !self.send_queues.are_empty()) && self.world.uptime() < until {
            self.world.sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads the registry in a background task, unless it is recent enough.
    fn refresh(&self, age_max: Duration) {
        let Some(this) = self.this.upgrade() else { return };
        let mut known = self.known.lock();
        let now = self.world.uptime();
        let fresh = known.read_at.is_some_and(|read_at| now.saturating_sub(read_at) <= age_max);
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
                    let listens = |kind| kind == ProcessKind::Worker;
                    let others =
                        entries.into_iter().filter(|entry| entry.id != self.own && listens(entry.kind));
                    let listed = others.map(|entry| Peer { id: entry.id, address: entry.address }).collect();
                    self.update_peers(listed, missed);
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

    /// Stores the registry that was read, and rings new processes for the rings that they missed.
    fn update_peers(&self, listed: BTreeSet<Peer>, missed: BTreeSet<QueueName>) {
        let mut known = self.known.lock();
        known.read_at = Some(self.world.uptime());
        let new_peers: Vec<Peer> = listed.difference(&known.peers).cloned().collect();
        known.peers = listed;
        let missed: BTreeSet<QueueName> = missed.union(&known.rung).cloned().collect();
        drop(known);
        if !missed.is_empty() {
            new_peers.into_iter().for_each(|peer| self.send_queues.add(peer, missed.clone()));
        }
    }
}

/// Ends the reading when it is dropped, also after a panic.
struct Reading<'a>(&'a HttpDoorbell);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.known.lock().reading = false;
    }
}

async fn ring_at(
    client: Arc<PeerClient>,
    bell: Weak<HttpDoorbell>,
    peer: Peer,
    queues: BTreeSet<QueueName>,
) -> bool {
    // Waits without a limit: a ring at the start must not be lost because the store is slow.
    client.secret.get().await;
    let call = Call::post(RING_PATH, encode_ring(&queues));
    let Err(fault) = client.call(&peer.address, call, RING_TIMEOUT).await else { return true };
    let Peer { id, address } = peer;
    match &fault {
        // The worker may not have the secret yet.
        CallFault::Refused(500..) | CallFault::Unreachable(_) | CallFault::Late => {
            debug!(worker = %id, "Worker {id} at {address} did not receive a ring: {}", chain(&fault));
        }
        // The worker is running, and a retry would have the same result.
        CallFault::Refused(_) | CallFault::TooLarge => {
            warn!(worker = %id, "Worker {id} at {address} rejects a ring: {}", chain(&fault));
            return true;
        }
    }
    if let Some(bell) = bell.upgrade() {
        bell.refresh(ROSTER_AGE_MAX_IN_DOUBT);
        // A process that is not registered any more is not retried.
        return !bell.known.lock().peers.iter().any(|known| known.id == id);
    }
    true
}

#[async_trait]
impl Doorbell for HttpDoorbell {
    fn ring(&self, queue: &QueueName) {
        self.local.ring(queue);
        let peers: Vec<Peer> = {
            let mut known = self.known.lock();
            known.rung.insert(queue.clone());
            known.peers.iter().cloned().collect()
        };
        for peer in peers {
            self.send_queues.add(peer, BTreeSet::from([queue.clone()]));
        }
        self.refresh(ROSTER_AGE_MAX);
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.local.rung(kind).await
    }
}
