//! The original algorithm of well-known generators of unique numbers over a shared value: a lock around the current
//! range. A caller that finds the range used up reserves the next one by compare-and-swap, retries at once on a
//! conflict, and holds the lock until it has a range.
//!
//! It is safer than those in one point: a range is used only after its write is confirmed.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use postonce_shared::ports::sync_store::{Swapped, SyncStore};
use tokio::runtime::Handle;

use super::Allocator;

/// The name of the shared value: the first number that is not reserved.
const NAME: &str = "original-numbers";
/// Size of every range.
const RANGE_LEN: u64 = 1000;
/// Attempts to reserve a range before the caller gets an error.
const ATTEMPTS_MAX: u32 = 25;

/// A range behind a lock.
pub struct Original {
    sync: Arc<dyn SyncStore>,
    runtime: Handle,
    range: Mutex<Range<u64>>,
}

impl Allocator for Original {
    fn over(sync: Arc<dyn SyncStore>) -> Self {
        Self { sync, runtime: Handle::current(), range: Mutex::new(0..0) }
    }

    fn next(&self) -> Option<u64> {
        let mut range = self.range.lock();
        if range.is_empty() {
            *range = self.runtime.block_on(self.reserve())?;
        }
        range.next()
    }
}

impl Original {
    async fn reserve(&self) -> Option<Range<u64>> {
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.sync.get(NAME).await.ok()?;
            let (from, revision) = match stored {
                Some(stored) => (stored.value.parse().ok()?, Some(stored.revision)),
                None => (0, None),
            };
            let until = RANGE_LEN.checked_add(from)?;
            match self.sync.swap(NAME, revision.as_ref(), &until.to_string()).await.ok()? {
                Swapped::Done(_) => return Some(from..until),
                Swapped::Conflict => {}
            }
        }
        None
    }
}
