//! One table, request by request. Each method is one attempt: only the caller, which knows the row, can decide whether
//! it may be repeated and how a write with a lost response is recognised. A table that does not exist yet is empty
//! for reads, and is created by the first insert.

use std::sync::Arc;

use azure_core::Continuable as _;
use azure_data_tables::IfMatchCondition;
use azure_data_tables::clients::TableClient;
use azure_data_tables::operations::QueryEntityResponse;
use futures::StreamExt as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::attempt::{Failure, Retries, UnexpectedResponse};
use super::batch::{Batch, Entity};
use super::cursor::Continuation;
use super::etag::RowTag;
use super::keys::Key;
use crate::domain::account::Revision;
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Maximum number of rows in one response of the service.
pub(super) const ROWS_MAX: u32 = 1000;

/// The properties of a row.
pub(super) type Properties = Map<String, Value>;

/// A row as it was read.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) revision: Revision,
    pub(super) properties: Properties,
}

/// Result of one request of a scan.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) rows: Vec<Found>,
    pub(super) next: Option<Continuation>,
}

/// One table of the storage account.
#[derive(Debug, Clone)]
pub(super) struct Table {
    client: TableClient,
}

impl Table {
    pub(super) const fn new(client: TableClient) -> Self {
        Self { client }
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        self.client.table_name()
    }

