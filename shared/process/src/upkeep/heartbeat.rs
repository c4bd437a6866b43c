//! Keeps the registry entry of this process. Other processes use it to ring this one, and to detect that it ended while it
//! tried the work of a message alone ([`Attempts`](postonce_shared::cluster::attempts::Attempts)).
//!
//! The entry is written at the start and renewed rarely. It is also renewed after an attempt that this process survived
//! although the message still records the attempt. It is removed when the process stops. The entry of a process that died
//! becomes stale; until then, the safety polls of other workers are frequent.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::permits::GatePermits;
use postonce_shared::cluster::registration::Registration;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{
    Address, LEVEL, ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess, VALID_FOR,
};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::Acceptor;
use tracing::{info, warn};

use crate::drain::{DRAIN_MAX, Drain};

/// Interval between renewals: about a hundred writes a day.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Time after a renewal during which this process relies on its entry. It is shorter than the validity, because the clocks of
/// other machines may differ.
const RELIABLE_FOR: Duration = Duration::from_secs(30 * 60);
/// Time limit for removing the entry after the work in progress has ended. An entry that is not removed becomes stale.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(4);

/// Maintains the registry entry of this process.
pub struct Heartbeat {
    registry: Arc<dyn ProcessRegistry>,
    world: Arc<dyn World>,
    registration: Arc<Registration>,
    permits: Arc<GatePermits>,
    acceptor: Arc<Acceptor>,
    id: ProcessId,
    kind: ProcessKind,
    address: Address,
    started_at: Timestamp,
}

impl Heartbeat {
    /// Prepares the entry of a process of the bank, which listens at `address`.
    pub fn new(bank: &Bank, (id, kind): (ProcessId, ProcessKind), address: Address) -> Self {
        Self {
            registry: Arc::clone(&bank.store.process_registry),
            world: Arc::clone(&bank.world),
            registration: Arc::clone(&bank.registration),
            permits: Arc::clone(&bank.gate_permits),
            id,
            acceptor: Arc::clone(&bank.acceptor),
            kind,
            address,
            started_at: bank.world.now(),
        }
    }

