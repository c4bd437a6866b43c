//! Assigns queues to workers under lasting load, so that the row of an account stays in the cache of one worker.
//!
//! A worker with lasting work takes a lease, an entry in one shared value, and renews it while the work lasts. A pure
//! function ([`is_assigned`]) distributes the queues among the workers whose leases have not expired, so that all
//! workers that read the same value compute the same assignment. A dead worker is ignored when its lease expires.
//! Correctness does not depend on leases: two workers that receive from one queue lose cache hits, never money.

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

/// Attempts at a write that conflicts with writes of other workers.
const ATTEMPTS_MAX: u32 = 4;

/// The time when the lease of each worker expires.
type Leases = BTreeMap<Uuid, Timestamp>;

/// Returns whether the queue at this index is assigned to the worker. Queues are assigned round-robin to the workers
/// in the order of their ids; with more workers than queues, workers are assigned round-robin to queues.
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
    /// Time when the lease of each worker expires, in milliseconds since 1970.
    leases: BTreeMap<Uuid, i64>,
}

const ROW_VERSION: u32 = 1;

/// The last value that was read or written.
#[derive(Default)]
struct View {
    leases: Leases,
    revision: Option<Revision>,
    /// The holders of leases before the last change, and the time of the change on the clock of the uptime.
    before: Option<(Vec<Uuid>, Duration)>,
}

/// The leases on the queues of one kind of work, as one worker knows them.
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
    /// Creates the leases on the queues of a kind of work. Each lease is valid for `duration`.
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

    /// Returns all queues, in order.
    pub fn queues(&self) -> Vec<QueueName> {
        self.queues.lock().clone()
    }

    /// Adds a queue if it is new: another process may be configured with more queues than this one.
    pub fn add(&self, queue: &QueueName) {
        let mut queues = self.queues.lock();
        // Adds all queues before it as well: the assignment depends on the index of a queue.
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

    /// Returns whether a queue is assigned to this worker, by the last known value. Without any lease, each queue is
    /// assigned to every worker. After a change the previous assignment stays valid until the other workers have read
    /// the change too: for that time a queue may have two workers, but never none.
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

    /// Returns the queues that a lease of this worker assigns to it; none without a lease.
    pub fn assigned(&self) -> Vec<QueueName> {
        let queues = if self.is_held() { self.queues() } else { Vec::new() };
        queues.into_iter().filter(|queue| self.is_mine(queue)).collect()
    }

    /// Returns whether this worker has a lease.
    pub fn is_held(&self) -> bool {
        self.live().contains_key(&self.own_id)
    }

    /// Returns the time until all known leases of other workers expire; `None` without any. A worker that still has a
    /// lease after that time has renewed it, and was alive.
    pub fn others_expire_in(&self) -> Option<Duration> {
        let now = self.world.now();
        let others = self.live().into_iter().filter(|(worker, _)| *worker != self.own_id);
        others.map(|(_, until)| until.since(now)).max()
    }

    /// Takes a lease, or renews it, with one write unless another worker changed the value.
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

    /// Reads the leases of other workers.
    pub async fn refresh(&self) {
        if let Err(fault) = self.load().await {
            debug!("Could not read the leases on queues: {}", chain(&fault));
        }
    }

    /// Removes the leases of other workers from memory until they are read again.
    pub fn forget_others(&self) {
        let mut view = self.view.lock();
        view.leases.retain(|worker, _| *worker == self.own_id);
        // The next change reads the value first: it must not remove the leases of others.
        view.revision = None;
    }

    fn live(&self) -> Leases {
        let now = self.world.now();
        let mut leases = self.view.lock().leases.clone();
        // A lease that is longer than possible comes from a wrong clock.
        let last = now.after(self.duration.saturating_mul(2));
        leases.retain(|_, until| *until > now && *until <= last);
        leases
    }

    async fn change(&self, change: impl Fn(&mut Leases) + Send + Sync) {
        if let Err(fault) = self.try_change(change).await {
            // Only cache hits are lost.
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
            // An unreadable value is replaced: no work depends on it.
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
