//! The reads of the overview from the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use futures::future::{try_join, try_join_all};
use postonce_shared::adapters::http::PeerBroadcast;
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages;
use postonce_shared::batches::open::{BatchBacklog, OpenBatches};
use postonce_shared::cluster::gate::change::GateRecord;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::envelope;
use postonce_shared::messaging::queue_count::QueueCount;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::process_registry::RegisteredProcess;
use postonce_shared::ports::queue::{Backlog, QueueName, WorkQueue};
use postonce_shared::ports::world::World;

use crate::admin::gate::GateService;

/// Queues with their backlogs.
pub type Backlogs = Vec<(QueueName, Backlog)>;

/// Result of reading the work queues.
#[derive(Debug)]
pub struct WorkReading {
    /// Time before the queues were read.
    pub at: Timestamp,
    /// Backlogs of the work queues.
    pub queues: Backlogs,
}

/// Result of reading everything except the work queues.
#[derive(Debug)]
pub struct BankReading {
    /// Live processes.
    pub processes: Vec<RegisteredProcess>,
    /// The gate and its last change.
    pub gate: GateRecord,
    /// Time before the queues of batches were read, and their backlogs.
    pub queues: (Timestamp, Backlogs),
    /// Remaining work of open batches.
    pub batches: BatchBacklog,
}

/// Reads the store. All operations run in the task of the caller, so that they can be metered.
pub struct Reader {
    queue: Arc<dyn WorkQueue>,
    batches: OpenBatches,
    broadcast: Arc<PeerBroadcast>,
    gate: GateService,
    world: Arc<dyn World>,
    count: QueueCount,
    configured: u16,
    /// Largest number of queues that was ever used; zero until it is read.
    largest: AtomicU16,
}

impl Reader {
    /// Creates the reader of a bank.
    pub fn new(bank: &Bank, broadcast: &Arc<PeerBroadcast>, gate: &GateService) -> Self {
        Self {
            queue: Arc::clone(&bank.store.queue),
            batches: OpenBatches::new(&bank.store),
            broadcast: Arc::clone(broadcast),
            gate: gate.clone(),
            world: Arc::clone(&bank.world),
            count: QueueCount::new(&bank.store, Arc::clone(&bank.world)),
            configured: bank.queue_count,
            largest: AtomicU16::new(0),
        }
    }

    /// Reads the work queues, with one or two operations for each.
    ///
    /// # Errors
    /// [`StoreFault`] when a queue cannot be read.
    pub async fn work(&self) -> Result<WorkReading, StoreFault> {
        let count = match self.largest.load(Ordering::Relaxed) {
            0 => self.queue_count().await?,
            known => known,
        };
        let at = self.world.now();
        Ok(WorkReading { at, queues: self.backlogs(envelope::queues(count)).await? })
    }

    /// Reads the processes, the gate, and the queues of batches. Without open batches, this takes one operation for
    /// each of them, and two more.
    ///
    /// # Errors
    /// [`StoreFault`] when any of them cannot be read.
    pub async fn bank(&self) -> Result<BankReading, StoreFault> {
        // Queues beyond the configured number are processed too, and a process with a larger number can start at any time.
        let count = self.queue_count().await?;
        let at = self.world.now();
        let of_batches = try_join(self.backlogs(messages::queues(count)), self.batches.backlog());
        let cluster = try_join(self.broadcast.processes(), self.gate.read());
        let ((processes, gate), (queues, batches)) = try_join(cluster, of_batches).await?;
        Ok(BankReading { processes, gate, queues: (at, queues), batches })
    }

    async fn queue_count(&self) -> Result<u16, StoreFault> {
        let count = self.configured.max(self.count.largest().await?);
        self.largest.store(count, Ordering::Relaxed);
        Ok(count)
    }

    async fn backlogs(&self, queues: Vec<QueueName>) -> Result<Backlogs, StoreFault> {
        let backlog = async |name: QueueName| {
            let backlog = self.queue.backlog(&name).await?;
            Ok((name, backlog))
        };
        try_join_all(queues.into_iter().map(backlog)).await
    }
}
