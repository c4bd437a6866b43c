//! The real world: the clock of the machine, its randomness, and tasks of tokio.
#![expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine itself")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures::future::BoxFuture;
use rand::RngExt as _;
use tokio::runtime::Handle;

use crate::domain::time::Timestamp;
use crate::ports::world::World;

/// The world of a running process.
#[derive(Debug)]
pub struct SystemWorld {
    started: Instant,
    /// Where tasks run. The threads of the HTTP server have small runtimes of their own; work that
    /// many requests share must not depend on one of them.
    runtime: Option<Handle>,
}

impl SystemWorld {
    /// The world from now on. Made within a runtime, its tasks run there, whoever starts them.
    pub fn new() -> Self {
        Self { started: Instant::now(), runtime: Handle::try_current().ok() }
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
        // A clock before 1970 is clamped: the bank opens anyway, and its times are merely wrong.
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
}
