//! Restores the work of queues that were deleted while the process runs, by mistake or by a rule of the storage account.
//!
//! Messages are only pointers: accepted transactions are in the log. So their work is enqueued again at once, by every process
//! that notices; the marks of the rows allow one of them to send each message. Without this, the next walk of the scrubber
//! finds them. Batches of which messages are lost continue when they are looked after
//! ([`BatchUpkeep`](crate::batches::upkeep::BatchUpkeep)).

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::bank::Bank;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::recover::Repair;
use tracing::{error, info, warn};

/// Starts a task that restores the work of deleted queues until the process ends.
pub fn watch(bank: &Bank) {
    let (queue, repair, world) =
        (Arc::clone(&bank.store.queue), bank.repair.clone(), Arc::clone(&bank.world));
    let watching = async move {
        loop {
            let deleted = queue.deleted().await;
            for name in &deleted {
                error!(queue = %name, "The queue {name} was deleted with its messages: its accepted transactions are enqueued again");
            }
            restore(&deleted, &repair, &*world).await;
        }
    };
    bank.world.spawn(watching.boxed());
}

/// Creates those of the queues that do not exist, in a task, and restores the work that they may have had: they may have been
/// deleted while no process ran. Only for a bank that has used queues before.
pub fn restore_missing(bank: &Bank, queues: Vec<QueueName>) {
    let (queue, repair, world) =
        (Arc::clone(&bank.store.queue), bank.repair.clone(), Arc::clone(&bank.world));
    let restoring = async move {
        let mut missing = BTreeSet::new();
        for name in queues {
            let mut faults = STORE_NEEDED.start();
            loop {
                match queue.create(&name).await {
                    Ok(true) => drop(missing.insert(name)),
                    Ok(false) => {}
                    Err(fault) => {
                        warn!("The queue {name} is not created yet: {}", chain(&fault));
                        world.sleep(faults.next(&*world)).await;
                        continue;
                    }
                }
                break;
            }
        }
        if !missing.is_empty() {
            restore(&missing, &repair, &*world).await;
        }
    };
    bank.world.spawn(restoring.boxed());
}

/// Enqueues the accepted transactions of queues again, with retries until all are examined.
async fn restore(queues: &BTreeSet<QueueName>, repair: &Repair, world: &dyn World) {
    let names = queues.iter().map(QueueName::as_str).collect::<Vec<_>>().join(", ");
    let mut faults = STORE_NEEDED.start();
    loop {
        match repair.recover_deleted(queues).await {
            Ok(recovered) => {
                info!("Enqueued {} accepted transactions of {names} again", recovered.enqueued);
                return;
            }
            Err(fault) => {
                warn!("The accepted transactions of {names} are not enqueued again yet: {}", chain(&fault));
                world.sleep(faults.next(world)).await;
            }
        }
    }
}
