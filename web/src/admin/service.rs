//! Reports and repairs for operators: queues, dead letters, order numbers, costs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::try_join_all;
use postonce_shared::access::partner_cache::Standing;
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages;
use postonce_shared::config::Config;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::queue_count::QueueCount;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::oversight::scaling::{
    Demand, DemandWatch, ScalingPolicy, SharedFault, WorkersWanted, workers_wanted,
};
use postonce_shared::oversight::scrubber::{self, ScrubberReport};
use postonce_shared::ports::Store;
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Listing, StoredTransaction};
use postonce_shared::ports::queue::{Backlog, QueueName};
use postonce_shared::ports::world::World;
use postonce_shared::posting::order_numbers::{OrderNumberFault, OrderNumbers, Register};
use postonce_shared::protocol::dead_letters::{DeadLetterFault, DeadLetterService, ResolveOutcome};

use crate::admin::costs::{CostReport, WorkerReports};
use crate::admin::lookup::{self, Wanted};

/// Number of listeners of one queue, in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Listeners {
    /// Number of listeners that are active now.
    pub active: u32,
    /// Maximum number of listeners.
    pub max: u32,
}

/// The listeners of all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllListeners {
    /// The listeners of each queue.
    pub by_queue: BTreeMap<QueueName, Listeners>,
    /// The rules by which the workers choose the number of receivers of a queue. All use the same one, unless their settings differ.
    pub rules: BTreeSet<String>,
}

/// Source of the listener counts of the workers.
#[async_trait]
pub trait ListenerStatus: Send + Sync {
    /// Returns the listeners.
    async fn listeners(&self) -> AllListeners;
}

/// Report on all queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReports {
    /// The report of each queue, by name.
    pub queues: Vec<QueueReport>,
    /// As [`AllListeners::rules`].
    pub rules: BTreeSet<String>,
}

/// Report on one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Name of the queue.
    pub name: QueueName,
    /// Waiting messages.
    pub backlog: Backlog,
    /// Number of open dead letters from this queue.
    pub dead_letters: u64,
    /// Listeners of this queue.
    pub listeners: Listeners,
}

/// Wanted number of workers, and the values that determine it.
#[derive(Debug, Clone)]
pub struct ScaleReport {
    /// Work that waits for workers.
    pub demand: Demand,
    /// Scaling policy of the workers.
    pub policy: ScalingPolicy,
    /// Wanted number of workers.
    pub wanted: WorkersWanted,
}

/// Configuration of [`AdminService`].
#[derive(Debug, Clone)]
pub struct AdminTerms {
    /// Scaling policy of the workers.
    pub scaling: ScalingPolicy,
    /// Prices of storage operations.
    pub prices: Prices,
    /// Maximum number of storage operations per day of the scrubber.
    pub scrubber_operations_per_day: u32,
    /// The ingest queues.
    pub ingest: Vec<QueueName>,
}

impl From<&Config> for AdminTerms {
    fn from(config: &Config) -> Self {
        Self {
            scaling: config.scaling.clone(),
            prices: config.prices.clone(),
            scrubber_operations_per_day: config.scrubber_operations_per_day,
            ingest: config.ingest.iter().map(|ingest| ingest.queue.clone()).collect(),
        }
    }
}

/// Reports and repairs for operators.
pub struct AdminService {
    store: Store,
    world: Arc<dyn World>,
    letters: Arc<DeadLetterService>,
    order_numbers: Arc<OrderNumbers>,
    demand: DemandWatch,
    listeners: Arc<dyn ListenerStatus>,
    workers: Arc<dyn WorkerReports>,
    scaling: ScalingPolicy,
    prices: Prices,
    scrubber_operations_per_day: u32,
    queue_count: u16,
    queues_ever: QueueCount,
    ingest: Vec<QueueName>,
}

