//! The position of a copy, stored as a shared value of the target.

use std::time::Duration;

use futures::FutureExt as _;
use serde::{Deserialize, Serialize};

use super::values::{self, PROGRESS};
use super::{Copier, CopyFault};
use crate::domain::time::Timestamp;
use crate::ports::Store;
use crate::ports::fault::StoreFault;

/// Number of user ranges into which the source is divided. Their cursors are stored in one value.
pub(super) const RANGES: u16 = 8;

const VERSION: u32 = 1;

/// The state of the copy in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyState {
    /// The identification of the source.
    pub source: String,
    /// Whether the last pass was completed.
    pub finished: bool,
}

impl CopyState {
    /// Reads the state; `None` if the store is not the target of a copy.
    ///
    /// # Errors
    /// [`StoreFault`] when the state cannot be read.
    pub async fn read(target: &Store) -> Result<Option<Self>, StoreFault> {
        let Some(stored) = target.sync.get(PROGRESS).await? else { return Ok(None) };
        let Saved { source, finished, .. } = decode(&stored.value)?;
        Ok(Some(Self { source, finished }))
    }
}

/// The target has a copy of another source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is a copy of {found}, not of {expected}")]
pub struct ProgressError {
    /// The source of the existing copy.
    pub found: String,
    /// The source of the intended copy.
    pub expected: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) v: u32,
    pub(super) source: String,
    /// The start of the pass on the clock of the process, in milliseconds since 1970.
    pub(super) began_at: i64,
    /// The store time from which rows must be read; `None` in the first pass.
    pub(super) since: Option<i64>,
    /// The value of `since` for the next pass.
    pub(super) next_since: i64,
    pub(super) finished: bool,
    pub(super) ranges: Vec<SavedRange>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedRange {
    pub(super) cursor: Option<String>,
    pub(super) finished: bool,
}

fn decode(value: &str) -> Result<Saved, StoreFault> {
    let doing = "reading the position of a copy";
    let saved: Saved =
        serde_json::from_str(value).map_err(|error| StoreFault::Corrupt { doing, source: error.into() })?;
    if saved.v != VERSION || saved.ranges.len() != usize::from(RANGES) {
        let source = format!("this program does not continue a copy of version {}", saved.v).into();
        return Err(StoreFault::Corrupt { doing, source });
    }
    Ok(saved)
}

impl Copier<'_> {
    /// Returns the position of an interrupted pass, or starts the next pass.
    pub(super) async fn begin_or_continue(&self) -> Result<Saved, CopyFault> {
        // The clock of the store is known only after a response. Earlier reads say nothing about writes that follow them.
        self.source.ledger.probe().await?;
        let stored = self.target.sync.get(PROGRESS).await?;
        let stored = stored.map(|stored| decode(&stored.value)).transpose()?;
        if let Some(saved) = &stored
            && saved.source != self.options.source
        {
            let (found, expected) = (saved.source.clone(), self.options.source.clone());
            return Err(ProgressError { found, expected }.into());
        }
        if let Some(saved) = stored.as_ref().filter(|saved| !saved.finished) {
            return Ok(saved.clone());
        }
        let now = self.world.now();
        let begun = Saved {
            v: VERSION,
            source: self.options.source.clone(),
            began_at: now.unix_ms(),
            since: stored.map(|saved| saved.next_since),
            next_since: self.earliest_time_of_store(now).unix_ms(),
            finished: false,
            ranges: vec![SavedRange::default(); usize::from(RANGES)],
        };
        self.save(&begun).await?;
        Ok(begun)
    }

    /// Returns a time on the clock of the source that is not after any later write.
    fn earliest_time_of_store(&self, now: Timestamp) -> Timestamp {
        let ahead_ms = self.source.clock.skew().map_or(0, |skew| skew.max_ms);
        let store = Timestamp::from_unix_ms(now.unix_ms().saturating_sub(ahead_ms));
        store.before(self.options.overlap.max(Duration::from_secs(1)))
    }

    pub(super) async fn save(&self, saved: &Saved) -> Result<(), StoreFault> {
        let value = serde_json::to_string(saved).expect("texts and numbers can always be written as JSON");
        let value = value.as_str();
        self.step(|| values::overwrite(&self.target.sync, PROGRESS, value).boxed()).await
    }
}
