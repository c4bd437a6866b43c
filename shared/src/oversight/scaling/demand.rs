//! The backlog of all queues and batches, read at most once per interval.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, try_join, try_join_all};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, oneshot};

use crate::batches::open::{BatchBacklog, OpenBatches};
use crate::domain::time::Timestamp;
use crate::messaging::envelope;
use crate::messaging::queue_count::QueueCount;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::queue::{Backlog, QueueName, WorkQueue};
use crate::ports::world::World;

/// Maximum age of a reading that is reused.
pub const READING_AGE_MAX: Duration = Duration::from_secs(5);

/// The backlog of all queues and batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Number of messages, including invisible ones. A message contains many transactions.
    pub depth: u64,
    /// Number of messages in queues that have a visible message. In all other queues every message is leased or
    /// delayed, so another worker would receive nothing.
    pub waiting: u64,
    /// Age of the oldest visible message; zero if none is visible.
    pub oldest_age: Duration,
    /// The remaining work of open batches.
    pub batches: BatchBacklog,
}

impl Demand {
    /// Computes the demand at a time from the backlogs of queues and batches.
    pub fn of(backlogs: impl IntoIterator<Item = Backlog>, now: Timestamp, batches: BatchBacklog) -> Self {
        let start = Self { batches, ..Self::default() };
        backlogs.into_iter().fold(start, |demand, Backlog { depth, head_inserted_at, .. }| {
            let waiting = if head_inserted_at.is_some() { depth } else { 0 };
            let age = head_inserted_at.map_or(Duration::ZERO, |at| now.since(at));
            Self {
                depth: demand.depth.saturating_add(depth),
                waiting: demand.waiting.saturating_add(waiting),
                oldest_age: demand.oldest_age.max(age),
                batches,
            }
        })
    }
}

/// The fault of a reading, shared by all callers that waited for it.
pub type SharedFault = Arc<StoreFault>;

type Answer = Result<Demand, SharedFault>;

/// Reads the demand. Calls within [`READING_AGE_MAX`] after the start of a reading share its result or fault, so the
/// number of storage requests does not depend on the number of callers.
pub struct DemandWatch {
    configured: u16,
    /// The queues, including queues of earlier configurations. Determined once.
    queues: Arc<OnceCell<Vec<QueueName>>>,
    queue: Arc<dyn WorkQueue>,
    batches: Arc<OpenBatches>,
    count: Arc<QueueCount>,
    world: Arc<dyn World>,
    latest: Mutex<Option<Reading>>,
}

struct Reading {
    begun_at: Duration,
    answer: Shared<BoxFuture<'static, Answer>>,
}

impl DemandWatch {
    /// Creates a watch over the work queues and batches of a store; `configured` is the configured number of queues.
    pub fn new(store: &Store, configured: u16, world: Arc<dyn World>) -> Self {
        let count = Arc::new(QueueCount::new(store, Arc::clone(&world)));
        let (queue, batches) = (Arc::clone(&store.queue), Arc::new(OpenBatches::new(store)));
        Self { configured, queues: Arc::default(), queue, batches, count, world, latest: Mutex::new(None) }
    }

    /// Returns the demand, at most [`READING_AGE_MAX`] old.
    ///
    /// # Errors
    /// [`StoreFault`] when a queue or a batch cannot be read.
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

    /// Starts a reading as a separate task, so that it completes for other callers even if the first one is canceled.
    fn begin_reading(&self) -> Shared<BoxFuture<'static, Answer>> {
        let (sender, answer) = oneshot::channel();
        let (queue, queues, world) =
            (Arc::clone(&self.queue), Arc::clone(&self.queues), Arc::clone(&self.world));
        let batches = Arc::clone(&self.batches);
        let (count, configured) = (Arc::clone(&self.count), self.configured);
        let reading = async move {
            let find = async || Ok(envelope::queues(configured.max(count.largest().await?)));
            let read = async {
                let queues = queues.get_or_try_init(find).await?;
                let of_queues = try_join_all(queues.iter().map(|name| queue.backlog(name)));
                let (of_queues, of_batches) = try_join(of_queues, batches.backlog()).await?;
                Ok(Demand::of(of_queues, world.now(), of_batches))
            };
            let demand: Result<Demand, StoreFault> = read.await;
            // All callers may have been canceled.
            drop(sender.send(demand.map_err(Arc::new)));
        };
        self.world.spawn(reading.boxed());
        let answer = async {
            answer.await.unwrap_or_else(|ended| {
                let doing = "reading the backlog of the queues";
                Err(Arc::new(StoreFault::Unavailable { doing, source: Box::new(ended) }))
            })
        };
        answer.boxed().shared()
    }
}
