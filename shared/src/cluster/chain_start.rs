//! When journals begin to contain every decision.
//!
//! Programs before that could neither read nor continue such a journal. So a process that knows it begins only when no
//! older one is left: every entry of the process registry is of a program that knows it, or expired long ago. It records
//! that in the store, and from then on no registry is searched. An older program must not be started afterwards: the audit
//! reports the decisions that it would leave out.
//!
//! Nothing of existing journals is changed: the journal of an account contains every decision from its next one on.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Ledger;
use crate::ports::process_registry::{ProcessRegistry, RegisteredProcess};
use crate::ports::sync_store::SyncStore;

/// The name of the value in the [`SyncStore`].
pub const NAME: &str = "chained-decisions";
/// The value: the version of the rule.
const VALUE: &str = "1";
/// Time after the due time of an entry in which its process may still run: it may post although it cannot renew its entry.
const MAY_RUN_FOR: Duration = Duration::from_secs(24 * 3600);

/// Begins the chain of all decisions in the ledger of a process.
pub struct ChainStart {
    sync: Arc<dyn SyncStore>,
    registry: Arc<dyn ProcessRegistry>,
    ledger: Arc<dyn Ledger>,
}

impl ChainStart {
    /// Creates the check of a process. Nothing is read or written yet.
    pub fn new(store: &Store) -> Self {
        Self {
            sync: Arc::clone(&store.sync),
            registry: Arc::clone(&store.process_registry),
            ledger: Arc::clone(&store.ledger),
        }
    }

    /// Begins if no older process is left, or if another process recorded that none is. The process must have written its
    /// entry. Reads nothing after it has begun.
    ///
    /// # Errors
    /// [`StoreFault`]; the start may have been recorded.
    pub async fn check(&self, now: Timestamp) -> Result<(), StoreFault> {
        if self.ledger.chains_decisions() {
            return Ok(());
        }
        if self.sync.get(NAME).await?.is_none() {
            let may_be_older = |entry: &RegisteredProcess| {
                !entry.chains_decisions && now <= entry.next_by.after(MAY_RUN_FOR)
            };
            if self.registry.list().await?.iter().any(may_be_older) {
                tracing::debug!(
                    "Journals contain only postings: a process of an older program may still run"
                );
                return Ok(());
            }
            // After a conflict another process has recorded it.
            let _swapped = self.sync.swap(NAME, None, VALUE).await?;
            tracing::info!(
                "Journals contain every decision from now on: do not start an older program any more"
            );
        }
        self.ledger.chain_decisions();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::ports::process_registry::{Address, ProcessId, ProcessKind};
    use crate::ports::world::World;

    fn entry(id: u128, chains_decisions: bool, now: Timestamp) -> RegisteredProcess {
        RegisteredProcess {
            id: ProcessId::from_uuid(uuid::Uuid::from_u128(id)),
            kind: ProcessKind::Worker,
            address: Address::parse("h:1").unwrap(),
            started_at: now,
            next_by: now,
            survivals: 0,
            chains_decisions,
        }
    }

    #[tokio::test]
    async fn every_decision_is_chained_when_no_older_process_is_left() {
        let test_world = Arc::new(TestWorld::new(1));
        let world: Arc<dyn World> = test_world.clone();
        let store = MemoryStore::new(Arc::clone(&world));
        let start = ChainStart::new(&store);
        let chains = async || {
            start.check(world.now()).await.unwrap();
            store.ledger.chains_decisions()
        };
        let announce = async |entry: RegisteredProcess| {
            store.process_registry.announce(&entry).await.unwrap();
        };
        announce(entry(1, true, world.now())).await;
        announce(entry(2, false, world.now())).await;
        assert!(!chains().await, "an older process runs");
        test_world.advance(Duration::from_secs(24 * 3600 - 1));
        assert!(!chains().await, "it may run without its entry");
        assert_eq!(store.sync.get(NAME).await.unwrap(), None);
        test_world.advance(Duration::from_secs(2));
        assert!(chains().await);
        assert!(store.sync.get(NAME).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_process_that_finds_the_record_reads_no_registry() {
        let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(Arc::clone(&world));
        let operations = store.operations.clone();
        let _swapped = store.sync.swap(NAME, None, VALUE).await.unwrap();
        store.process_registry.announce(&entry(2, false, world.now())).await.unwrap();
        let count = || operations.snapshot().values().sum::<u64>();
        let (before, start) = (count(), ChainStart::new(&store));
        start.check(world.now()).await.unwrap();
        start.check(world.now()).await.unwrap();
        assert!(store.ledger.chains_decisions());
        assert_eq!(count() - before, 1);
    }
}
