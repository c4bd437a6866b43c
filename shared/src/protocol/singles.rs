//! Single requests come first: while this process has some in progress, batches commit less at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ports::ledger::Ledger;

/// Commits beside single requests of a ledger with one writer, which they would have to wait for.
const BESIDE_ONE_WRITER: usize = 2;
/// Commits beside single requests of a ledger with many writers, which slow each other down only a little.
const BESIDE_MANY_WRITERS: usize = 16;

/// Counts the single requests in progress, and limits the commits of batches.
#[derive(Debug)]
pub struct Singles {
    in_progress: AtomicUsize,
    /// Permits of commits, while there are no single requests.
    all: Arc<Semaphore>,
    /// Permits of commits, while there are some.
    few: Arc<Semaphore>,
}

/// A single request in progress.
#[derive(Debug)]
pub struct Single(Arc<Singles>);

/// A permit for one commit of a batch.
#[derive(Debug)]
pub struct CommitPermit {
    _all: Option<OwnedSemaphorePermit>,
    _few: Option<OwnedSemaphorePermit>,
}

impl Singles {
    /// Largest number of commits of batches at once.
    pub const COMMITS_MAX: usize = 64;

    /// Creates the limits for a ledger. With one writer, as in a file, single requests wait for the commits of batches.
    pub fn on(ledger: &dyn Ledger) -> Self {
        // Only a ledger with one writer writes in order.
        let few = if ledger.writes_in_order() { BESIDE_ONE_WRITER } else { BESIDE_MANY_WRITERS };
        Self {
            in_progress: AtomicUsize::new(0),
            all: Arc::new(Semaphore::new(Self::COMMITS_MAX)),
            few: Arc::new(Semaphore::new(few)),
        }
    }

    /// Records that a single request is in progress until the returned value is dropped.
    pub fn begin(self: &Arc<Self>) -> Single {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        Single(Arc::clone(self))
    }

    /// Waits until a batch may commit.
    pub async fn permit(&self) -> CommitPermit {
        let few = match self.in_progress.load(Ordering::Relaxed) {
            0 => None,
            _ => Arc::clone(&self.few).acquire_owned().await.ok(),
        };
        let all = Arc::clone(&self.all).acquire_owned().await.ok();
        CommitPermit { _all: all, _few: few }
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;

    /// Returns the permits that can be taken at once.
    fn permits(singles: &Singles) -> Vec<CommitPermit> {
        std::iter::from_fn(|| singles.permit().now_or_never()).collect()
    }

    #[test]
    fn batches_commit_less_at_once_beside_single_requests() {
        let store = MemoryStore::new(Arc::new(TestWorld::new(1)));
        let singles = Arc::new(Singles::on(&*store.ledger));
        assert_eq!(permits(&singles).len(), Singles::COMMITS_MAX);
        let single = singles.begin();
        let beside = permits(&singles);
        assert_eq!(beside.len(), BESIDE_MANY_WRITERS);
        drop(single);
        // The permits that were taken beside a single request count.
        assert_eq!(permits(&singles).len(), Singles::COMMITS_MAX - BESIDE_MANY_WRITERS);
        drop(beside);
        assert_eq!(permits(&singles).len(), Singles::COMMITS_MAX);
    }
}
