//! Which worker tends to which queue while there is much to do, so that an account's row stays in
//! one worker's cache.
//!
//! Workers with lasting work take a lease, one entry each in one shared value, and renew it while
//! that work lasts. The queues are shared out among those whose lease has not expired by a pure
//! function ([`tends`]), so that whoever reads the same value comes to the same answer. A worker
//! that dies is forgotten when its lease expires. Nothing depends on it: two workers that receive
//! from one queue lose cache hits, never money.

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

/// How often a change is tried against others who change the value too.
const ATTEMPTS_MAX: u32 = 4;

/// The leases by worker, and when they expire.
type Leases = BTreeMap<Uuid, Timestamp>;

/// Whether a worker tends to the queue at that place: the queues go around among the workers, in the
/// order of their ids; where there are more workers than queues, the workers go around.
pub fn tends(workers: &[Uuid], worker: Uuid, place: usize, queues: usize) -> bool {
    let Some(mine) = workers.iter().position(|other| *other == worker) else { return workers.is_empty() };
    let modulo = |number: usize, of: usize| number.checked_rem(of);
    if workers.len() <= queues {
        modulo(place, workers.len()) == Some(mine)
    } else {
        modulo(mine, queues) == Some(place)
    }
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    /// Milliseconds since 1970 when it expires, by worker.
    leases: BTreeMap<Uuid, i64>,
}

const ROW_VERSION: u32 = 1;

/// What was seen last.
#[derive(Default)]
struct View {
    leases: Leases,
    revision: Option<Revision>,
    /// Who had a lease before that changed, and when it was seen to, on the clock of the uptime.
    before: Option<(Vec<Uuid>, Duration)>,
}

/// The leases on the queues of one kind of work, as one worker sees them.
pub struct QueueLeases {
    me: Uuid,
    name: String,
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
    duration: Duration,
    queues: Mutex<Vec<QueueName>>,
    view: Mutex<View>,
}

impl QueueLeases {
    /// Leases of that duration, on the queues of a kind of work.
    pub fn new(
        me: Uuid,
        kind: &str,
        queues: Vec<QueueName>,
        sync: Arc<dyn SyncStore>,
        world: Arc<dyn World>,
        duration: Duration,
    ) -> Self {
        let (name, queues) = (format!("leases-{kind}"), Mutex::new(queues));
        Self { me, name, sync, world, duration, queues, view: Mutex::default() }
    }

    /// All the queues, in order.
    pub fn queues(&self) -> Vec<QueueName> {
        self.queues.lock().clone()
    }

    /// Adds queues, should they be new: somebody has more of them than this process was told of.
    pub fn add(&self, queue: &QueueName) {
        let mut queues = self.queues.lock();
        // All that come before it as well: workers agree on whose a queue is by its place.
        for partition in 0..=queue.partition() {
            let queue = QueueName::of_partition(queue.kind(), partition);
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        queues.sort_by_key(|queue| queue.partition());
    }

    /// When to renew: well before a lease expires.
    pub fn renewal_interval(&self) -> Duration {
        self.duration.checked_div(2).unwrap_or_default()
    }

    /// Whether this worker tends to a queue, by what it saw last: to each one when it knows of nobody
    /// with a lease. After a change it goes on to tend to what it did before, until the others have
    /// seen the change too: for a while two tend to a queue, rather than nobody.
    pub fn is_mine(&self, queue: &QueueName) -> bool {
        let queues = self.queues();
        let Some(place) = queues.iter().position(|other| other == queue) else { return true };
        let now: Vec<Uuid> = self.live().into_keys().collect();
        if tends(&now, self.me, place, queues.len()) {
            return true;
        }
        let view = self.view.lock();
        view.before.as_ref().is_some_and(|(before, changed_at)| {
            self.world.uptime().saturating_sub(*changed_at) < self.renewal_interval()
                && tends(before, self.me, place, queues.len())
        })
    }

    /// Whether this worker has a lease.
    pub fn is_held(&self) -> bool {
        self.live().contains_key(&self.me)
    }

    /// How long until all leases of others that are known have expired; `None` without any. Whoever
    /// has one after that has renewed it, and was alive.
    pub fn others_left(&self) -> Option<Duration> {
        let now = self.world.now();
        let others = self.live().into_iter().filter(|(worker, _)| *worker != self.me);
        others.map(|(_, until)| until.since(now)).max()
    }

    /// Takes a lease, or renews it: one write when nobody else changed the value.
    pub async fn renew(&self) {
        let until = self.world.now().after(self.duration);
        self.change(|leases| {
            leases.insert(self.me, until);
        })
        .await;
    }

    /// Gives the lease back.
    pub async fn release(&self) {
        self.change(|leases| {
            leases.remove(&self.me);
        })
        .await;
    }

    /// Reads the leases of others.
    pub async fn look(&self) {
        if let Err(fault) = self.load().await {
            debug!("Could not read the leases on queues: {}", chain(&fault));
        }
    }

    /// Forgets the leases of others until the next look at them.
    pub fn forget_others(&self) {
        let mut view = self.view.lock();
        view.leases.retain(|worker, _| *worker == self.me);
        // Read again before the next change: it must not undo what others have.
        view.revision = None;
    }

    fn live(&self) -> Leases {
        let now = self.world.now();
        let mut leases = self.view.lock().leases.clone();
        // One that lasts longer than any lease can is of a clock that is wrong.
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
            // What was seen last is good enough for a first try.
            if attempt > 0 || known.is_none() {
                self.load().await?;
            }
            let mut leases = self.live();
            change(&mut leases);
            let revision = self.view.lock().revision.clone();
            match self.sync.swap(&self.name, revision.as_ref(), &encode(&leases)).await? {
                Swapped::Done(revision) => {
                    self.see(leases, Some(revision));
                    return Ok(());
                }
                Swapped::Conflict => {}
            }
        }
        let source = format!("others changed them during each of {ATTEMPTS_MAX} attempts").into();
        Err(StoreFault::Unavailable { doing: "changing the leases on queues", source })
    }

    async fn load(&self) -> Result<(), StoreFault> {
        match self.sync.get(&self.name).await? {
            // What nobody can read is written anew: nothing depends on it.
            Some(stored) => self.see(decode(&stored.value), Some(stored.revision)),
            None => self.see(Leases::new(), None),
        }
        Ok(())
    }

    fn see(&self, leases: Leases, revision: Option<Revision>) {
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
    serde_json::to_string(&Row { v: ROW_VERSION, leases }).expect("ids and numbers can be written as JSON")
}

fn decode(value: &str) -> Leases {
    let row: Option<Row> = serde_json::from_str(value).ok().filter(|row: &Row| row.v <= ROW_VERSION);
    let leases = row.map(|row| row.leases).unwrap_or_default();
    leases.into_iter().map(|(worker, until)| (worker, Timestamp::from_unix_ms(until))).collect()
}

#[cfg(test)]
mod tests;
