//! The real world: the clock and the randomness of the machine, and tasks of tokio.
#![expect(
    clippy::disallowed_methods,
    reason = "the only module that calls the clock and the randomness directly"
)]

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures::future::BoxFuture;
use rand::RngExt as _;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::domain::time::Timestamp;
use crate::ports::world::World;

/// Niceness of the threads for tasks in the background: beside busy threads of the default they get about a tenth of a core.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 10;

/// The world of a running process.
#[derive(Debug)]
pub struct SystemWorld {
    started: Instant,
    /// The runtime for tasks. The threads of the HTTP server have small runtimes of their own; tasks that serve many
    /// requests must not depend on one of them.
    runtime: Option<Handle>,
    /// The runtime for tasks in the background, from the first one on; `None` if its threads cannot be started.
    background: OnceLock<Option<Runtime>>,
}

impl SystemWorld {
    /// Creates the world. If called within a runtime, all tasks run there, from whichever thread they are spawned.
    pub fn new() -> Self {
        Self { started: Instant::now(), runtime: Handle::try_current().ok(), background: OnceLock::new() }
    }
}

/// Starts threads of lower priority, as many as there are cores.
fn background_runtime() -> Option<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_name("background").on_thread_start(lower_priority);
    builder
        .build()
        .inspect_err(|error| tracing::warn!("No threads for batches could be started: {error}"))
        .ok()
}

/// Lowers the priority of this thread. Without effect where the system has only priorities of whole processes.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND_NICENESS) {
        tracing::debug!("The priority of a thread for batches could not be lowered: {error}");
    }
}

impl Drop for SystemWorld {
    fn drop(&mut self) {
        // It may be dropped by a task, which must not wait for other tasks.
        if let Some(Some(runtime)) = self.background.take() {
            runtime.shutdown_background();
        }
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
        // A clock before 1970 is clamped: the bank starts anyway, with wrong timestamps.
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_unix_ms(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
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

    fn spawn_in_background(&self, task: BoxFuture<'static, ()>) {
        match self.background.get_or_init(background_runtime) {
            Some(runtime) => drop(runtime.spawn(task)),
            None => self.spawn(task),
        }
    }

    fn spawn_on_this_thread(&self, task: BoxFuture<'static, ()>) {
        match Handle::try_current() {
            Ok(here) => drop(here.spawn(task)),
            Err(_) => self.spawn(task),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ports::world::{BackgroundWorld, WorldExt as _};

    #[tokio::test]
    async fn tasks_in_the_background_have_a_lower_priority() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let usual = niceness();
        let world: Arc<dyn World> = Arc::new(SystemWorld::new());
        let background = BackgroundWorld(Arc::clone(&world));
        let lower = background.start(async move { niceness() }).await;
        assert_eq!(lower, BACKGROUND_NICENESS.max(usual));
        assert_eq!(world.start(async move { niceness() }).await, usual, "other tasks are not affected");
        background.sleep(Duration::from_millis(1)).await;
    }
}
