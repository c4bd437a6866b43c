//! The daily sweep of payloads and used signatures that are no longer needed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postonce_process::background_task::BackgroundTask;
use postonce_shared::access::used_signatures::UsedSignatures;
use postonce_shared::bank::Bank;
use postonce_shared::batches::Batches;
use postonce_shared::messaging::sweep::{Sweep, Swept};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::{World, WorldExt as _};
use tracing::{info, warn};

/// Interval between the sweeps of a process.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The first sweep runs at a random time within this period. So processes that start together do not sweep together, and
/// processes that run for less than a day sweep as well.
const FIRST_WITHIN: Duration = Duration::from_secs(3600);

/// Background task that sweeps once a day.
pub struct PayloadSweep {
    sweep: Sweep,
    batches: Batches,
    signatures: UsedSignatures,
    world: Arc<dyn World>,
    /// Uptime of the next sweep.
    due_at: Mutex<Duration>,
}

impl PayloadSweep {
    /// Creates the sweep of a bank.
    pub fn new(bank: &Bank) -> Self {
        let world = Arc::clone(&bank.world);
        let first = world.uptime().saturating_add(world.jitter(FIRST_WITHIN));
        let sweep = Sweep::new(&bank.store, &bank.seal, Arc::clone(&world));
        let (batches, signatures) = (bank.batches.clone(), UsedSignatures::new(&bank.store));
        Self { sweep, batches, signatures, world, due_at: Mutex::new(first) }
    }

    async fn sweep_signatures(&self) {
        match self.signatures.sweep(self.world.now()).await {
            Ok(0) => {}
            Ok(removed) => info!("Removed {removed} used signatures that have expired"),
            Err(fault) => warn!("Could not remove expired signatures: {}", chain(&fault)),
        }
    }
}

fn report(kind: &str, swept: Result<Swept, impl Error + 'static>) {
    match swept {
        Ok(Swept { removed: 0, unreadable: 0, open: _, young: _ }) => {}
        Ok(Swept { removed, open, unreadable, young: _ }) => {
            info!(
                "Swept {removed} payloads {kind}; kept {open} that are needed and {unreadable} unreadable ones"
            );
        }
        // Retrying on the next day is early enough.
        Err(fault) => warn!("Could not sweep payloads {kind}: {}", chain(&fault)),
    }
}

#[async_trait]
impl BackgroundTask for PayloadSweep {
    fn is_due(&self) -> bool {
        self.world.uptime() >= *self.due_at.lock()
    }

    async fn run(&self) {
        // Set before the sweep, so that a long sweep is not started twice.
        *self.due_at.lock() = self.world.uptime().saturating_add(INTERVAL);
        report("of work", self.sweep.run().await);
        report("of batches", self.batches.sweep().await);
        self.sweep_signatures().await;
    }
}
