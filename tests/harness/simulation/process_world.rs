//! The clock and the timers of one process.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use postonce_shared::testing::prelude::*;

use super::scheduler::{ProcessId, Scheduler};

/// Start of all wall clocks: 2026-01-01T00:00:00Z.
const START_UNIX_MS: i64 = 1_767_225_600_000;

/// Returns the time of the store, whose clock is right.
pub fn store_time(scheduler: &Scheduler) -> Timestamp {
    Timestamp::from_unix_ms(START_UNIX_MS).after(scheduler.now())
}

/// A world whose wall clock may be wrong.
pub struct ProcessWorld {
    scheduler: Scheduler,
    process_id: ProcessId,
    /// Milliseconds by which the wall clock is ahead.
    skew_ms: i64,
}

impl ProcessWorld {
    /// Creates the world of a process whose wall clock is this many milliseconds ahead.
    pub const fn new(scheduler: Scheduler, process_id: ProcessId, skew_ms: i64) -> Self {
        Self { scheduler, process_id, skew_ms }
    }
}

#[async_trait]
impl World for ProcessWorld {
    fn now(&self) -> Timestamp {
        let right = store_time(&self.scheduler).unix_ms();
        Timestamp::from_unix_ms(right.saturating_add(self.skew_ms))
    }

    fn uptime(&self) -> Duration {
        self.scheduler.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.scheduler.sleep(self.process_id, duration).await;
    }

    fn random(&self) -> u64 {
        self.scheduler.random()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.scheduler.spawn(self.process_id, task);
    }
}
