//! The anchors as records: appended one after the other, never changed.

use std::sync::Arc;

use futures::FutureExt as _;

use super::body::{self, StoredAnchor, UnreadableAnchor};
use super::reader::RepeatedRecords;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::records::{Collection, Record};
use crate::ports::sync_store::Swapped;
use crate::ports::world::World;

/// A record of an anchor, also one that cannot be read.
#[derive(Debug)]
pub struct StoredAnchorRow {
    /// The id of the record.
    pub id: String,
    /// Its sequence, if the id is valid.
    pub sequence: Option<u64>,
    /// The anchor, without any check of its signature.
    pub anchor: Result<StoredAnchor, UnreadableAnchor>,
}

/// The anchors of one store.
#[derive(Clone)]
pub struct AnchorLog {
    records: RepeatedRecords,
}

impl AnchorLog {
    /// Returns the anchors of a store. Reads are not repeated.
    pub fn new(store: &Store, world: &Arc<dyn World>) -> Self {
        Self::over(RepeatedRecords::new(&store.records, world).once())
    }

    pub(super) const fn over(records: RepeatedRecords) -> Self {
        Self { records }
    }

    /// Returns the last anchor; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read.
    pub async fn last(&self) -> Result<Option<StoredAnchor>, StoreFault> {
        Ok(self.list(None, 1).await?.pop())
    }

    /// Returns anchors before a sequence, the last one first, at most `limit`. Fewer are returned only at the end.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> Result<Vec<StoredAnchor>, StoreFault> {
        let rows = self.list_stored(before.map(body::id).as_deref(), limit).await?;
        let corrupt =
            |error: UnreadableAnchor| StoreFault::Corrupt { doing: "listing anchors", source: error.into() };
        rows.into_iter().map(|row| row.anchor.map_err(corrupt)).collect()
    }

    /// Returns anchors after the one with an id, the last one first, at most `limit`, including those that cannot be read.
    /// Fewer are returned only at the end.
    ///
    /// # Errors
    /// [`StoreFault`] when they cannot be read.
    pub async fn list_stored(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredAnchorRow>, StoreFault> {
        let after = after.map(str::to_owned);
        let listed = self.records.repeat(|records| {
            let after = after.clone();
            async move { records.list(Collection::Anchors, "", after.as_deref(), limit).await }.boxed()
        });
        let row = |Record { id, body }| {
            let (sequence, anchor) = (body::sequence(&id), body::decode(&id, &body));
            StoredAnchorRow { id, sequence, anchor }
        };
        Ok(listed.await?.into_iter().map(row).collect())
    }

    /// Inserts an anchor. Returns false if another one has its sequence.
    ///
    /// # Errors
    /// [`StoreFault`]: it may be inserted, or may still be.
    pub(super) async fn append(&self, anchor: &StoredAnchor) -> Result<bool, StoreFault> {
        let (id, text) = (body::id(anchor.statement.sequence), body::encode(&anchor.signed, &anchor.list));
        let (id, text) = (id.as_str(), text.as_str());
        // The record contains everything that distinguishes its author, so a repetition finds its own record.
        let saved = self.records.repeat(|records| records.save(Collection::Anchors, id, text, None)).await?;
        if matches!(saved, Swapped::Done(_)) {
            return Ok(true);
        }
        let found = self.records.repeat(|records| records.find(Collection::Anchors, id)).await?;
        Ok(found.is_some_and(|found| found.value == text))
    }
}
