//! The time until which no accepted transaction depends on its first message any more, as the last recoveries proved it.
//!
//! A message that claims a payload names no transactions. If the payload is lost, only a recovery can tell whether the
//! work still exists: it reads every accepted transaction, and each is then final, or has a message of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::SHARED_VALUE_WRITE;
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
pub const NAME: &str = "recovered-until";

/// Largest difference between the clocks of two machines; storage services refuse requests with a larger one.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// Stores and reads the time.
#[derive(Clone)]
pub struct RecoveredUntil {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
}

impl RecoveredUntil {
    /// Creates the value of a store.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Self {
        Self { sync, world }
    }

    /// Returns whether all work of a message that was sent at this time is final, or in other messages.
    ///
    /// # Errors
    /// [`StoreFault`] when the value cannot be read.
    pub async fn covers(&self, sent_at: Timestamp) -> Result<bool, StoreFault> {
        let stored = self.sync.get(NAME).await?;
        let until = stored.and_then(|stored| decode(&stored.value));
        Ok(until.is_some_and(|until| until >= sent_at.after(CLOCK_DIFFERENCE_MAX)))
    }

    /// Records a time, unless a later one is recorded.
    ///
    /// # Errors
    /// [`StoreFault`]; the time may have been recorded.
    pub async fn record(&self, until: Timestamp) -> Result<(), StoreFault> {
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            let stored = self.sync.get(NAME).await?;
            if stored
                .as_ref()
                .and_then(|stored| decode(&stored.value))
                .is_some_and(|recorded| recorded >= until)
            {
                return Ok(());
            }
            let revision = stored.map(|stored| stored.revision);
            match self.sync.swap(NAME, revision.as_ref(), &until.unix_ms().to_string()).await? {
                Swapped::Done(_) => return Ok(()),
                Swapped::Conflict => SHARED_VALUE_WRITE.pause(attempt, &*self.world).await,
            }
        }
        let source = "concurrent changes in each attempt".into();
        Err(StoreFault::Unavailable { doing: "recording the end of a recovery", source })
    }
}

/// Returns the recorded time; `None` for a damaged value, which the next recovery replaces.
fn decode(value: &str) -> Option<Timestamp> {
    value.parse().ok().map(Timestamp::from_unix_ms)
}