impl AdminService {
    /// Creates the service for a bank. `workers` reports the listeners and the costs.
    pub fn new<W>(bank: &Bank, workers: Arc<W>, terms: AdminTerms) -> Self
    where
        W: ListenerStatus + WorkerReports + 'static,
    {
        let AdminTerms { scaling, prices, scrubber_operations_per_day, ingest } = terms;
        Self {
            demand: DemandWatch::new(&bank.store, bank.queue_count, Arc::clone(&bank.world)),
            store: bank.store.clone(),
            world: Arc::clone(&bank.world),
            letters: Arc::clone(&bank.dead_letters),
            order_numbers: Arc::clone(&bank.order_numbers),
            listeners: workers.clone(),
            workers,
            scaling,
            prices,
            scrubber_operations_per_day,
            queue_count: bank.queue_count,
            queues_ever: QueueCount::new(&bank.store, Arc::clone(&bank.world)),
            ingest,
        }
    }

    /// Returns the current time, for ages.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Returns the work queues, the queues of batches, the ingest queues, and queues that exist only as the origin of dead letters.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn queues(&self) -> Result<QueueReports, StoreFault> {
        let mut dead: BTreeMap<QueueName, u64> =
            self.store.dead_letters.count_open().await?.into_iter().collect();
        // Queues beyond the current queue count may still contain messages.
        let ever = self.queues_ever.largest().await?;
        let count = self.queue_count.max(ever);
        let own = envelope::queues(count).into_iter().chain(messages::queues(count));
        for queue in own.chain(self.ingest.iter().cloned()) {
            dead.entry(queue).or_default();
        }
        let AllListeners { by_queue, rules } = self.listeners.listeners().await;
        let reports = dead.into_iter().map(async |(name, dead_letters)| {
            let backlog = self.store.queue.backlog(&name).await?;
            let listeners = by_queue.get(&name).copied().unwrap_or_default();
            Ok(QueueReport { name, backlog, dead_letters, listeners })
        });
        Ok(QueueReports { queues: try_join_all(reports).await?, rules })
    }

    /// Lists dead letters by id. Resolved ones are listed only if `open_only` is false.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn dead_letters(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault> {
        self.store.dead_letters.list(open_only, cursor, limit).await
    }

    /// Finds a dead letter.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        self.store.dead_letters.find(id).await
    }

    /// Finds the transactions of all partners that match, by partner.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn transactions(&self, wanted: Wanted) -> Result<Vec<StoredTransaction>, StoreFault> {
        lookup::find(&self.store, wanted).await
    }

    /// Enqueues the work of a dead letter again.
    ///
    /// # Errors
    /// [`DeadLetterFault`]: the dead letter is still open.
    pub async fn replay(
        &self,
        id: &str,
        (by, standing): (&PartnerId, &Standing),
    ) -> Result<ResolveOutcome, DeadLetterFault> {
        self.letters.acting_on(standing).replay(id, by.as_str()).await
    }

    /// Discards the work of a dead letter.
    ///
    /// # Errors
    /// [`DeadLetterFault`]: the dead letter is still open.
    pub async fn discard(
        &self,
        id: &str,
        (by, standing): (&PartnerId, &Standing),
    ) -> Result<ResolveOutcome, DeadLetterFault> {
        self.letters.acting_on(standing).discard(id, by.as_str()).await
    }

    /// Returns the register of order numbers.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when it cannot be read.
    pub async fn order_numbers(&self) -> Result<Register, OrderNumberFault> {
        self.order_numbers.register().await
    }

    /// Returns the progress and the findings of the scrubber.
    ///
    /// # Errors
    /// [`StoreFault`] when its state cannot be read.
    pub async fn scrubber(&self) -> Result<ScrubberReport, StoreFault> {
        scrubber::report(&self.store, &*self.world, self.scrubber_operations_per_day).await
    }

    /// Computes the wanted number of workers. The queues are read at most once in 5 s.
    ///
    /// # Errors
    /// [`SharedFault`] when the queues could not be read.
    pub async fn scale(&self) -> Result<ScaleReport, SharedFault> {
        let (demand, policy) = (self.demand.demand().await?, self.scaling.clone());
        let wanted = workers_wanted(&demand, &policy, self.now());
        Ok(ScaleReport { demand, policy, wanted })
    }

    /// Returns the storage operations and postings of all processes since their start.
    pub async fn costs(&self) -> CostReport {
        CostReport::of(self.workers.reports().await)
    }

    /// Returns the prices of storage operations.
    pub const fn prices(&self) -> &Prices {
        &self.prices
    }
}
