//! The largest number of queues that was ever used.
//!
//! The number of queues is configurable and may be reduced, and processes may be configured differently. Work in all
//! queues must be processed. Each process therefore records its number before its first message ([`UsedQueues`]), and
//! listeners use the largest number ever recorded.

use std::collections::BTreeSet;
use std::num::ParseIntError;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use crate::backoff::STORE_NEEDED;
use crate::cluster::shared_value::{self, Change};
use crate::messaging::envelope;
use crate::ports::Store;
use crate::ports::fault::{StoreFault, chain};
use crate::ports::queue::{Backlog, Held, Lease, Message, QueueName, WorkQueue};
use crate::ports::sync_store::SyncStore;
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
const NAME: &str = "queue-count";

/// Reads and records the largest number of queues.
pub struct QueueCount {
    sync: Arc<dyn SyncStore>,
    queue: Arc<dyn WorkQueue>,
    world: Arc<dyn World>,
}

impl QueueCount {
    /// Creates access to the number of a store.
    pub fn new(store: &Store, world: Arc<dyn World>) -> Self {
        Self { sync: Arc::clone(&store.sync), queue: Arc::clone(&store.queue), world }
    }

    /// Returns the largest recorded number; zero if none is recorded.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read or decoded.
    pub async fn largest(&self) -> Result<u16, StoreFault> {
        self.sync.get(NAME).await?.map_or(Ok(0), |stored| decode(&stored.value))
    }

    /// Records a number of queues before it is used. Returns the largest number ever recorded, including this one. The
    /// queues are created first, so that a missing queue within the recorded number must have been deleted.
    ///
    /// # Errors
    /// [`StoreFault`]; the number may have been recorded.
    pub async fn record(&self, count: u16) -> Result<u16, StoreFault> {
        let largest = self.largest().await?;
        if largest >= count {
            return Ok(largest);
        }
        for queue in envelope::queues(count) {
            self.queue.create(&queue).await?;
        }
        let store = (&*self.sync, &*self.world);
        shared_value::change(store, NAME, "recording the number of queues", |stored| {
            let largest = stored.map_or(Ok(0), decode)?;
            Ok(if largest >= count {
                Change::Keep(largest)
            } else {
                Change::Replace(count.to_string(), count)
            })
        })
        .await
    }

    /// As [`Self::record`], but retries until the store is available. Returns `count` if the stored value is damaged.
    pub async fn record_with_retry(&self, count: u16) -> u16 {
        let mut backoff = STORE_NEEDED.start();
        loop {
            match self.record(count).await {
                Ok(largest) => return largest,
                Err(fault @ (StoreFault::Unavailable { .. } | StoreFault::Refused { .. })) => {
                    tracing::warn!("The number of queues was not recorded: {}", chain(&fault));
                    self.world.sleep(backoff.next(&*self.world)).await;
                }
                Err(fault @ (StoreFault::Corrupt { .. } | StoreFault::ForeignCursor { .. })) => {
                    tracing::error!("Listening only to the configured queues: {}", chain(&fault));
                    return count;
                }
            }
        }
    }
}

fn decode(value: &str) -> Result<u16, StoreFault> {
    let doing = "reading the number of queues";
    value.parse().map_err(|error: ParseIntError| StoreFault::Corrupt { doing, source: error.into() })
}

/// The number of queues over which this process distributes work.
pub struct UsedQueues {
    count: QueueCount,
    configured: u16,
    recorded: OnceCell<()>,
}

impl UsedQueues {
    /// Creates the number of a process, without recording it.
    pub fn new(store: &Store, world: Arc<dyn World>, configured: u16) -> Self {
        Self { count: QueueCount::new(store, world), configured, recorded: OnceCell::new() }
    }

    /// Records the number if this process has not recorded it yet. Called before each message.
    ///
    /// # Errors
    /// [`StoreFault`] if the store is not available: nothing may be sent then. A damaged value is no error, since
    /// listeners cannot use it either.
    pub async fn record(&self) -> Result<(), StoreFault> {
        let record = async || match self.count.record(self.configured).await {
            Err(fault @ (StoreFault::Corrupt { .. } | StoreFault::ForeignCursor { .. })) => {
                tracing::error!("The number of queues cannot be recorded: {}", chain(&fault));
                Ok(())
            }
            recorded => recorded.map(drop),
        };
        self.recorded.get_or_try_init(record).await.copied()
    }
}

