//! A world for tests. Its clock moves only when a test advances it, and a seed determines its random numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::domain::time::Timestamp;
use crate::ports::world::World;

/// 2026-01-01T00:00:00Z: the initial wall clock of every test world.
const START_UNIX_MS: i64 = 1_767_225_600_000;

/// A world whose time changes only through [`TestWorld::advance`].
pub struct TestWorld(Mutex<State>);

struct State {
    uptime: Duration,
    random: u64,
    /// The sleeping tasks by wake time. The number orders tasks with the same wake time by the start of their sleep.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    slept: u64,
}

impl TestWorld {
    /// Creates a world. The same seed gives the same random numbers, in the order of the calls.
    pub fn new(seed: u64) -> Self {
        let state = State { uptime: Duration::ZERO, random: seed, sleepers: BTreeMap::new(), slept: 0 };
        Self(Mutex::new(state))
    }

    /// Advances the clock and wakes the tasks whose sleep has ended, the earliest first. The tasks run at the next
    /// `await` of the caller, and all of them see the new time. Advance in small steps if a task has to sleep several
    /// times within the duration.
    pub fn advance(&self, duration: Duration) {
        let mut state = self.0.lock();
        let now = state.uptime.saturating_add(duration);
        state.uptime = now;
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        for sleeper in due.into_values() {
            // The receiver is gone if the task was dropped during its sleep.
            let _gone = sleeper.send(());
        }
    }

    /// Returns the number of sleeping tasks. When all tasks of a test sleep, nothing is left to run.
    pub fn sleepers(&self) -> usize {
        let mut state = self.0.lock();
        state.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        state.sleepers.len()
    }

    /// Registers a sleep. Returns `None` if the duration is zero.
    fn register_sleep(&self, duration: Duration) -> Option<oneshot::Receiver<()>> {
        if duration.is_zero() {
            return None;
        }
        let (sleeper, woken) = oneshot::channel();
        let mut state = self.0.lock();
        state.slept = state.slept.saturating_add(1);
        let wake = (state.uptime.saturating_add(duration), state.slept);
        state.sleepers.insert(wake, sleeper);
        Some(woken)
    }
}

#[async_trait]
impl World for TestWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(START_UNIX_MS).after(self.uptime())
    }

    fn uptime(&self) -> Duration {
        self.0.lock().uptime
    }

    async fn sleep(&self, duration: Duration) {
        match self.register_sleep(duration) {
            // A sender is dropped only after it was used, so this wait does not end early.
            Some(woken) => woken.await.unwrap_or_default(),
            // A zero sleep still yields, so that a loop without delay lets other tasks run.
            None => tokio::task::yield_now().await,
        }
    }

    fn random(&self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, 2014): short, and any seed is valid.
        let mut state = self.0.lock();
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state.random ^ (state.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[expect(clippy::disallowed_methods, reason = "the world spawns all tasks")]
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_seed_determines_the_random_numbers() {
        let draw = |seed| {
            let world = TestWorld::new(seed);
            [world.random(), world.random()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // The first two numbers of the authors' implementation for this seed.
        assert_eq!(draw(1_234_567), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[tokio::test]
    async fn a_sleep_ends_when_the_clock_reaches_it_and_not_before() {
        let world = Arc::new(TestWorld::new(7));
        let start = world.now();
        let sleeper = Arc::clone(&world);
        let (sender, mut woke) = oneshot::channel();
        world.spawn(Box::pin(async move {
            sleeper.sleep(Duration::from_secs(5)).await;
            sender.send(sleeper.uptime()).unwrap();
        }));
        while world.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        world.advance(Duration::from_millis(4_999));
        tokio::task::yield_now().await;
        assert!(woke.try_recv().is_err(), "the sleep ended too early");
        world.advance(Duration::from_millis(1));
        assert_eq!(woke.await.unwrap(), Duration::from_secs(5));
        assert_eq!(world.now().since(start), Duration::from_secs(5));
    }
}
