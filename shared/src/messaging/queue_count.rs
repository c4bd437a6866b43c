//! The largest number of queues that work was ever spread over.
//!
//! The number is configuration and may be changed. What already waits in a queue that the new number
//! no longer names must not be stranded there: listeners go by the largest number ever used.

use std::sync::Arc;

use crate::backoff::{SHARED_VALUE_WRITE, STORE_NEEDED};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
const NAME: &str = "queue-count";

/// Remembers the number.
pub struct QueueCount {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
}

impl QueueCount {
    /// The number of a store.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Self {
        Self { sync, world }
    }

    /// The largest number that was noted; zero before the first one.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read or understood.
    pub async fn largest(&self) -> Result<u16, StoreFault> {
        Ok(self.load().await?.map_or(0, |(count, _)| count))
    }

    /// Notes a number that is used from now on. The answer is the largest ever used, this one
    /// included.
    ///
    /// # Errors
    /// [`StoreFault`]: it may be noted.
    pub async fn note(&self, count: u16) -> Result<u16, StoreFault> {
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
        let source = format!("others changed it during each of {attempts} attempts").into();
        Err(StoreFault::Unavailable { doing: "noting the number of queues", source })
    }

    /// As [`Self::note`], however long the store is away.
    pub async fn note_at_last(&self, count: u16) -> u16 {
        let mut backoff = STORE_NEEDED.start();
        loop {
            match self.note(count).await {
                Ok(largest) => return largest,
                Err(fault @ (StoreFault::Unavailable { .. } | StoreFault::Refused { .. })) => {
                    tracing::warn!("Could not note the number of queues: {}", chain(&fault));
                    self.world.sleep(backoff.next(&*self.world)).await;
                }
                Err(fault @ (StoreFault::Corrupt { .. } | StoreFault::ForeignCursor { .. })) => {
                    tracing::error!("Only the configured queues are listened to: {}", chain(&fault));
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
    async fn the_largest_number_stays() {
        let world = Arc::new(TestWorld::new(1));
        let sync = MemoryStore::new(world.clone()).sync;
        let count = QueueCount::new(Arc::clone(&sync), world);
        assert_eq!(count.largest().await.unwrap(), 0);
        for (used, largest) in [(4, 4), (8, 8), (2, 8), (8, 8), (9, 9)] {
            assert_eq!(count.note(used).await.unwrap(), largest);
            assert_eq!(count.largest().await.unwrap(), largest);
        }
        let revision = sync.get(NAME).await.unwrap().unwrap().revision;
        let _ = sync.swap(NAME, Some(&revision), "many").await.unwrap();
        assert!(count.largest().await.is_err());
        assert_eq!(count.note_at_last(3).await, 3, "what is configured works all the same");
    }
}
