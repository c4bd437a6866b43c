//! Single requests come first: while this process has some in progress, batches commit less at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    /// Largest number of commits of batches at once while single requests are in progress.
    const COMMITS_BESIDE_SINGLES: usize = 2;

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

impl Default for Singles {
    fn default() -> Self {
        Self {
            in_progress: AtomicUsize::new(0),
            all: Arc::new(Semaphore::new(Self::COMMITS_MAX)),
            few: Arc::new(Semaphore::new(Self::COMMITS_BESIDE_SINGLES)),
        }
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}
