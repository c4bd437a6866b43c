//! Keeps this process in the roster, so that others know where to ring.
//!
//! It announces itself at the start, then rides on the safety poll, and withdraws when it stops. How
//! long an announcement stands follows from how often the safety poll comes: an idle process spends
//! next to nothing on being found.

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

/// Least time between two announcements: a test that polls often need not announce often.
const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// Most time between two announcements, as far as the safety poll comes that often.
const INTERVAL_MAX: Duration = Duration::from_secs(20 * 60);
/// Safety polls from one announcement to the next.
const POLLS_PER_INTERVAL: u32 = 5;
/// Safety polls for which an announcement stands at least: errands take turns.
const POLLS_STANDING: u32 = 10;
/// How long withdrawing may take: an entry that stays is found to be stale.
const WITHDRAWAL_TIME_MAX: Duration = Duration::from_secs(2);

/// The place of this process in the roster.
pub struct Heartbeat {
    roster: Arc<dyn ProcessRegistry>,
    world: Arc<dyn World>,
    id: ProcessId,
    kind: ProcessKind,
    address: Address,
    started_at: Timestamp,
    rhythm: Rhythm,
    beats: Mutex<Beats>,
}

/// When to announce, and for how long that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rhythm {
    /// An errand that comes earlier after the last announcement does nothing.
    due_after: Duration,
    /// When the next announcement has to be there.
    stands_for: Duration,
}

impl Rhythm {
    fn of(idle_delay_max: Duration) -> Self {
        let interval = idle_delay_max.saturating_mul(POLLS_PER_INTERVAL).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let by_polls = idle_delay_max.saturating_mul(POLLS_STANDING);
        Self {
            // Rather one poll early than one late.
            due_after: interval.saturating_sub(idle_delay_max),
            stands_for: interval.saturating_mul(2).max(by_polls),
        }
    }
}

/// What was announced so far. Locked over the writes: a late announcement must not undo a withdrawal.
#[derive(Debug, Default)]
struct Beats {
    last: Option<Duration>,
    withdrawn: bool,
}

impl Heartbeat {
    /// The place of the process with that id, of that kind, which is called at that address, and whose safety
    /// poll comes about every `idle_delay_max`.
    pub fn new(
        roster: &Arc<dyn ProcessRegistry>,
        world: &Arc<dyn World>,
        (id, kind): (ProcessId, ProcessKind),
        address: Address,
        idle_delay_max: Duration,
    ) -> Self {
        Self {
            roster: Arc::clone(roster),
            world: Arc::clone(world),
            id,
            kind,
            address,
            started_at: world.now(),
            rhythm: Rhythm::of(idle_delay_max),
            beats: Mutex::default(),
        }
    }

    /// Announces the process, again and again until the store has it, and then calls `announced`;
    /// withdraws it when the drain starts.
    pub async fn keep(&self, drain: &Drain, announced: impl FnOnce()) {
        let mut backoff = STORE_NEEDED.start();
        while !drain.is_started() {
            match self.announce().await {
                Ok(()) => {
                    info!("This is {} {}; others ring at {}", self.kind.code(), self.id, self.address);
                    announced();
                    break;
                }
                Err(fault) => {
                    warn!("This process is not in the roster yet: {}", chain(&fault));
                    let pause = self.world.sleep(backoff.next(&*self.world));
                    select(std::pin::pin!(drain.started()), pause).await;
                }
            }
        }
        drain.started().await;
        let withdrawal = std::pin::pin!(self.withdraw());
        match select(withdrawal, self.world.sleep(WITHDRAWAL_TIME_MAX)).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(fault), _)) => {
                warn!("This process stays in the roster until it is stale: {}", chain(&fault));
            }
            Either::Right(_) => warn!("This process stays in the roster until it is stale"),
        }
    }

    /// Announces the process anew when it is time, for a process without a safety poll to ride on; until the drain
    /// starts.
    pub async fn beat(&self, drain: &Drain, every: Duration) {
        while !drain.is_started() {
            let pause = self.world.sleep(every);
            if let Either::Right(_) = select(std::pin::pin!(drain.started()), pause).await {
                self.run().await;
            }
        }
    }

    async fn announce(&self) -> Result<(), StoreFault> {
        let mut beats = self.beats.lock().await;
        if beats.withdrawn {
            return Ok(());
        }
        let entry = RegisteredProcess {
            id: self.id,
            kind: self.kind,
            address: self.address.clone(),
            started_at: self.started_at,
            next_by: self.world.now().after(self.rhythm.stands_for),
        };
        self.roster.announce(&entry).await?;
        beats.last = Some(self.world.uptime());
        Ok(())
    }

    async fn withdraw(&self) -> Result<(), StoreFault> {
        let mut beats = self.beats.lock().await;
        beats.withdrawn = true;
        self.roster.withdraw(self.id).await
    }
}

#[async_trait]
impl BackgroundTask for Heartbeat {
    async fn run(&self) {
        let last = self.beats.lock().await.last;
        let due = last.is_none_or(|last| self.world.uptime().saturating_sub(last) >= self.rhythm.due_after);
        if due && let Err(fault) = self.announce().await {
            warn!("This process could not announce itself: {}", chain(&fault));
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
    fn an_idle_process_is_found_for_little() {
        let seconds = Duration::from_secs;
        let check = |poll, due_after, stands_for| {
            let expected = Rhythm { due_after: seconds(due_after), stands_for: seconds(stands_for) };
            assert_eq!(Rhythm::of(seconds(poll)), expected, "polling every {poll} s");
        };
        check(1, 59, 120);
        check(60, 240, 600);
        check(600, 600, 6000);
    }

    #[tokio::test]
    async fn a_process_is_in_the_roster_while_it_runs_and_no_longer() {
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
            // A day of safety polls, on which two errands take turns.
            for _ in 0..720 {
                test_world.advance(Duration::from_secs(120));
                heartbeat.run().await;
            }
            assert_eq!(operations(), 361, "one at the start, and one at every second turn");
            assert_eq!(live_processes(&*store.process_registry, world.now()).await.unwrap().len(), 1);
            starter.start();
        };
        let announced = std::sync::atomic::AtomicBool::new(false);
        let note = || announced.store(true, std::sync::atomic::Ordering::SeqCst);
        futures::future::join(heartbeat.keep(&drain, note), life).await;
        assert!(announced.into_inner());
        assert!(store.process_registry.list().await.unwrap().is_empty(), "it withdrew");
        test_world.advance(Duration::from_secs(3600));
        heartbeat.run().await;
        assert!(store.process_registry.list().await.unwrap().is_empty(), "a late errand brings nothing back");
    }
}
