//! The gate ("release the hounds") holds work that must wait for an event, and then releases it to all listeners at once.
//!
//! The gate is a durable value with an epoch. A doorbell ring carries only the epoch. Listeners read the value when
//! they are woken and once at start, so that no release is missed. A value that cannot be decoded counts as held.

pub mod change;
pub mod permits;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::change::{GateAct, GateRecord};
use crate::cluster::shared_value::{self, Change};
use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::store_clock::{ClockSkew, StoreClock};
use crate::ports::sync_store::SyncStore;
use crate::ports::world::World;

/// The name of the value in the [`SyncStore`].
pub(crate) const NAME: &str = "gate";

/// Maximum clock skew of a process that may perform a scheduled release. By the clock of the store, the release may be
/// this much early or late.
pub const RELEASE_SKEW_MAX: Duration = Duration::from_secs(5);

/// Why a process may not perform a scheduled release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    /// The clock differs, or may differ, by too much.
    #[error(
        "the clock of this process is {0}; a scheduled release needs one within {RELEASE_SKEW_MAX:?} of it"
    )]
    Differs(ClockSkew),
    /// No response of the store has contained its time yet.
    #[error("the clock of this process was not compared with that of the store yet")]
    NotCompared,
}

/// Whether listeners may receive messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// Listeners may receive.
    Released,
    /// Listeners may not receive until the gate is released by an operator, or at the scheduled time by the first
    /// process that notices it and whose clock agrees with the store ([`RELEASE_SKEW_MAX`]).
    Held {
        /// The time of the scheduled release, if there is one.
        release_at: Option<Timestamp>,
    },
}

/// The value of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateValue {
    /// Incremented by every change; zero before the first one.
    pub epoch: u64,
    /// Whether the gate is held or released.
    pub state: GateState,
}

impl GateValue {
    /// Returns whether a scheduled release is due.
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
    /// Milliseconds since 1970. This and the next two members are absent if an operator repaired the row by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum RowState {
    Held,
    Released,
}

const ROW_VERSION: u32 = 1;

/// The epoch of the gate is not the one that the caller expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gate has the epoch {epoch}")]
pub struct EpochError {
    /// The current epoch.
    pub epoch: u64,
}

/// Reads and changes the gate of one store.
#[derive(Clone)]
pub struct Gate {
    sync: Arc<dyn SyncStore>,
    clock: Arc<StoreClock>,
    world: Arc<dyn World>,
}

impl Gate {
    /// Creates the gate of a store.
    pub fn new(store: &Store, world: &Arc<dyn World>) -> Self {
        Self { sync: Arc::clone(&store.sync), clock: Arc::clone(&store.clock), world: Arc::clone(world) }
    }

    /// Returns why this process may not perform a scheduled release; `None` if it may.
    pub fn untrusted_clock(&self) -> Option<ClockError> {
        match self.clock.skew() {
            None => Some(ClockError::NotCompared),
            Some(skew) if skew.is_within(RELEASE_SKEW_MAX) => None,
            Some(skew) => Some(ClockError::Differs(skew)),
        }
    }

    /// Reads the value of the gate.
    ///
    /// # Errors
    /// [`StoreFault`]; treat the gate as held.
    pub async fn read(&self) -> Result<GateValue, StoreFault> {
        Ok(self.read_record().await?.value)
    }

