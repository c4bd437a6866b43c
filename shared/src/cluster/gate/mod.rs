//! The gate ("release the hounds"): work that must wait for an event is held, and then released to
//! all listeners at once.
//!
//! The gate is a durable value with an epoch. A ring on the doorbell carries only the epoch: whoever
//! hears it reads the value, and so does whoever starts late, so that nobody can miss a release.
//! A value that cannot be read means held.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backoff::SHARED_VALUE_WRITE;
use crate::domain::account::Versioned;
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::sync_store::{Swapped, SyncStore};
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
pub(crate) const NAME: &str = "gate";

/// Whether listeners may receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// They may.
    Released,
    /// They may not, until it is released: by a person, or from that time on by whoever notices
    /// first.
    Held {
        /// The scheduled release.
        release_at: Option<Timestamp>,
    },
}

/// The gate as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateOrder {
    /// Grows with every change. Zero before the first one.
    pub epoch: u64,
    /// What listeners are to do.
    pub state: GateState,
}

impl GateOrder {
    /// A gate that nobody ever touched.
    const UNTOUCHED: Self = Self { epoch: 0, state: GateState::Released };

    /// Whether a scheduled release is due.
    pub fn is_due(&self, now: Timestamp) -> bool {
        matches!(self.state, GateState::Held { release_at: Some(at) } if at <= now)
    }
}

#[derive(Serialize, Deserialize)]
struct Row {
    v: u32,
    state: RowState,
    epoch: u64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release_at: Option<i64>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum RowState {
    Held,
    Released,
}

const ROW_VERSION: u32 = 1;

/// Reads and changes the gate.
#[derive(Clone)]
pub struct Gate {
    sync: Arc<dyn SyncStore>,
    world: Arc<dyn World>,
}

impl Gate {
    /// The gate of a store.
    pub fn new(sync: Arc<dyn SyncStore>, world: Arc<dyn World>) -> Self {
        Self { sync, world }
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`StoreFault`]: it counts as held.
    pub async fn read(&self) -> Result<GateOrder, StoreFault> {
        Ok(self.load().await?.map_or(GateOrder::UNTOUCHED, |stored| stored.value))
    }

    /// Brings it into a state; the epoch grows unless it is in that state already.
    ///
    /// # Errors
    /// [`StoreFault`]: it may have been changed. Asking again is safe.
    pub async fn set(&self, state: GateState) -> Result<GateOrder, StoreFault> {
        self.change(|order| (order.unwrap_or(GateOrder::UNTOUCHED).state != state).then_some(state)).await
    }

    /// Holds it if nobody ever touched it; otherwise leaves it as it is.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub async fn hold_if_untouched(&self) -> Result<GateOrder, StoreFault> {
        self.change(|order| order.is_none().then_some(GateState::Held { release_at: None })).await
    }

    /// Releases it if its scheduled release is due; otherwise leaves it as it is.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub async fn release_if_due(&self) -> Result<GateOrder, StoreFault> {
        let now = self.world.now();
        self.change(|order| order.is_some_and(|order| order.is_due(now)).then_some(GateState::Released)).await
    }

    /// Compare-and-swap until it fits: `choose` says which state is wanted over what stands, if any.
    async fn change(
        &self,
        choose: impl Fn(Option<GateOrder>) -> Option<GateState> + Send,
    ) -> Result<GateOrder, StoreFault> {
        for attempt in 1..=SHARED_VALUE_WRITE.attempts {
            let stored = self.load().await?;
            let order = stored.as_ref().map(|stored| stored.value);
            let Some(state) = choose(order) else { return Ok(order.unwrap_or(GateOrder::UNTOUCHED)) };
            let epoch = order.map_or(0, |order| order.epoch).saturating_add(1);
            let changed = GateOrder { epoch, state };
            let revision = stored.as_ref().map(|stored| &stored.revision);
            match self.sync.swap(NAME, revision, &encode(changed)).await? {
                Swapped::Done(_) => return Ok(changed),
                Swapped::Conflict => SHARED_VALUE_WRITE.pause(attempt, &*self.world).await,
            }
        }
        let attempts = SHARED_VALUE_WRITE.attempts;
        let source = format!("others changed it during each of {attempts} attempts").into();
        Err(StoreFault::Unavailable { doing: "changing the gate", source })
    }

    async fn load(&self) -> Result<Option<Versioned<GateOrder>>, StoreFault> {
        let Some(stored) = self.sync.get(NAME).await? else { return Ok(None) };
        Ok(Some(Versioned { value: decode(&stored.value)?, revision: stored.revision }))
    }
}

/// The value that says it.
pub(crate) fn encode(order: GateOrder) -> String {
    let (state, release_at) = match order.state {
        GateState::Released => (RowState::Released, None),
        GateState::Held { release_at } => (RowState::Held, release_at.map(Timestamp::unix_ms)),
    };
    let row = Row { v: ROW_VERSION, state, epoch: order.epoch, release_at };
    serde_json::to_string(&row).expect("numbers and words can always be written as JSON")
}

/// What a value says.
pub(crate) fn decode(value: &str) -> Result<GateOrder, StoreFault> {
    let doing = "reading the gate";
    let row: Row =
        serde_json::from_str(value).map_err(|error| StoreFault::Corrupt { doing, source: error.into() })?;
    if row.v > ROW_VERSION {
        let source = format!("it has version {}; this program reads up to {ROW_VERSION}", row.v).into();
        return Err(StoreFault::Corrupt { doing, source });
    }
    let release_at = row.release_at.map(Timestamp::from_unix_ms);
    let state = match row.state {
        RowState::Released => GateState::Released,
        RowState::Held => GateState::Held { release_at },
    };
    Ok(GateOrder { epoch: row.epoch, state })
}

#[cfg(test)]
mod tests;
