//! Access to the records of anchors, which retries operations while the store is unavailable, and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;

use crate::backoff::{AUDIT_READ, RetryPolicy};
use crate::ports::fault::StoreFault;
use crate::ports::records::Records;
use crate::ports::world::World;

/// The records of a store.
#[derive(Clone)]
pub(super) struct RepeatedRecords {
    records: Arc<dyn Records>,
    world: Arc<dyn World>,
    operations: Arc<AtomicU64>,
    policy: RetryPolicy,
}

impl RepeatedRecords {
    pub(super) fn new(records: &Arc<dyn Records>, world: &Arc<dyn World>) -> Self {
        let (records, world) = (Arc::clone(records), Arc::clone(world));
        Self { records, world, operations: Arc::default(), policy: AUDIT_READ }
    }

    /// Disables retries, for callers that retry themselves or do not wait.
    pub(super) fn once(self) -> Self {
        Self { policy: RetryPolicy { attempts: 1, ..AUDIT_READ }, ..self }
    }

    /// Returns the number of operations since the previous call.
    pub(super) fn take_operations(&self) -> u64 {
        self.operations.swap(0, Ordering::Relaxed)
    }

    /// Adds operations that bypassed this access.
    pub(super) fn add_operations(&self, count: u64) {
        self.operations.fetch_add(count, Ordering::Relaxed);
    }

    /// Runs an idempotent operation, with retries.
    pub(super) async fn repeat<'a, T>(
        &'a self,
        mut operation: impl FnMut(&'a dyn Records) -> BoxFuture<'a, Result<T, StoreFault>> + Send,
    ) -> Result<T, StoreFault> {
        let again = || operation(&*self.records);
        let repeats = "An operation for an anchor is repeated";
        self.policy.while_unavailable(&*self.world, &self.operations, repeats, again).await
    }
}
