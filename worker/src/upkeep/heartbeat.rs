//! Keeps the entry of this process in the process registry, so that other processes can ring it.
//!
//! The entry is written at the start, renewed rarely, and removed when the process stops. The entry of a process that
//! died remains until it is stale, and makes the safety polls of other workers frequent for that time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{
    Address, ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess,
};
use postonce_shared::ports::world::World;
use tracing::{info, warn};

use crate::drain::Drain;

/// Time between two renewals: about a hundred writes a day.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Validity of an entry, from its last renewal: one renewal may fail.
const VALID_FOR: Duration = Duration::from_secs(35 * 60);
/// Longest time for removing the entry. An entry that remains becomes stale.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(2);

/// The registry entry of this process.
pub struct Heartbeat {
    registry: Arc<dyn ProcessRegistry>,
    world: Arc<dyn World>,
    id: ProcessId,
    kind: ProcessKind,
    address: Address,
    started_at: Timestamp,
}

impl Heartbeat {
    /// Creates the entry of a process with this id and kind, which listens at `address`.
    pub fn new(
        registry: &Arc<dyn ProcessRegistry>,
        world: &Arc<dyn World>,
        (id, kind): (ProcessId, ProcessKind),
        address: Address,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            world: Arc::clone(world),
            id,
            kind,
            address,
            started_at: world.now(),
        }
    }

    /// Registers the process, with retries until the store has the entry, and then calls `on_registered`. Renews the
    /// entry, and removes it when the drain starts.
    pub async fn keep_registered(&self, drain: &Drain, on_registered: impl FnOnce()) {
        // In one sequence, so that a late renewal does not undo the removal.
        let registration = async {
            self.register(drain, on_registered).await;
            self.renew(drain).await;
            self.registry.withdraw(self.id).await
        };
        let late = async {
            drain.started().await;
            self.world.sleep(WITHDRAWAL_TIMEOUT).await;
        };
        match select(std::pin::pin!(registration), std::pin::pin!(late)).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(fault), _)) => {
                warn!(
                    "Could not remove the registry entry of this process, which becomes stale: {}",
                    chain(&fault)
                );
            }
            Either::Right(_) => {
                warn!("Could not remove the registry entry of this process in time; it becomes stale")
            }
        }
    }

    async fn register(&self, drain: &Drain, on_registered: impl FnOnce()) {
        let mut backoff = STORE_NEEDED.start();
        while !drain.is_started() {
            match self.announce().await {
                Ok(()) => {
                    info!("Registered as {} {} at {}", self.kind.code(), self.id, self.address);
                    on_registered();
                    return;
                }
                Err(fault) => {
                    warn!("This process is not registered yet: {}", chain(&fault));
                    let pause = self.world.sleep(backoff.next(&*self.world));
                    select(std::pin::pin!(drain.started()), pause).await;
                }
            }
        }
    }

    async fn renew(&self, drain: &Drain) {
        loop {
            let pause = self.world.sleep(RENEWAL_INTERVAL);
            match select(std::pin::pin!(drain.started()), pause).await {
                Either::Left(_) => return,
                Either::Right(_) => {
                    if let Err(fault) = self.announce().await {
                        warn!("Could not renew the registry entry of this process: {}", chain(&fault));
                    }
                }
            }
        }
    }

    async fn announce(&self) -> Result<(), StoreFault> {
        let entry = RegisteredProcess {
            id: self.id,
            kind: self.kind,
            address: self.address.clone(),
            started_at: self.started_at,
            next_by: self.world.now().after(VALID_FOR),
        };
        self.registry.announce(&entry).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::drain;
    use futures::future::join;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::process_registry::live_processes;
    use postonce_shared::ports::world::WorldExt as _;

    /// Runs all tasks until they wait.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_process_is_registered_only_while_it_runs_and_renews_rarely() {
        let test_world = Arc::new(TestWorld::new(1));
        let world: Arc<dyn World> = test_world.clone();
        let store = MemoryStore::new(Arc::clone(&world));
        let address = Address::parse("worker-1:80").unwrap();
        let own = (ProcessId::from_uuid(world.uuid()), ProcessKind::Worker);
        let heartbeat = Heartbeat::new(&store.process_registry, &world, own, address);
        let (starter, drain) = drain();
        let operations = || store.operations.snapshot().values().sum::<u64>();
        let life = async {
            settle().await;
            for _ in 0..24 * 60 {
                test_world.advance(Duration::from_secs(60));
                settle().await;
            }
            assert_eq!(operations(), 97, "one write at the start, and one in 15 minutes");
            assert_eq!(live_processes(&*store.process_registry, world.now()).await.unwrap().len(), 1);
            starter.start();
        };
        let announced = std::sync::atomic::AtomicBool::new(false);
        let note = || announced.store(true, std::sync::atomic::Ordering::SeqCst);
        join(heartbeat.keep_registered(&drain, note), life).await;
        assert!(announced.into_inner());
        assert!(store.process_registry.list().await.unwrap().is_empty(), "the entry is removed at the end");
    }
}
