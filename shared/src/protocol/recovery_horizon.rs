//! The time until which, as the last recoveries have proven, no accepted transaction depends on its first message.
//!
//! A message that claims a payload names no transactions. If the payload is lost, only a recovery can prove that no
//! work is lost with it: it reads every accepted transaction, and each is then final or has a message of its own.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::shared_value::{self, Change};
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::SyncStore;
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
pub const NAME: &str = "recovered-until";

/// Largest difference between the clocks of two machines; storage services refuse requests with a larger one.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// Reads and records the time in the [`SyncStore`].
#[derive(Clone)]
pub struct RecoveredUntil {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
}

impl RecoveredUntil {
    /// Creates access to the value of a store.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Self {
        Self { sync, world }
    }

    /// Returns whether all work of a message that was sent at this time is final or in other messages.
    ///
    /// # Errors
    /// [`StoreFault`] when the value cannot be read.
    pub async fn covers(&self, sent_at: Timestamp) -> Result<bool, StoreFault> {
        let stored = self.sync.get(NAME).await?;
        let until = stored.and_then(|stored| decode(&stored.value));
        Ok(until.is_some_and(|until| until >= sent_at.after(CLOCK_DIFFERENCE_MAX)))
    }

    /// Records a time, unless the same or a later one is recorded.
    ///
    /// # Errors
    /// [`StoreFault`]; the time may have been recorded.
    pub async fn record(&self, until: Timestamp) -> Result<(), StoreFault> {
        let store = (&*self.sync, &*self.world);
        shared_value::change(store, NAME, "recording the end of a recovery", |stored| {
            let is_recorded = stored.and_then(decode).is_some_and(|recorded| recorded >= until);
            Ok(if is_recorded { Change::Keep(()) } else { Change::Replace(until.unix_ms().to_string(), ()) })
        })
        .await
    }
}

/// Returns the recorded time; `None` for a damaged value, which the next recovery replaces.
fn decode(value: &str) -> Option<Timestamp> {
    value.parse().ok().map(Timestamp::from_unix_ms)
}
