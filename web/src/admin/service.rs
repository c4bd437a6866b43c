//! What operators look at and repair: queues, dead letters, order numbers, costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::try_join_all;
use postonce_shared::bank::Bank;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::queue_count::QueueCount;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::oversight::scaling::{
    Demand, DemandWatch, ScalingPolicy, SharedFault, WorkersWanted, workers_wanted,
};
use postonce_shared::ports::Store;
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::Listing;
use postonce_shared::ports::process_registry::Address;
use postonce_shared::ports::queue::{Backlog, QueueName};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::{DeadLetterFault, DeadLetterService, ResolveOutcome};
use postonce_shared::protocol::order_numbers::{OrderNumberFault, OrderNumbers, Register};

use crate::admin::costs::{CostReport, WorkerReports};

/// Listeners of one queue, in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Listeners {
    /// At work now.
    pub active: u32,
    /// The most that there may be.
    pub max: u32,
}

/// What workers tell about their listeners.
#[async_trait]
pub trait ListenerStatus: Send + Sync {
    /// The listeners of each queue.
    async fn listeners(&self) -> BTreeMap<QueueName, Listeners>;
}

/// One queue, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// Its name.
    pub name: QueueName,
    /// What waits in it.
    pub backlog: Backlog,
    /// Open dead letters that came from it.
    pub dead_letters: u64,
    /// Who listens.
    pub listeners: Listeners,
}

/// How many workers are wanted, and all that led to it.
#[derive(Debug, Clone)]
pub struct ScaleReport {
    /// What waits.
    pub demand: Demand,
    /// What the number goes by.
    pub policy: ScalingPolicy,
    /// The number.
    pub wanted: WorkersWanted,
}

/// What the configuration tells the office.
#[derive(Debug, Clone)]
pub struct AdminTerms {
    /// Where the other processes call this one.
    pub address: Address,
    /// What the number of workers goes by.
    pub scaling: ScalingPolicy,
    /// What storage operations cost.
    pub prices: Prices,
}

/// The office of the operators.
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
    queue_count: u16,
    queues_ever: QueueCount,
}

impl AdminService {
    /// The office of a bank, whose workers say how they listen and what they did.
    pub fn new<W>(bank: &Bank, workers: Arc<W>, terms: AdminTerms) -> Self
    where
        W: ListenerStatus + WorkerReports + 'static,
    {
        let AdminTerms { address: _, scaling, prices } = terms;
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
            queue_count: bank.queue_count,
            queues_ever: QueueCount::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world)),
        }
    }

    /// The time, for ages.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// The work queues, and those that only dead letters remember.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read; so with all that follow.
    pub async fn queues(&self) -> Result<Vec<QueueReport>, StoreFault> {
        let mut dead: BTreeMap<QueueName, u64> =
            self.store.dead_letters.count_open().await?.into_iter().collect();
        // Work may still wait in queues that the number of today no longer names.
        let ever = self.queues_ever.largest().await?;
        for queue in envelope::queues(self.queue_count.max(ever)) {
            dead.entry(queue).or_default();
        }
        let all_listeners = self.listeners.listeners().await;
        let reports = dead.into_iter().map(async |(name, dead_letters)| {
            let backlog = self.store.queue.backlog(&name).await?;
            let listeners = all_listeners.get(&name).copied().unwrap_or_default();
            Ok(QueueReport { name, backlog, dead_letters, listeners })
        });
        try_join_all(reports).await
    }

    /// Dead letters, by id; the resolved ones only when asked for.
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

    /// One dead letter.
    ///
    /// # Errors
    /// [`StoreFault`]
    pub async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        self.store.dead_letters.find(id).await
    }

    /// Sends the work of a letter again.
    ///
    /// # Errors
    /// [`DeadLetterFault`]: the letter is still open.
    pub async fn replay(&self, id: &str, by: &PartnerId) -> Result<ResolveOutcome, DeadLetterFault> {
        self.letters.replay(id, by.as_str()).await
    }

    /// Gives up the work of a letter.
    ///
    /// # Errors
    /// [`DeadLetterFault`]: the letter is still open.
    pub async fn discard(&self, id: &str, by: &PartnerId) -> Result<ResolveOutcome, DeadLetterFault> {
        self.letters.discard(id, by.as_str()).await
    }

    /// The register of order numbers.
    ///
    /// # Errors
    /// [`OrderNumberFault`] when it cannot be read.
    pub async fn order_numbers(&self) -> Result<Register, OrderNumberFault> {
        self.order_numbers.register().await
    }

    /// How many workers are wanted. However often it is asked, the queues are read at most once in 5 s.
    ///
    /// # Errors
    /// [`SharedFault`] when the queues could not be read.
    pub async fn scale(&self) -> Result<ScaleReport, SharedFault> {
        let (demand, policy) = (self.demand.demand().await?, self.scaling.clone());
        let wanted = workers_wanted(&demand, &policy, self.now());
        Ok(ScaleReport { demand, policy, wanted })
    }

    /// What the processes asked of the store since they started, and what came of it.
    pub async fn costs(&self) -> CostReport {
        CostReport::of(self.workers.reports().await)
    }

    /// What storage operations cost.
    pub const fn prices(&self) -> &Prices {
        &self.prices
    }
}
