//! Small periodic tasks. The safety poll of the listener starts at most one of them, so that an idle process makes
//! few requests to the store.

use async_trait::async_trait;

/// A periodic task. It handles its own faults: it runs again later.
#[async_trait]
pub trait BackgroundTask: Send + Sync {
    /// Returns whether the task has work now. If not, the next task runs instead.
    fn is_due(&self) -> bool {
        true
    }

    /// Runs the task once. Runs do not overlap, unless one takes longer than the interval.
    async fn run(&self);
}
