//! What waits, read from the queues at most once in a while, however often it is asked for.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, try_join_all};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, oneshot};

use crate::domain::time::Timestamp;
use crate::messaging::envelope;
use crate::messaging::queue_count::QueueCount;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::queue::{Backlog, QueueName, WorkQueue};
use crate::ports::sync_store::SyncStore;
use crate::ports::world::World;

/// How old a reading may be when it is given out again.
pub const READING_AGE_MAX: Duration = Duration::from_secs(5);

/// What waits, over all queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Messages, visible and not. One message holds many transactions.
    pub depth: u64,
    /// Messages of those queues that have a visible one: where none is visible, all of them are in
    /// somebody's hand or wait for their time, and another worker would find nothing.
    pub waiting: u64,
    /// Age of the oldest visible message; zero when none is visible.
    pub oldest_age: Duration,
}

impl Demand {
    /// The demand that backlogs make at a moment.
    pub fn of(backlogs: impl IntoIterator<Item = Backlog>, now: Timestamp) -> Self {
        backlogs.into_iter().fold(Self::default(), |demand, Backlog { depth, head_inserted_at }| {
            let waiting = if head_inserted_at.is_some() { depth } else { 0 };
            let age = head_inserted_at.map_or(Duration::ZERO, |at| now.since(at));
            Self {
                depth: demand.depth.saturating_add(depth),
                waiting: demand.waiting.saturating_add(waiting),
                oldest_age: demand.oldest_age.max(age),
            }
        })
    }
}

/// A reading that could not be made. All who waited for it share it.
pub type SharedFault = Arc<StoreFault>;

type Answer = Result<Demand, SharedFault>;

/// Reads what waits. Whoever asks within [`READING_AGE_MAX`] of the start of a reading shares it, also
/// when it failed: the store is asked once per queue and time, however many ask.
pub struct DemandWatch {
    configured: u16,
    /// The queues that there are: as many as were ever used, which is read once.
    queues: Arc<OnceCell<Vec<QueueName>>>,
    queue: Arc<dyn WorkQueue>,
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
    latest: Mutex<Option<Reading>>,
}

struct Reading {
    begun_at: Duration,
    answer: Shared<BoxFuture<'static, Answer>>,
}

impl DemandWatch {
    /// A watch over the work queues of a store, of which so many are configured.
    pub fn new(store: &Store, configured: u16, world: Arc<dyn World>) -> Self {
        let (queue, sync) = (Arc::clone(&store.queue), Arc::clone(&store.sync));
        Self { configured, queues: Arc::default(), queue, sync, world, latest: Mutex::new(None) }
    }

    /// What waits, as it was at most [`READING_AGE_MAX`] ago.
    ///
    /// # Errors
    /// [`StoreFault`] when a queue could not be read.
    pub async fn demand(&self) -> Result<Demand, SharedFault> {
        let answer = {
            let mut latest = self.latest.lock();
            let now = self.world.uptime();
            match latest.as_ref() {
                Some(reading) if now.saturating_sub(reading.begun_at) < READING_AGE_MAX => {
                    reading.answer.clone()
                }
                _ => {
                    let answer = self.begin_reading();
                    *latest = Some(Reading { begun_at: now, answer: answer.clone() });
                    answer
                }
            }
        };
        answer.await
    }

    /// Reads in a task of its own: whoever asked first may go away, and others wait for the answer.
    fn begin_reading(&self) -> Shared<BoxFuture<'static, Answer>> {
        let (told, answer) = oneshot::channel();
        let (queue, queues, world) =
            (Arc::clone(&self.queue), Arc::clone(&self.queues), Arc::clone(&self.world));
        let (count, configured) =
            (QueueCount::new(Arc::clone(&self.sync), Arc::clone(&self.world)), self.configured);
        let reading = async move {
            let find = async || Ok(envelope::queues(configured.max(count.largest().await?)));
            let read = async {
                let queues = queues.get_or_try_init(find).await?;
                let backlogs = try_join_all(queues.iter().map(|name| queue.backlog(name))).await?;
                Ok(Demand::of(backlogs, world.now()))
            };
            let demand: Result<Demand, StoreFault> = read.await;
            // Perhaps nobody waits any more.
            drop(told.send(demand.map_err(Arc::new)));
        };
        self.world.spawn(reading.boxed());
        let answer = async {
            answer.await.unwrap_or_else(|ended| {
                let doing = "asking for the backlog of the queues";
                Err(Arc::new(StoreFault::Unavailable { doing, source: Box::new(ended) }))
            })
        };
        answer.boxed().shared()
    }
}
