//! Small periodic tasks. A listener starts them in turn, one at a time, so that an idle process makes few store requests. A
//! process without a listener runs them with [`run_every`].

use std::time::Duration;

use async_trait::async_trait;
use futures::future::{Either, select};
use postonce_shared::ports::world::World;

use crate::drain::Drain;

/// A periodic task. It handles its own faults; the next run tries again.
#[async_trait]
pub trait BackgroundTask: Send + Sync {
    /// Returns whether the task has work now. If not, the next task runs instead.
    fn is_due(&self) -> bool {
        true
    }

    /// Runs the task once. Runs do not overlap, unless one takes longer than the interval.
    async fn run(&self);
}

/// Runs a task at an interval until the drain starts.
pub async fn run_every(task: &dyn BackgroundTask, interval: Duration, world: &dyn World, drain: &Drain) {
    while !drain.is_started() {
        let pause = world.sleep(interval);
        if let Either::Right(_) = select(std::pin::pin!(drain.started()), pause).await
            && task.is_due()
        {
            task.run().await;
        }
    }
}
