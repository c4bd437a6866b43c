//! Records, each in one row. The rows of a collection share a partition, so that a scan returns them in order. The ETag
//! is the revision. A save is a single attempt, because only the caller can decide what an unclear outcome means.

use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::Retries;
use super::keys::Key;
use super::parts::{self, PARTS_BYTES_MAX};
use super::rows::corrupt;
use super::table::{Found, ROWS_MAX, Scanned, Table};
use crate::domain::account::{Revision, Versioned};
use crate::ports::fault::StoreFault;
use crate::ports::records::{
    Collection, RECORD_BODY_BYTES_MAX, Record, Records, assert_id, assert_record, id_range,
};
use crate::ports::sync_store::Swapped;
use crate::ports::world::World;

const _: () = assert!(RECORD_BODY_BYTES_MAX <= PARTS_BYTES_MAX, "a body fits one row");

pub(super) struct AzureRecords {
    pub(super) world: Arc<dyn World>,
    pub(super) table: Table,
}

fn key(collection: Collection, id: &str) -> Key {
    assert_id(id);
    Key::new(collection.code(), id)
}

fn read(found: &Found, doing: &'static str) -> Result<String, StoreFault> {
    let body = parts::read(&found.properties).map_err(|invalid| corrupt(found, doing, invalid))?;
    String::from_utf8(body).map_err(|error| corrupt(found, doing, error))
}

#[async_trait]
impl Records for AzureRecords {
    async fn find(&self, collection: Collection, id: &str) -> Result<Option<Versioned<String>>, StoreFault> {
        let doing = "reading a record";
        let key = key(collection, id);
        let found = Retries::new(&self.world).retry_read(|| self.table.get(&key)).await;
        let Some(found) = found.map_err(|failure| failure.into_fault(doing))? else { return Ok(None) };
        Ok(Some(Versioned { value: read(&found, doing)?, revision: found.revision }))
    }

    async fn list(
        &self,
        collection: Collection,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreFault> {
        let doing = "listing records";
        let (code, ids) = (collection.code(), id_range(prefix, after));
        let filter =
            format!("PartitionKey eq '{code}' and RowKey ge '{}' and RowKey lt '{}'", ids.start, ids.end);
        let (mut records, mut continuation) = (Vec::new(), None);
        loop {
            let left = limit.saturating_sub(records.len());
            let top = u32::try_from(left).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
            let mut retries = Retries::new(&self.world);
            let scanned = retries.retry_read(|| self.table.scan(&filter, top, continuation.as_ref())).await;
            let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
            for found in rows.iter().take(left) {
                records.push(Record { id: found.key.row().to_owned(), body: read(found, doing)? });
            }
            // A scan may return no rows although more follow.
            match next {
                Some(next) if records.len() < limit => continuation = Some(next),
                Some(_) | None => return Ok(records),
            }
        }
    }

    async fn save(
        &self,
        collection: Collection,
        id: &str,
        body: &str,
        expected: Option<&Revision>,
    ) -> Result<Swapped, StoreFault> {
        assert_record(id, body);
        let (key, row) = (key(collection, id), parts::write(body.as_bytes()));
        let saved = match expected {
            Some(expected) => self.table.update(&key, &row, expected).await,
            None => self.table.insert(&key, &row).await,
        };
        match saved {
            Ok(revision) => Ok(Swapped::Done(revision)),
            // The row was changed, already exists, or no longer exists.
            Err(failure) if [404, 409, 412].into_iter().any(|status| failure.has_status(status)) => {
                Ok(Swapped::Conflict)
            }
            Err(failure) => Err(failure.into_fault("saving a record")),
        }
    }

    async fn remove(&self, collection: Collection, id: &str) -> Result<(), StoreFault> {
        let key = key(collection, id);
        let mut retries = Retries::new(&self.world);
        let removed = retries.retry_write(|| self.table.remove(&key)).await;
        removed.map_err(|failure| retries.fault(failure, "removing a record"))
    }
}
