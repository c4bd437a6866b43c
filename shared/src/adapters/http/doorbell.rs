//! The doorbell across processes: rings here, and at every worker that the roster names.
//!
//! The roster is read only when somebody rings and what is known of it is old, beside the ring and
//! not before it. Newcomers that a reading finds are rung for all that was rung since the last one:
//! so the first ring of a process is not lost either, when it knows nobody yet.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::client::{Call, CallFault, PeerClient};
use super::lines::{Lines, Load};
use super::{RING_PATH, encode_ring};
use crate::adapters::local_doorbell::LocalDoorbell;
use crate::backoff::{REGISTRY_READ, RING};
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::chain;
use crate::ports::process_registry::{Address, ProcessId, ProcessKind, ProcessRegistry, living};
use crate::ports::queue::QueueName;
use crate::ports::world::World;

/// How old the known roster may be when somebody rings.
const ROSTER_AGE_MAX: Duration = Duration::from_secs(15);
/// The same after a ring that was not answered: perhaps another process has taken its place.
const ROSTER_AGE_MAX_IN_DOUBT: Duration = Duration::from_secs(2);
/// Longest wait for the answer to a ring.
const RING_TIMEOUT: Duration = Duration::from_secs(2);

/// The queues that are rung at one process.
impl Load for BTreeSet<QueueName> {
    fn add(&mut self, more: Self) {
        self.extend(more);
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// A process that is rung.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Peer {
    id: ProcessId,
    address: Address,
}

/// Wakes the listeners of this process, and those of all workers.
pub struct HttpDoorbell {
    local: Arc<LocalDoorbell>,
    own: ProcessId,
    roster: Arc<dyn ProcessRegistry>,
    world: Arc<dyn World>,
    lines: Lines<Peer, BTreeSet<QueueName>>,
    known: Mutex<Known>,
    /// For the tasks that it starts.
    this: Weak<Self>,
}

/// What is known of the roster.
#[derive(Default)]
struct Known {
    peers: BTreeSet<Peer>,
    /// When it was last read, by [`World::uptime`].
    read_at: Option<Duration>,
    reading: bool,
    /// What was rung since the last reading began: who came meanwhile has not heard of it.
    rung: BTreeSet<QueueName>,
}

impl HttpDoorbell {
    pub(super) fn new(
        local: &Arc<LocalDoorbell>,
        own: ProcessId,
        roster: &Arc<dyn ProcessRegistry>,
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
                roster: Arc::clone(roster),
                world: Arc::clone(world),
                lines: Lines::new(Arc::clone(world), RING, Arc::new(send)),
                known: Mutex::default(),
                this: this.clone(),
            }
        })
    }

    /// Returns when every ring was heard, at the latest after `longest`: for a process that is about
    /// to end.
    pub async fn until_heard(&self, longest: Duration) {
        const GLANCE: Duration = Duration::from_millis(10);
        let until = self.world.uptime().saturating_add(longest);
        while (self.known.lock().reading || !self.lines.are_quiet()) && self.world.uptime() < until {
            self.world.sleep(GLANCE).await;
        }
    }

    /// Reads the roster beside what is going on, unless it is known well enough.
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
        self.world.spawn(async move { this.read_roster().await }.boxed());
    }

    async fn read_roster(&self) {
        let _reading = Reading(self);
        for attempt in 1..=REGISTRY_READ.attempts {
            let missed = std::mem::take(&mut self.known.lock().rung);
            match living(&*self.roster, self.world.now()).await {
                Ok(entries) => {
                    let listens = |kind| kind == ProcessKind::Worker;
                    let others =
                        entries.into_iter().filter(|entry| entry.id != self.own && listens(entry.kind));
                    let listed = others.map(|entry| Peer { id: entry.id, address: entry.address }).collect();
                    self.learn(listed, missed);
                    return;
                }
                Err(fault) => {
                    self.known.lock().rung.extend(missed);
                    warn!("The roster of workers cannot be read: {}", chain(&fault));
                }
            }
            if attempt < REGISTRY_READ.attempts {
                REGISTRY_READ.pause(attempt, &*self.world).await;
            }
        }
    }

    /// Takes over what was read, and rings newcomers for what they missed.
    fn learn(&self, listed: BTreeSet<Peer>, missed: BTreeSet<QueueName>) {
        let mut known = self.known.lock();
        known.read_at = Some(self.world.uptime());
        let newcomers: Vec<Peer> = listed.difference(&known.peers).cloned().collect();
        known.peers = listed;
        let missed: BTreeSet<QueueName> = missed.union(&known.rung).cloned().collect();
        drop(known);
        if !missed.is_empty() {
            newcomers.into_iter().for_each(|peer| self.lines.add(peer, missed.clone()));
        }
    }
}

/// Whatever happens to the reading, the next one can start.
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
    // However long that takes: a ring at the start must not be lost because the store is slow.
    client.secret.get().await;
    let call = Call::post(RING_PATH, encode_ring(&queues));
    let Err(fault) = client.call(&peer.address, call, RING_TIMEOUT).await else { return true };
    let Peer { id, address } = peer;
    match &fault {
        // Perhaps it does not know the secret yet.
        CallFault::Refused(500..) | CallFault::Unreachable(_) | CallFault::Late => {
            debug!(worker = %id, "Worker {id} at {address} did not hear a ring: {}", chain(&fault));
        }
        // It lives, and nothing gets better by asking it again.
        CallFault::Refused(_) | CallFault::TooLarge => {
            warn!(worker = %id, "Worker {id} at {address} does not take a ring: {}", chain(&fault));
            return true;
        }
    }
    if let Some(bell) = bell.upgrade() {
        bell.refresh(ROSTER_AGE_MAX_IN_DOUBT);
        // Whoever is not in the roster any more need not be tried again.
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
            self.lines.add(peer, BTreeSet::from([queue.clone()]));
        }
        self.refresh(ROSTER_AGE_MAX);
    }

    async fn rung(&self, kind: &str) -> BTreeSet<QueueName> {
        self.local.rung(kind).await
    }
}