/// A queue that sends messages only after the number of queues was recorded.
pub struct RecordedQueue {
    inner: Arc<dyn WorkQueue>,
    used: Arc<UsedQueues>,
}

impl RecordedQueue {
    /// Wraps a queue.
    pub const fn new(inner: Arc<dyn WorkQueue>, used: Arc<UsedQueues>) -> Self {
        Self { inner, used }
    }
}

#[async_trait]
impl WorkQueue for RecordedQueue {
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault> {
        self.used.record().await?;
        self.inner.send(queue, body, delay).await
    }

    async fn create(&self, queue: &QueueName) -> Result<bool, StoreFault> {
        self.inner.create(queue).await
    }

    async fn deleted(&self) -> BTreeSet<QueueName> {
        self.inner.deleted().await
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        self.inner.receive(queue, max, visibility).await
    }

    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault> {
        self.inner.extend(queue, lease, body, visibility).await
    }

    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault> {
        self.inner.delete(queue, lease).await
    }

    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault> {
        self.inner.backlog(queue).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;
    use crate::domain::account::{Revision, Versioned};
    use crate::ports::sync_store::Swapped;

    #[tokio::test]
    async fn a_number_is_recorded_before_the_first_message() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let used = |store: &Store| Arc::new(UsedQueues::new(store, world.clone(), 8));
        let count = QueueCount::new(&store, world.clone());
        let name = QueueName::of_partition("work", 6);
        let queue = RecordedQueue::new(Arc::clone(&store.queue), used(&store));
        assert_eq!(queue.receive(&name, 1, Duration::ZERO).await.unwrap(), []);
        assert_eq!(count.largest().await.unwrap(), 0, "nothing was sent");
        queue.send(&name, b"work", Duration::ZERO).await.unwrap();
        assert_eq!(count.largest().await.unwrap(), 8);
        let before = store.operations.snapshot().values().sum::<u64>();
        queue.send(&name, b"work", Duration::ZERO).await.unwrap();
        assert_eq!(store.operations.snapshot().values().sum::<u64>() - before, 1, "it is recorded once");
        // Without the store, nothing is sent.
        let no_store = Store { sync: Arc::new(NoStore), ..store.clone() };
        let queue = RecordedQueue::new(Arc::clone(&store.queue), used(&no_store));
        assert!(queue.send(&name, b"work", Duration::ZERO).await.is_err());
        assert_eq!(store.queue.backlog(&name).await.unwrap().depth, 2);
    }

    struct NoStore;

    #[async_trait]
    impl SyncStore for NoStore {
        async fn get(&self, _: &str) -> Result<Option<Versioned<String>>, StoreFault> {
            Err(StoreFault::Unavailable { doing: "reading", source: "timeout".into() })
        }

        async fn swap(&self, _: &str, _: Option<&Revision>, _: &str) -> Result<Swapped, StoreFault> {
            Err(StoreFault::Unavailable { doing: "writing", source: "timeout".into() })
        }
    }

    #[tokio::test]
    async fn the_largest_number_is_kept() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let (sync, count) = (Arc::clone(&store.sync), QueueCount::new(&store, world));
        assert_eq!(count.largest().await.unwrap(), 0);
        for (used, largest) in [(4, 4), (8, 8), (2, 8), (8, 8), (9, 9)] {
            assert_eq!(count.record(used).await.unwrap(), largest);
            assert_eq!(count.largest().await.unwrap(), largest);
        }
        let revision = sync.get(NAME).await.unwrap().unwrap().revision;
        let _ = sync.swap(NAME, Some(&revision), "many").await.unwrap();
        assert!(count.largest().await.is_err());
        assert_eq!(count.record_with_retry(3).await, 3, "the configured number is used anyway");
    }
}
