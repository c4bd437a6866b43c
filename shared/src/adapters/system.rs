//! The production implementation of [`World`]: the clocks and the random numbers of the machine, and tasks of tokio.
#![expect(
    clippy::disallowed_methods,
    reason = "the only module that calls the clock and the randomness directly"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures::future::BoxFuture;
use rand::RngExt as _;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;

use crate::domain::time::Timestamp;
use crate::ports::world::World;

/// The clock of [`World::uptime`]. It includes the time while the machine is suspended, because for other
/// machines, entries of this process, such as in the process registry, expire in that time.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UPTIME: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const UPTIME: ClockId = ClockId::Monotonic;

/// The [`World`] of a running process.
#[derive(Debug)]
pub struct SystemWorld {
    /// The runtime for tasks. Each thread of the HTTP server has a small runtime of its own, and tasks that serve many
    /// requests must not depend on one of those.
    runtime: Option<Handle>,
}

impl SystemWorld {
    /// Creates the world. If it is called within a runtime, all tasks are spawned on that runtime, from any thread.
    pub fn new() -> Self {
        Self { runtime: Handle::try_current().ok() }
    }
}

impl Default for SystemWorld {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl World for SystemWorld {
    fn now(&self) -> Timestamp {
        // A clock before 1970 is clamped to 1970, so that the bank still starts, although its timestamps are wrong.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_unix_ms(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }

    fn uptime(&self) -> Duration {
        let time = clock_gettime(UPTIME);
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    fn random(&self) -> u64 {
        rand::rng().random()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
    }

    fn spawn_on_this_thread(&self, task: BoxFuture<'static, ()>) {
        match Handle::try_current() {
            Ok(here) => drop(here.spawn(task)),
            Err(_) => self.spawn(task),
        }
    }
}