    /// Registers the process, retries until the entry is stored, and then calls `on_registered`. Renews the entry until the
    /// drain starts, and removes it after the work in progress has ended. Until then, a hold of the gate is sent to this
    /// process, and an operator sees whether it acknowledges it.
    pub async fn keep_registered(&self, drain: &Drain, on_registered: impl FnOnce()) {
        // Renewal and removal run in sequence, so that a late renewal cannot undo the removal. `late` also ends the
        // registration, because a renewal may be in progress.
        let registration = async {
            self.register(drain, on_registered).await;
            self.renew(drain).await;
            self.registration.end();
            self.permits.until_idle().await;
            if self.acceptor.has_unsent_work() {
                warn!(
                    "Some work is stored, but not sent: the registry entry of this process remains, so that another \
                     process looks for it"
                );
                return Ok(());
            }
            self.registration.withdraw();
            self.permits.until_unused().await;
            self.registry.withdraw(self.id).await
        };
        let late = async {
            drain.started().await;
            self.registration.end();
            select(std::pin::pin!(self.permits.until_idle()), self.world.sleep(DRAIN_MAX)).await;
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
        let mut failures = STORE_NEEDED.start();
        let mut delay = RENEWAL_INTERVAL;
        loop {
            let requested = self.registration.renewal_requested();
            let due = select(requested.boxed(), self.world.sleep(delay));
            match select(std::pin::pin!(drain.started()), due).await {
                Either::Left(_) => return,
                Either::Right(_) => match self.announce().await {
                    Ok(()) => {
                        failures.reset();
                        delay = RENEWAL_INTERVAL;
                    }
                    Err(fault) => {
                        warn!("Could not renew the registry entry of this process: {}", chain(&fault));
                        delay = failures.next(&*self.world);
                    }
                },
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
            attempts_survived: self.registration.attempts_survived(),
            level: LEVEL,
        };
        let begun = self.world.uptime();
        self.registry.announce(&entry).await?;
        self.permits.register(&entry, begun.saturating_add(RELIABLE_FOR));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use async_trait::async_trait;

    use crate::drain::drain;
    use futures::future::join;
    use postonce_shared::adapters::local_doorbell::LocalDoorbell;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::process_registry::live_processes;
    use postonce_shared::ports::world::WorldExt as _;
    use postonce_shared::testing::registered::{count_as_registered, count_as_released};
    use postonce_shared::testing::sealed::seal;

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
        let (operations, registry) = (store.operations.clone(), Arc::clone(&store.process_registry));
        let bank = Bank::new(store, Arc::clone(&world), Arc::new(LocalDoorbell::default()), seal(), 1);
        let heartbeat = Heartbeat::new(&bank, own, address);
        let (starter, drain) = drain();
        let operations = || operations.snapshot().values().sum::<u64>();
        let life = async {
            settle().await;
            for _ in 0..24 * 60 {
                test_world.advance(Duration::from_secs(60));
                settle().await;
            }
            assert_eq!(operations(), 97, "one write at the start, and one in 15 minutes");
            assert_eq!(live_processes(&*registry, world.now()).await.unwrap().len(), 1);
            assert!(bank.registration.is_valid(world.uptime()));
            // A request is being posted.
            count_as_released(&bank);
            let permit = bank.gate_permits.enter();
            assert!(permit.is_some());
            starter.start();
            settle().await;
            assert!(!bank.registration.is_valid(world.uptime()), "no further requests are posted at once");
            assert_eq!(registry.list().await.unwrap().len(), 1, "the gate waits for this one");
            assert!(bank.gate_permits.enter().is_some(), "work in progress is finished");
            drop(permit);
        };
        let announced = AtomicBool::new(false);
        let note = || announced.store(true, Ordering::SeqCst);
        join(heartbeat.keep_registered(&drain, note), life).await;
        assert!(announced.into_inner());
        assert!(registry.list().await.unwrap().is_empty(), "the entry is removed at the end");
        count_as_registered(&bank);
        assert!(!bank.registration.is_valid(world.uptime()), "a late renewal has no effect");
        count_as_released(&bank);
        assert!(bank.gate_permits.enter().is_none(), "the others do not find it any more");
    }

    #[tokio::test]
    async fn a_process_that_cannot_renew_its_entry_stops_relying_on_it_and_tries_again_soon() {
        let test_world = Arc::new(TestWorld::new(1));
        let world: Arc<dyn World> = test_world.clone();
        let mut store = MemoryStore::new(Arc::clone(&world));
        let registry = Arc::new(Unreliable {
            inner: Arc::clone(&store.process_registry),
            is_down: false.into(),
            refused: 0.into(),
        });
        store.process_registry = registry.clone();
        let bank = Bank::new(store, Arc::clone(&world), Arc::new(LocalDoorbell::default()), seal(), 1);
        let own = (ProcessId::from_uuid(world.uuid()), ProcessKind::Web);
        let heartbeat = Heartbeat::new(&bank, own, Address::parse("web-1:80").unwrap());
        let (starter, drain) = drain();
        let life = async {
            settle().await;
            let is_valid = || bank.registration.is_valid(world.uptime());
            assert!(is_valid());
            registry.is_down.store(true, Ordering::SeqCst);
            for minute in 1..=30 {
                test_world.advance(Duration::from_secs(60));
                settle().await;
                assert_eq!(is_valid(), minute < 30, "after {minute} minutes");
            }
            assert!(registry.refused.load(Ordering::SeqCst) > 10);
            registry.is_down.store(false, Ordering::SeqCst);
            test_world.advance(Duration::from_secs(60));
            settle().await;
            assert!(is_valid());
            starter.start();
        };
        join(heartbeat.keep_registered(&drain, || {}), life).await;
    }

    /// A registry whose writes fail while it is down.
    struct Unreliable {
        inner: Arc<dyn ProcessRegistry>,
        is_down: AtomicBool,
        refused: AtomicU64,
    }

    #[async_trait]
    impl ProcessRegistry for Unreliable {
        async fn announce(&self, entry: &RegisteredProcess) -> Result<(), StoreFault> {
            if self.is_down.load(Ordering::SeqCst) {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return Err(StoreFault::Unavailable { doing: "announcing", source: "it is down".into() });
            }
            self.inner.announce(entry).await
        }

        async fn withdraw(&self, id: ProcessId) -> Result<(), StoreFault> {
            self.inner.withdraw(id).await
        }

        async fn list(&self) -> Result<Vec<RegisteredProcess>, StoreFault> {
            self.inner.list().await
        }
    }
}
