//! Restores the work of queues that were deleted by mistake or by a rule of the storage account.
//!
//! Messages only refer to accepted transactions, which are stored in the log. Every process that notices a deletion therefore
//! enqueues the work again. All processes use the same deletion time ([`LostQueues`]), and skip transactions that another
//! process has enqueued since then. If a process ends before it has finished, the next worker that starts continues. Otherwise
//! the next round of the scrubber would find them. `BatchUpkeep` of the worker continues batches with lost messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::bank::Bank;
use postonce_shared::messaging::lost_queues::LostQueues;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::queue::{QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::recover::Repair;
use tracing::{error, info, warn};

/// Starts a task that restores the work of deleted queues until the process ends.
pub fn watch(bank: &Bank) {
    let restoration = Restoration::of(bank);
    let watching = async move {
        loop {
            let deleted = restoration.queue.deleted().await;
            for name in &deleted {
                error!(queue = %name, "The queue {name} was deleted with its messages: its accepted transactions are enqueued again");
            }
            restoration.run(deleted).await;
        }
    };
    bank.world.spawn(watching.boxed());
}

/// Creates missing queues in a task, and restores their work, because they may have been deleted while no process ran. Only for
/// queues that the bank has used before.
pub fn restore_missing(bank: &Bank, queues: Vec<QueueName>) {
    let restoration = Restoration::of(bank);
    let restoring = async move {
        let mut missing = BTreeSet::new();
        for name in queues {
            if restoration.create(&name).await {
                missing.insert(name);
            }
        }
        // Run even if no queue is missing: another process may have created some, and ended before it restored their work.
        restoration.run(missing).await;
    };
    bank.world.spawn(restoring.boxed());
}

/// Creates missing queues in a task. Errors are retried: processes that only send may lack the right to create queues.
pub fn create(bank: &Bank, queues: Vec<QueueName>) {
    let restoration = Restoration::of(bank);
    let creating = async move {
        for name in queues {
            restoration.create(&name).await;
        }
    };
    bank.world.spawn(creating.boxed());
}

struct Restoration {
    queue: Arc<dyn WorkQueue>,
    lost: LostQueues,
    repair: Repair,
    world: Arc<dyn World>,
}

impl Restoration {
    fn of(bank: &Bank) -> Self {
        let (queue, sync, world) =
            (Arc::clone(&bank.store.queue), Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
        Self { queue, lost: LostQueues::new(sync, Arc::clone(&world)), repair: bank.repair.clone(), world }
    }

    /// Creates a queue if it does not exist. Returns whether it was missing.
    async fn create(&self, name: &QueueName) -> bool {
        let mut faults = STORE_NEEDED.start();
        loop {
            match self.queue.create(name).await {
                Ok(is_new) => return is_new,
                Err(fault) => {
                    warn!("The queue {name} is not created yet: {}", chain(&fault));
                    self.world.sleep(faults.next(&*self.world)).await;
                }
            }
        }
    }

    /// Enqueues the accepted transactions of lost queues again, and retries until all are examined.
    async fn run(&self, found: BTreeSet<QueueName>) {
        let mut faults = STORE_NEEDED.start();
        while let Err(fault) = self.restore(&found).await {
            warn!(
                "The accepted transactions of deleted queues are not all enqueued again yet: {}",
                chain(&fault)
            );
            self.world.sleep(faults.next(&*self.world)).await;
        }
    }

    async fn restore(&self, found: &BTreeSet<QueueName>) -> Result<(), StoreFault> {
        let lost = self.lost.note(found.iter().cloned()).await?;
        if lost.is_empty() {
            return Ok(());
        }
        let names = lost.keys().map(QueueName::as_str).collect::<Vec<_>>().join(", ");
        let recovered = self.repair.recover_deleted(&lost).await?;
        info!("Enqueued {} accepted transactions of {names} again", recovered.enqueued);
        self.lost.remove(&lost).await
    }
}
