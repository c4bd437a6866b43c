//! Assigns queues to workers under lasting load, so that the row of an account stays in the cache of one worker.
//!
//! A worker with lasting work takes a lease, an entry in one shared value, and renews it while the work lasts. A pure function
//! ([`is_assigned`]) distributes the queues among the workers whose leases have not expired, so all workers that read the same
//! value compute the same assignment. The lease of a dead worker expires. Correctness does not depend on leases: when two
//! workers receive from the same queue, only cache hits are lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::account::Revision;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::sync_store::{Swapped, SyncStore};
use postonce_shared::ports::world::World;
use serde::{Deserialize, Serialize};
use tracing::debug;
use uuid::Uuid;

/// Maximum number of attempts at a write that conflicts with writes of other workers.
const ATTEMPTS_MAX: u32 = 4;

/// Expiry time of each worker's lease.
type Leases = BTreeMap<Uuid, Timestamp>;

/// Returns whether the queue at this index is assigned to the worker. Queues are assigned round-robin to the workers in the
/// order of their ids. If there are more workers than queues, workers are assigned round-robin to queues.
pub fn is_assigned(workers: &[Uuid], worker: Uuid, index: usize, queues: usize) -> bool {
    let Some(mine) = workers.iter().position(|other| *other == worker) else { return workers.is_empty() };
    let modulo = |number: usize, of: usize| number.checked_rem(of);
    if workers.len() <= queues {
        modulo(index, workers.len()) == Some(mine)
    } else {
        modulo(mine, queues) == Some(index)
    }
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    /// Expiry time of each worker's lease, in milliseconds since 1970.
    leases: BTreeMap<Uuid, i64>,
}

const ROW_VERSION: u32 = 1;

/// The last value that was read or written.
#[derive(Default)]
struct View {
    leases: Leases,
    revision: Option<Revision>,
    /// Workers with a lease before the last change, and the uptime at that change.
    before: Option<(Vec<Uuid>, Duration)>,
}

/// The leases on the queues of one kind of work, as last known to one worker.
pub struct QueueLeases {
    own_id: Uuid,
    name: String,
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
    duration: Duration,
    queues: Mutex<Vec<QueueName>>,
    view: Mutex<View>,
}

impl QueueLeases {
    /// Creates the leases for a kind of work. Each lease is valid for `duration`.
    pub fn new(
        own_id: Uuid,
        kind: &str,
        queues: Vec<QueueName>,
        sync: Arc<dyn SyncStore>,
        world: Arc<dyn World>,
        duration: Duration,
    ) -> Self {
        let (name, queues) = (format!("leases-{kind}"), Mutex::new(queues));
        Self { own_id, name, sync, world, duration, queues, view: Mutex::default() }
    }

    /// Returns all queues in order.
    pub fn queues(&self) -> Vec<QueueName> {
        self.queues.lock().clone()
    }

