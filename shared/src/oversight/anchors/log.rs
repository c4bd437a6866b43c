//! The anchors as records, which are appended one after the other and never changed.

use std::sync::Arc;

use futures::FutureExt as _;

use super::body::{self, AnchorBodyError, StoredAnchor};
use super::reader::RepeatedRecords;
use crate::ports::Store;
use crate::ports::fault::StoreFault;
use crate::ports::records::{Collection, Record};
use crate::ports::sync_store::Swapped;
use crate::ports::world::World;

/// The record of an anchor, which may be unreadable.
#[derive(Debug)]
pub struct StoredAnchorRow {
    /// The id of the record.
    pub id: String,
    /// The sequence, if the id is valid.
    pub sequence: Option<u64>,
    /// The anchor; its signature is not verified.
    pub anchor: Result<StoredAnchor, AnchorBodyError>,
}

/// The anchors of one store.
#[derive(Clone)]
pub struct AnchorLog {
    records: RepeatedRecords,
}

impl AnchorLog {
    /// Returns a handle to the anchors of a store. Failed operations are not retried.
    pub fn new(store: &Store, world: &Arc<dyn World>) -> Self {
        Self::over(RepeatedRecords::new(&store.records, world).once())
    }

    pub(super) const fn over(records: RepeatedRecords) -> Self {
        Self { records }
    }

    /// Returns the last anchor; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreFault`] when the anchor cannot be read.
    pub async fn last(&self) -> Result<Option<StoredAnchor>, StoreFault> {
        Ok(self.list(None, 1).await?.pop())
    }

    /// Returns at most `limit` anchors before a sequence, newest first. A shorter list means that none follow.
    ///
    /// # Errors
    /// [`StoreFault`] when the anchors cannot be read.
    pub async fn list(&self, before: Option<u64>, limit: usize) -> Result<Vec<StoredAnchor>, StoreFault> {
        let rows = self.list_stored(before.map(body::id).as_deref(), limit).await?;
        let corrupt =
            |error: AnchorBodyError| StoreFault::Corrupt { doing: "listing anchors", source: error.into() };
        rows.into_iter().map(|row| row.anchor.map_err(corrupt)).collect()
    }

    /// Returns at most `limit` anchors after a record id, newest first, including unreadable ones. A shorter list means
    /// that none follow.
    ///
    /// # Errors
    /// [`StoreFault`] when the records cannot be read.
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

    /// Inserts an anchor. Returns `false` if its sequence is taken.
    ///
    /// # Errors
    /// [`StoreFault`]; the anchor may have been inserted, or may still be.
    pub(super) async fn append(&self, anchor: &StoredAnchor) -> Result<bool, StoreFault> {
        let (id, text) = (body::id(anchor.statement.sequence), body::encode(&anchor.signed, &anchor.list));
        let (id, text) = (id.as_str(), text.as_str());
        // The text differs between processes, so a retry recognizes the record of its first attempt.
        let saved = self.records.repeat(|records| records.save(Collection::Anchors, id, text, None)).await?;
        if matches!(saved, Swapped::Done(_)) {
            return Ok(true);
        }
        let found = self.records.repeat(|records| records.find(Collection::Anchors, id)).await?;
        Ok(found.is_some_and(|found| found.value == text))
    }
}
