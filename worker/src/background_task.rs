//! Small chores that ride on the listener's safety poll, so that an idle process does no more than
//! one of them for each poll.

use async_trait::async_trait;

/// A chore. It handles its own faults: the next turn comes.
#[async_trait]
pub trait BackgroundTask: Send + Sync {
    /// Whether it has anything to do by now; a chore that has not leaves its turn to the next one.
    fn is_due(&self) -> bool {
        true
    }

    /// Does it once. Called one at a time, but for one that takes longer than the time to the next.
    async fn run(&self);
}
