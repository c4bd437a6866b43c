//! Keeps the entry of this process in the process registry, so that other processes can ring it.
//!
//! The entry is written at the start, renewed by a background task, and removed when the process stops. The validity
//! of an entry follows from the interval of the safety poll, so an idle process needs few operations for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{
    Address, ProcessId, ProcessKind, ProcessRegistry, RegisteredProcess,
};
use postonce_shared::ports::world::World;
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::background_task::BackgroundTask;
use crate::drain::Drain;

/// Shortest time between two renewals: a process that polls often, as in tests, need not renew as often.
const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Longest time between two renewals, if the safety poll is that frequent.
const INTERVAL_MAX: Duration = Duration::from_secs(20 * 60);
/// Safety polls from one renewal to the next.
const POLLS_PER_INTERVAL: u32 = 5;
/// Safety polls for which an entry is valid at least: background tasks take turns.
const POLLS_VALID_MIN: u32 = 10;
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
    times: RenewalTimes,
    registration: Mutex<Registration>,
}

/// Time between renewals, and the validity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RenewalTimes {
    /// A run that comes earlier after the last renewal does nothing.
    due_after: Duration,
    /// Validity of an entry, from its last renewal.
    valid_for: Duration,
}

impl RenewalTimes {
    fn of(idle_delay_max: Duration) -> Self {
        let interval = idle_delay_max.saturating_mul(POLLS_PER_INTERVAL).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let by_polls = idle_delay_max.saturating_mul(POLLS_VALID_MIN);
        Self {
            // One poll early is better than one late.
            due_after: interval.saturating_sub(idle_delay_max),
            valid_for: interval.saturating_mul(2).max(by_polls),
        }
    }
}

/// State of the entry. Locked during writes: a late renewal must not undo the removal.
#[derive(Debug, Default)]
struct Registration {
    announced_at: Option<Duration>,
    withdrawn: bool,
}

impl Heartbeat {
    /// Creates the entry of a process with this id and kind, which listens at `address` and polls about every
    /// `idle_delay_max`.
    pub fn new(
        registry: &Arc<dyn ProcessRegistry>,
        world: &Arc<dyn World>,
        (id, kind): (ProcessId, ProcessKind),
        address: Address,
        idle_delay_max: Duration,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            world: Arc::clone(world),
            id,
            kind,
            address,
            started_at: world.now(),
            times: RenewalTimes::of(idle_delay_max),
            registration: Mutex::default(),
        }
    }

    /// Registers the process, with retries until the store has the entry, and then calls `on_registered`. Removes the
    /// entry when the drain starts.
    pub async fn keep_registered(&self, drain: &Drain, on_registered: impl FnOnce()) {
        let mut backoff = STORE_NEEDED.start();
        while !drain.is_started() {
            match self.announce().await {
                Ok(()) => {
                    info!("Registered as {} {} at {}", self.kind.code(), self.id, self.address);
                    on_registered();
                    break;
                }
                Err(fault) => {
                    warn!("This process is not registered yet: {}", chain(&fault));
                    let pause = self.world.sleep(backoff.next(&*self.world));
                    select(std::pin::pin!(drain.started()), pause).await;
                }
            }
        }
        drain.started().await;
        let withdrawal = std::pin::pin!(self.withdraw());
        match select(withdrawal, self.world.sleep(WITHDRAWAL_TIMEOUT)).await {
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

    async fn announce(&self) -> Result<(), StoreFault> {
        let mut registration = self.registration.lock().await;
        if registration.withdrawn {
            return Ok(());
        }
        let entry = RegisteredProcess {
            id: self.id,
            kind: self.kind,
            address: self.address.clone(),
            started_at: self.started_at,
            next_by: self.world.now().after(self.times.valid_for),
        };
        self.registry.announce(&entry).await?;
        registration.announced_at = Some(self.world.uptime());
        Ok(())
    }

    async fn withdraw(&self) -> Result<(), StoreFault> {
        let mut registration = self.registration.lock().await;
        registration.withdrawn = true;
        self.registry.withdraw(self.id).await
    }
}

#[async_trait]
impl BackgroundTask for Heartbeat {
    async fn run(&self) {
        let announced_at = self.registration.lock().await.announced_at;
        let due =
            announced_at.is_none_or(|at| self.world.uptime().saturating_sub(at) >= self.times.due_after);
        if due && let Err(fault) = self.announce().await {
            warn!("Could not renew the registry entry of this process: {}", chain(&fault));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::drain;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::process_registry::live_processes;
    use postonce_shared::ports::world::WorldExt as _;

    #[test]
    fn an_idle_process_renews_rarely() {
        let seconds = Duration::from_secs;
        let check = |poll, due_after, valid_for| {
            let expected = RenewalTimes { due_after: seconds(due_after), valid_for: seconds(valid_for) };
            assert_eq!(RenewalTimes::of(seconds(poll)), expected, "polling every {poll} s");
        };
        check(1, 59, 120);
        check(60, 240, 600);
        check(600, 600, 6000);
    }

    #[tokio::test]
    async fn a_process_is_registered_only_while_it_runs() {
        let test_world = Arc::new(TestWorld::new(1));
        let world: Arc<dyn World> = test_world.clone();
        let store = MemoryStore::new(Arc::clone(&world));
        let address = Address::parse("worker-1:80").unwrap();
        let (id, poll) = (ProcessId::from_uuid(world.uuid()), Duration::from_secs(60));
        let heartbeat =
            Heartbeat::new(&store.process_registry, &world, (id, ProcessKind::Worker), address, poll);
        let (starter, drain) = drain();
        let operations = || store.operations.snapshot().values().sum::<u64>();
        let life = async {
            let mut spent = operations();
            while spent == 0 {
                tokio::task::yield_now().await;
                spent = operations();
            }
            // A day of safety polls, with two background tasks that take turns.
            for _ in 0..720 {
                test_world.advance(Duration::from_secs(120));
                heartbeat.run().await;
            }
            assert_eq!(operations(), 361, "one write at the start, and one at every second poll");
            assert_eq!(live_processes(&*store.process_registry, world.now()).await.unwrap().len(), 1);
            starter.start();
        };
        let announced = std::sync::atomic::AtomicBool::new(false);
        let note = || announced.store(true, std::sync::atomic::Ordering::SeqCst);
        futures::future::join(heartbeat.keep_registered(&drain, note), life).await;
        assert!(announced.into_inner());
        assert!(store.process_registry.list().await.unwrap().is_empty(), "the entry is removed at the end");
        test_world.advance(Duration::from_secs(3600));
        heartbeat.run().await;
        assert!(
            store.process_registry.list().await.unwrap().is_empty(),
            "a late run does not restore the entry"
        );
    }
}