    /// Adds a queue if it is unknown, because another process may be configured with more queues.
    pub fn add(&self, queue: &QueueName) {
        let mut queues = self.queues.lock();
        // Also add the queues before it, because the assignment depends on the index of a queue.
        for partition in 0..=queue.partition() {
            let queue = QueueName::of_partition(queue.kind(), partition);
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        queues.sort_by_key(|queue| queue.partition());
    }

    /// Returns the interval of renewals, well below the duration of a lease.
    pub fn renewal_interval(&self) -> Duration {
        self.duration.checked_div(2).unwrap_or_default()
    }

    /// Returns whether a queue is assigned to this worker by the last known leases. Without any lease, each queue is assigned
    /// to every worker. After a change, the previous assignment stays valid until the other workers have read the change.
    /// During that time a queue may have two workers, but never none.
    pub fn is_mine(&self, queue: &QueueName) -> bool {
        let queues = self.queues();
        let Some(index) = queues.iter().position(|other| other == queue) else { return true };
        let now: Vec<Uuid> = self.live().into_keys().collect();
        if is_assigned(&now, self.own_id, index, queues.len()) {
            return true;
        }
        let view = self.view.lock();
        view.before.as_ref().is_some_and(|(before, changed_at)| {
            self.world.uptime().saturating_sub(*changed_at) < self.renewal_interval()
                && is_assigned(before, self.own_id, index, queues.len())
        })
    }

    /// Returns the queues that are assigned to this worker by its lease; none without a lease.
    pub fn assigned(&self) -> Vec<QueueName> {
        let queues = if self.is_held() { self.queues() } else { Vec::new() };
        queues.into_iter().filter(|queue| self.is_mine(queue)).collect()
    }

    /// Returns whether this worker has a lease.
    pub fn is_held(&self) -> bool {
        self.live().contains_key(&self.own_id)
    }

    /// Returns the time until all known leases of other workers have expired; `None` if there are none. A worker whose lease is
    /// still valid after that time has renewed it, so it was alive.
    pub fn others_expire_in(&self) -> Option<Duration> {
        let now = self.world.now();
        let others = self.live().into_iter().filter(|(worker, _)| *worker != self.own_id);
        others.map(|(_, until)| until.since(now)).max()
    }

    /// Takes or renews a lease. This costs one write unless another worker has changed the value.
    pub async fn renew(&self) {
        let until = self.world.now().after(self.duration);
        self.change(|leases| {
            leases.insert(self.own_id, until);
        })
        .await;
    }

    /// Releases the lease.
    pub async fn release(&self) {
        self.change(|leases| {
            leases.remove(&self.own_id);
        })
        .await;
    }

    /// Reads the leases again.
    pub async fn refresh(&self) {
        if let Err(fault) = self.load().await {
            debug!("Could not read the leases on queues: {}", chain(&fault));
        }
    }

    /// Forgets the leases of other workers until they are read again.
    pub fn forget_others(&self) {
        let mut view = self.view.lock();
        view.leases.retain(|worker, _| *worker == self.own_id);
        // The next change must read the value first, so that it does not remove other leases.
        view.revision = None;
    }

    fn live(&self) -> Leases {
        let now = self.world.now();
        let mut leases = self.view.lock().leases.clone();
        // A lease beyond the maximum duration comes from a wrong clock.
        let last = now.after(self.duration.saturating_mul(2));
        leases.retain(|_, until| *until > now && *until <= last);
        leases
    }

    async fn change(&self, change: impl Fn(&mut Leases) + Send + Sync) {
        if let Err(fault) = self.try_change(change).await {
            // Without the lease, only cache hits are lost.
            debug!("Could not change a lease on queues: {}", chain(&fault));
        }
    }

    async fn try_change(&self, change: impl Fn(&mut Leases) + Send + Sync) -> Result<(), StoreFault> {
        for attempt in 0..ATTEMPTS_MAX {
            let known = self.view.lock().revision.clone();
            // The first attempt uses the last known value.
            if attempt > 0 || known.is_none() {
                self.load().await?;
            }
            let mut leases = self.live();
            change(&mut leases);
            let revision = self.view.lock().revision.clone();
            match self.sync.swap(&self.name, revision.as_ref(), &encode(&leases)).await? {
                Swapped::Done(revision) => {
                    self.update_view(leases, Some(revision));
                    return Ok(());
                }
                Swapped::Conflict => {}
            }
        }
        let source = format!("other workers changed them during each of {ATTEMPTS_MAX} attempts").into();
        Err(StoreFault::Unavailable { doing: "changing the leases on queues", source })
    }

    async fn load(&self) -> Result<(), StoreFault> {
        match self.sync.get(&self.name).await? {
            // An unreadable value counts as empty and is replaced later: no work depends on it.
            Some(stored) => self.update_view(decode(&stored.value), Some(stored.revision)),
            None => self.update_view(Leases::new(), None),
        }
        Ok(())
    }

    fn update_view(&self, leases: Leases, revision: Option<Revision>) {
        let before: Vec<Uuid> = self.live().into_keys().collect();
        let mut view = self.view.lock();
        (view.leases, view.revision) = (leases, revision);
        drop(view);
        let now: Vec<Uuid> = self.live().into_keys().collect();
        if before != now {
            let mut view = self.view.lock();
            view.before = Some((before, self.world.uptime()));
        }
    }
}

fn encode(leases: &Leases) -> String {
    let leases = leases.iter().map(|(worker, until)| (*worker, until.unix_ms())).collect();
    serde_json::to_string(&Row { v: ROW_VERSION, leases }).expect("ids and numbers can be encoded as JSON")
}

fn decode(value: &str) -> Leases {
    let row: Option<Row> = serde_json::from_str(value).ok().filter(|row: &Row| row.v <= ROW_VERSION);
    let leases = row.map(|row| row.leases).unwrap_or_default();
    leases.into_iter().map(|(worker, until)| (worker, Timestamp::from_unix_ms(until))).collect()
}

#[cfg(test)]
mod tests;