    /// Reads a row; `None` if it does not exist.
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Found>, Failure> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        match entity.get::<Properties>().await {
            Ok(answer) => Ok(Some(Found {
                key: key.clone(),
                revision: RowTag::from_response(answer.etag.as_ref())?,
                properties: answer.entity,
            })),
            Err(error) => match Failure::from(error) {
                // Only with the code of the service: a 404 of a proxy says nothing.
                failure if is_absent(&failure) => Ok(None),
                failure => Err(failure),
            },
        }
    }

    /// Inserts a row that does not exist yet; fails with 409 if it does.
    pub(super) async fn insert(&self, key: &Key, row: &impl Serialize) -> Result<Revision, Failure> {
        let entity = serde_json::to_value(Entity { partition_key: key.partition(), row_key: key.row(), row });
        let entity = entity.expect("rows can always be written as JSON");
        match self.insert_entity(&entity).await {
            Err(failure) if failure.has_code(TABLE_NOT_FOUND) => {
                self.create().await?;
                self.insert_entity(&entity).await
            }
            answer => answer,
        }
    }

    async fn insert_entity(&self, entity: &Value) -> Result<Revision, Failure> {
        let answer = self.client.insert::<_, Value>(entity)?.await?;
        RowTag::from_response(answer.etag.as_ref())
    }

    /// Changes the given properties of a row with the revision `guard`; fails with 412 or 404 if it has another.
    pub(super) async fn merge(
        &self,
        key: &Key,
        row: &impl Serialize,
        guard: &Revision,
    ) -> Result<Revision, Failure> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        let answer = entity.merge(row, RowTag::of_guard(guard)?.condition())?.await?;
        RowTag::from_response(answer.etag.as_ref())
    }

    /// Replaces a row with the revision `guard`; fails with 412 or 404 if it has another.
    pub(super) async fn update(
        &self,
        key: &Key,
        row: &impl Serialize,
        guard: &Revision,
    ) -> Result<Revision, Failure> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        let answer = entity.update(row, RowTag::of_guard(guard)?.condition())?.await?;
        RowTag::from_response(answer.etag.as_ref())
    }

    /// Adds properties to a row, or replaces them in it, whatever its revision; the others stay. Inserts the row if it does not
    /// exist.
    pub(super) async fn add_properties(&self, key: &Key, row: &Properties) -> Result<(), Failure> {
        let merge = async || {
            let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
            entity.insert_or_merge(row)?.await?;
            Ok(())
        };
        match merge().await {
            Err(failure @ Failure::Answered(_)) if failure.has_code(TABLE_NOT_FOUND) => {
                self.create().await?;
                merge().await
            }
            answer => answer,
        }
    }

    /// Writes a whole row, and replaces an existing one.
    pub(super) async fn replace(&self, key: &Key, row: &impl Serialize) -> Result<(), Failure> {
        match self.replace_entity(key, row).await {
            Err(failure) if failure.has_code(TABLE_NOT_FOUND) => {
                self.create().await?;
                self.replace_entity(key, row).await
            }
            answer => answer,
        }
    }

    async fn replace_entity(&self, key: &Key, row: &impl Serialize) -> Result<(), Failure> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        entity.insert_or_replace(row)?.await?;
        Ok(())
    }

    /// Removes a row in any state; succeeds if it does not exist.
    pub(super) async fn remove(&self, key: &Key) -> Result<(), Failure> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        match entity.delete().if_match(IfMatchCondition::Any).await.map_err(Failure::from) {
            Ok(_) => Ok(()),
            Err(failure) if is_absent(&failure) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Reads one page of a scan: the rows that match, at most `top`. A page may be empty before the end.
    pub(super) async fn scan(
        &self,
        filter: &str,
        top: u32,
        from: Option<&Continuation>,
    ) -> Result<Scanned, Failure> {
        self.scan_some(None, filter, top, from).await
    }

    /// Reads all rows of a partition. Unlike the other methods, it retries each request.
    pub(super) async fn partition(
        &self,
        partition: &str,
        world: &Arc<dyn World>,
        doing: &'static str,
    ) -> Result<Vec<Found>, StoreFault> {
        let filter = format!("PartitionKey eq '{partition}'");
        let (mut all, mut continuation) = (Vec::new(), None);
        loop {
            let scan = || self.scan(&filter, ROWS_MAX, continuation.as_ref());
            let scanned = Retries::new(world).retry_read(scan).await;
            let Scanned { rows, next } = scanned.map_err(|failure| failure.into_fault(doing))?;
            all.extend(rows);
            match next {
                Some(next) => continuation = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Like [`Self::scan`], but reads only one property of each row.
    pub(super) async fn scan_property(
        &self,
        property: &str,
        filter: &str,
        from: Option<&Continuation>,
    ) -> Result<Scanned, Failure> {
        self.scan_some(Some(property), filter, ROWS_MAX, from).await
    }

    /// Like [`Self::scan`], but reads only the keys of each row. An empty filter matches all rows.
    pub(super) async fn scan_keys(
        &self,
        filter: &str,
        from: Option<&Continuation>,
    ) -> Result<Scanned, Failure> {
        self.scan_some(Some("Timestamp"), filter, ROWS_MAX, from).await
    }

    async fn scan_some(
        &self,
        property: Option<&str>,
        filter: &str,
        top: u32,
        from: Option<&Continuation>,
    ) -> Result<Scanned, Failure> {
        let mut query = self.client.query().top(top.min(ROWS_MAX));
        if !filter.is_empty() {
            query = query.filter(filter.to_owned());
        }
        if let Some(property) = property {
            query = query.select(format!("PartitionKey,RowKey,{property}"));
        }
        if let Some((partition, row)) = from {
            query = query.initial_partition_key(partition.clone());
            if let Some(row) = row {
                query = query.initial_row_key(row.clone());
            }
        }
        // Only the first page of the stream: the next request is counted and limited by its caller.
        match query.into_stream::<Properties>().next().await {
            Some(Ok(answer)) => scanned(answer),
            Some(Err(error)) => match Failure::from(error) {
                failure if is_absent(&failure) => Ok(Scanned { rows: Vec::new(), next: None }),
                failure => Err(failure),
            },
            None => Err(Failure::Unclear(Box::new(UnexpectedResponse("no page of a scan".to_owned())))),
        }
    }

    /// Applies all operations of the batch, or none. Returns the new revision of each row, in order, where the
    /// service reports it.
    pub(super) async fn send(&self, batch: &Batch) -> Result<Vec<Option<Revision>>, Failure> {
        batch.send(&self.client.partition_key_client(batch.partition())).await
    }

    /// Like [`Self::send`], for a batch of inserts: creates the table if it does not exist.
    pub(super) async fn send_inserts(&self, batch: &Batch) -> Result<Vec<Option<Revision>>, Failure> {
        match self.send(batch).await {
            // The crate drops the error code within a batch. An insert needs no row, so the table is missing.
            Err(failure) if failure.has_status(404) => {
                self.create().await?;
                self.send(batch).await
            }
            answer => answer,
        }
    }

    /// Creates the table; succeeds if it exists already.
    async fn create(&self) -> Result<(), Failure> {
        match self.client.create().await.map_err(Failure::from) {
            Ok(_) => Ok(()),
            Err(failure) if failure.has_status(409) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

const TABLE_NOT_FOUND: &str = "TableNotFound";

/// Returns whether the service reports that the table or the row does not exist.
fn is_absent(failure: &Failure) -> bool {
    [TABLE_NOT_FOUND, "ResourceNotFound", "EntityNotFound"].into_iter().any(|code| failure.has_code(code))
}

fn scanned(answer: QueryEntityResponse<Properties>) -> Result<Scanned, Failure> {
    let next = answer.continuation();
    let rows = answer.entities.into_iter().map(|properties| {
        let text = |name: &str| properties.get(name).and_then(Value::as_str).map(str::to_owned);
        let names = (text("PartitionKey"), text("RowKey"), text("odata.etag"));
        let (Some(partition), Some(row), Some(etag)) = names else {
            return Err(Failure::Unclear(Box::new(UnexpectedResponse(
                "a row without a key or an ETag".to_owned(),
            ))));
        };
        let revision = RowTag::from_response(&etag)?;
        Ok(Found { key: Key::stored(partition, row), revision, properties })
    });
    Ok(Scanned { rows: rows.collect::<Result<_, _>>()?, next })
}