    /// Reads the gate with its last change.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub async fn read_record(&self) -> Result<GateRecord, StoreFault> {
        let stored = self.sync.get(NAME).await?;
        stored.map_or(Ok(GateRecord::UNSET), |stored| decode(&stored.value))
    }

    /// Sets the state of the gate. If it already has this state, nothing is written, so the epoch and the recorded
    /// author stay.
    ///
    /// # Errors
    /// [`StoreFault`]; the change may have been made. Repeating the call is safe.
    pub async fn set(&self, state: GateState, act: &GateAct) -> Result<GateRecord, StoreFault> {
        self.change(act, |current| state_after(current, state)).await
    }

    /// Like [`Self::set`], but only if the current epoch is expected.
    ///
    /// # Errors
    /// As for [`Self::set`]. [`EpochError`] if nothing was done, also when an earlier attempt of the same caller
    /// with an unknown outcome has changed the gate.
    pub async fn set_if(
        &self,
        state: GateState,
        act: &GateAct,
        is_expected: impl Fn(u64) -> bool + Send + Sync,
    ) -> Result<Result<GateRecord, EpochError>, StoreFault> {
        self.try_change(1, act, |current| {
            let epoch = current.map_or(0, |current| current.epoch);
            if is_expected(epoch) { Ok(state_after(current, state)) } else { Err(EpochError { epoch }) }
        })
        .await
    }

    /// Holds the gate if it was never changed.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub async fn hold_if_unset(&self) -> Result<GateRecord, StoreFault> {
        self.hold_if_unset_by(&GateAct::of_start()).await
    }

    /// Like [`Self::hold_if_unset`], with the given author.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub async fn hold_if_unset_by(&self, act: &GateAct) -> Result<GateRecord, StoreFault> {
        let choose = |current: Option<_>| current.is_none().then_some(GateState::Held { release_at: None });
        self.change(act, choose).await
    }

    /// Holds the gate, and raises its epoch by `by`. Processes that know a higher epoch than the stored one would
    /// otherwise ignore the hold.
    ///
    /// # Errors
    /// As for [`Self::set`]. Repeating the call raises the epoch again.
    pub async fn hold_ahead(&self, by: u64, act: &GateAct) -> Result<GateValue, StoreFault> {
        Ok(self.change_by(by, act, |_| Some(GateState::Held { release_at: None })).await?.value)
    }

    /// Releases the gate if its scheduled release is due. Does nothing if the clock of this process differs from the
    /// store ([`Self::untrusted_clock`]), because the release takes effect in all processes.
    ///
    /// # Errors
    /// As for [`Self::set`].
    pub async fn release_if_due(&self) -> Result<GateRecord, StoreFault> {
        // Evaluated after the read, because its response contains the time of the store.
        let is_due =
            |current: GateValue| current.is_due(self.world.now()) && self.untrusted_clock().is_none();
        let choose = |current: Option<_>| current.is_some_and(is_due).then_some(GateState::Released);
        self.change(&GateAct::of_schedule(), choose).await
    }

    async fn change(
        &self,
        act: &GateAct,
        choose: impl Fn(Option<GateValue>) -> Option<GateState> + Send + Sync,
    ) -> Result<GateRecord, StoreFault> {
        self.change_by(1, act, choose).await
    }

    async fn change_by(
        &self,
        epochs: u64,
        act: &GateAct,
        choose: impl Fn(Option<GateValue>) -> Option<GateState> + Send + Sync,
    ) -> Result<GateRecord, StoreFault> {
        let Ok(record) = self.try_change(epochs, act, |current| Ok::<_, Infallible>(choose(current))).await?;
        Ok(record)
    }

    /// `choose` returns the new state for the stored value, or `None` to keep it, or refuses. A new state raises the
    /// epoch by `epochs`.
    async fn try_change<R: Send>(
        &self,
        epochs: u64,
        act: &GateAct,
        choose: impl Fn(Option<GateValue>) -> Result<Option<GateState>, R> + Send,
    ) -> Result<Result<GateRecord, R>, StoreFault> {
        let store = (&*self.sync, &*self.world);
        shared_value::change(store, NAME, "changing the gate", move |stored| {
            let current = stored.map(decode).transpose()?;
            let before = current.as_ref().map(|current| current.value);
            let state = match choose(before) {
                Ok(Some(state)) => state,
                Ok(None) => return Ok(Change::Keep(Ok(current.unwrap_or(GateRecord::UNSET)))),
                Err(refusal) => return Ok(Change::Keep(Err(refusal))),
            };
            let epoch = before.map_or(0, |before| before.epoch).saturating_add(epochs);
            let changed = GateRecord::changed(GateValue { epoch, state }, self.world.now(), act);
            Ok(Change::Replace(encode(&changed), Ok(changed)))
        })
        .await
    }
}

/// Returns the wanted state, unless the gate already has it.
fn state_after(current: Option<GateValue>, wanted: GateState) -> Option<GateState> {
    (current.unwrap_or(GateRecord::UNSET.value).state != wanted).then_some(wanted)
}

pub(crate) fn encode(gate: &GateRecord) -> String {
    let GateRecord { value: GateValue { epoch, state }, since, by, reason } = gate.clone();
    let (state, release_at) = match state {
        GateState::Released => (RowState::Released, None),
        GateState::Held { release_at } => (RowState::Held, release_at.map(Timestamp::unix_ms)),
    };
    let since = since.map(Timestamp::unix_ms);
    let row = Row { v: ROW_VERSION, state, epoch, release_at, since, by, reason };
    serde_json::to_string(&row).expect("numbers and texts can always be written as JSON")
}

pub(crate) fn decode(value: &str) -> Result<GateRecord, StoreFault> {
    let doing = "reading the gate";
    let row: Row =
        serde_json::from_str(value).map_err(|error| StoreFault::Corrupt { doing, source: error.into() })?;
    if row.v > ROW_VERSION {
        let source =
            format!("the value has version {}; this program reads up to {ROW_VERSION}", row.v).into();
        return Err(StoreFault::Corrupt { doing, source });
    }
    let release_at = row.release_at.map(Timestamp::from_unix_ms);
    let state = match row.state {
        RowState::Released => GateState::Released,
        RowState::Held => GateState::Held { release_at },
    };
    let since = row.since.map(Timestamp::from_unix_ms);
    let value = GateValue { epoch: row.epoch, state };
    Ok(GateRecord { value, since, by: row.by, reason: row.reason })
}

#[cfg(test)]
mod tests;
