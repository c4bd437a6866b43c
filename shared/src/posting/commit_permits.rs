//! Gives single requests priority: while this process has some in progress, batches write fewer commits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ports::ledger::{JointSteps, Ledger};

/// Largest number of concurrent commits of batches, if each commit is a separate step.
pub const COMMITS_MAX: usize = 64;
/// Largest number of concurrent joint steps.
const JOINT_STEPS_MAX: usize = 4;
/// Concurrent commits beside single requests, for a ledger with one writer: each further one costs them an fdatasync.
const BESIDE_ONE_WRITER: usize = 1;
/// Concurrent commits beside single requests, for a ledger with many writers, which hardly slow each other down.
const BESIDE_MANY_WRITERS: usize = 16;

/// Counts the single requests in progress and limits the commits of batches.
#[derive(Debug)]
pub struct Singles {
    in_progress: AtomicUsize,
    /// Permits for commits without single requests in progress; every commit takes one.
    all: Arc<Semaphore>,
    commits_max: usize,
    /// Additional permits for commits beside single requests.
    few: Arc<Semaphore>,
    few_max: usize,
}

/// A single request in progress. Dropping it ends the request.
#[derive(Debug)]
pub struct Single(Arc<Singles>);

/// Permits for commits of a batch, released on drop.
#[derive(Debug)]
pub struct CommitPermit {
    /// The permitted number of commits.
    pub commits: usize,
    _all: Option<OwnedSemaphorePermit>,
    _few: Option<OwnedSemaphorePermit>,
}

impl Singles {
    /// Creates the limits for a ledger. If it has one writer, as in a file, single requests wait for the commits of batches.
    pub fn on(ledger: &dyn Ledger) -> Self {
        // Only a ledger with one writer writes in order.
        let few_max = if ledger.writes_in_order() { BESIDE_ONE_WRITER } else { BESIDE_MANY_WRITERS };
        // While one joint step is written, others are prepared.
        let joint = ledger.joint_steps().map_or(0, JointSteps::accounts_max);
        let commits_max = joint.saturating_mul(JOINT_STEPS_MAX).max(COMMITS_MAX);
        Self {
            in_progress: AtomicUsize::new(0),
            all: Arc::new(Semaphore::new(commits_max)),
            commits_max,
            few: Arc::new(Semaphore::new(few_max)),
            few_max,
        }
    }

    /// Records that a single request is in progress until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Single {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        Single(Arc::clone(self))
    }

    /// Waits until a batch may write up to `wanted` commits.
    pub async fn permit(&self, wanted: usize) -> CommitPermit {
        let (mut commits, mut few) = (wanted.clamp(1, self.commits_max), None);
        if self.in_progress.load(Ordering::Relaxed) > 0 {
            commits = commits.min(self.few_max);
            few = acquire(&self.few, commits).await;
        }
        CommitPermit { commits, _all: acquire(&self.all, commits).await, _few: few }
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn acquire(permits: &Arc<Semaphore>, count: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(permits).acquire_many_owned(u32::try_from(count).unwrap_or(u32::MAX)).await.ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;

    /// Returns the permits that can be taken at once, for as many commits as possible each.
    fn permits(singles: &Singles) -> Vec<CommitPermit> {
        std::iter::from_fn(|| singles.permit(usize::MAX).now_or_never()).collect()
    }

    fn commits(permits: &[CommitPermit]) -> usize {
        permits.iter().map(|permit| permit.commits).sum()
    }

    #[test]
    fn batches_commit_less_at_once_beside_single_requests() {
        let store = MemoryStore::new(Arc::new(TestWorld::new(1)));
        let singles = Arc::new(Singles::on(&*store.ledger));
        assert_eq!(commits(&permits(&singles)), COMMITS_MAX);
        let single = singles.begin();
        let beside = permits(&singles);
        assert_eq!(commits(&beside), BESIDE_MANY_WRITERS);
        drop(single);
        // The permits that were taken beside a single request count: as many as before are not left.
        assert!(singles.permit(COMMITS_MAX).now_or_never().is_none());
        let left = COMMITS_MAX - BESIDE_MANY_WRITERS;
        assert_eq!(singles.permit(left).now_or_never().map(|permit| permit.commits), Some(left));
        drop(beside);
        assert_eq!(commits(&permits(&singles)), COMMITS_MAX);
    }
}
