//! The largest number of queues that was ever used.
//!
//! The number of queues is configurable and may be reduced. Work in queues beyond the new number must still be
//! processed: therefore listeners use the largest number ever used.

use std::sync::Arc;

use crate::backoff::{SHARED_VALUE_WRITE, STORE_NEEDED};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
const NAME: &str = "queue-count";

/// Stores and reads the largest number of queues.
pub struct QueueCount {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
}

impl QueueCount {
    /// Creates the queue count of a store.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Self {
        Self { sync, world }
    }

    /// Returns the largest number that was recorded; zero before the first one.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read or decoded.
    pub async fn largest(&self) -> Result<u16, StoreFault> {
        Ok(self.load().await?.map_or(0, |(count, _)| count))
    }

    /// Records a number of queues before it is used. Returns the largest number ever used, including this one.
    ///
    /// # Errors
    /// [`StoreFault`]; the number may have been recorded.
    pub async fn record(&self, count: u16) -> Result<u16, StoreFault> {
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            let stored = self.load().await?;
            let revision = match &stored {
                Some((largest, _)) if *largest >= count => return Ok(*largest),
                Some((_, revision)) => Some(revision),
                None => None,
            };
            match self.sync.swap(NAME, revision, &count.to_string()).await? {
                Swapped::Done(_) => return Ok(count),
                Swapped::Conflict => SHARED_VALUE_WRITE.pause(attempt, &*self.world).await,
            }
        }
        let attempts = SHARED_VALUE_WRITE.attempts;
        let source = format!("concurrent changes in each of {attempts} attempts").into();
        Err(StoreFault::Unavailable { doing: "recording the number of queues", source })
    }

    /// As [`Self::record`], but retries until the store is available.
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

    async fn load(&self) -> Result<Option<(u16, crate::domain::account::Revision)>, StoreFault> {
        let Some(stored) = self.sync.get(NAME).await? else { return Ok(None) };
        let corrupt = |error: std::num::ParseIntError| StoreFault::Corrupt {
            doing: "reading the number of queues",
            source: error.into(),
        };
        Ok(Some((stored.value.parse().map_err(corrupt)?, stored.revision)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::MemoryStore;
    use crate::adapters::memory::world::TestWorld;

    #[tokio::test]
    async fn the_largest_number_is_kept() {
        let world = Arc::new(TestWorld::new(1));
        let sync = MemoryStore::new(world.clone()).sync;
        let count = QueueCount::new(Arc::clone(&sync), world);
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
