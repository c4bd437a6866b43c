//! A copy of a store into another one.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::oversight::copy::{
    Copier, CopyOptions, CopyState, CopyTotals, CopyWatcher, FinalValues,
};
use postonce_shared::oversight::verify::Totals;
use postonce_shared::testing::prelude::*;

use super::stores::{TestBank, system};

const ACCOUNTS: u64 = 60;

/// Shared values whose writes take a while. Counts the writes that did not find what was read before.
struct SlowValues {
    inner: Arc<dyn SyncStore>,
    conflicts: Arc<AtomicU32>,
}

#[async_trait]
impl SyncStoreDecorator for SlowValues {
    fn inner(&self) -> &dyn SyncStore {
        &*self.inner
    }

    async fn swap(
        &self,
        name: &str,
        expected: Option<&Revision>,
        value: &str,
    ) -> Result<Swapped, StoreFault> {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let swapped = self.inner.swap(name, expected, value).await?;
        if swapped == Swapped::Conflict {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(swapped)
    }
}

struct NoWatcher;

impl CopyWatcher for NoWatcher {
    fn progressed(&self, _: &CopyTotals) {}
    fn audited(&self, _: &Totals) {}
    fn noticed(&self, notice: &str) {
        panic!("nothing is wrong: {notice}");
    }
}

/// Several ranges are copied at once, and each saves its position in the same value.
#[tokio::test]
async fn ranges_that_are_copied_at_once_do_not_disturb_each_other() {
    let source = TestBank::over(MemoryStore::new(system()));
    for _ in 0..ACCOUNTS {
        source.open().await;
    }
    let conflicts = Arc::new(AtomicU32::new(0));
    let mut target = MemoryStore::new(system());
    target.sync = Arc::new(SlowValues { inner: Arc::clone(&target.sync), conflicts: Arc::clone(&conflicts) });
    let options = CopyOptions {
        source: "source".to_owned(),
        operations_per_second: NonZeroU32::MAX,
        overlap: Duration::from_secs(1),
        values: FinalValues::OfSource,
        meters_target: false,
    };
    let copier = Copier::new((&source.inner.store, &target), &system(), options, &NoWatcher);
    copier.pass().await.unwrap();
    assert_eq!(copier.totals().accounts, ACCOUNTS);
    assert!(CopyState::read(&target).await.unwrap().unwrap().finished);
    assert_eq!(conflicts.load(Ordering::Relaxed), 0, "one position is saved after the other");
}
