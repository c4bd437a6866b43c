//! One table, request by request. Each method makes one attempt, because only the caller knows whether a request may be
//! repeated, and how to recognize a write whose response was lost. A missing table counts as empty in reads, and is
//! created by the first write that can insert a row.

use std::sync::Arc;

use azure_core::Continuable as _;
use azure_data_tables::IfMatchCondition;
use azure_data_tables::clients::TableClient;
use azure_data_tables::operations::QueryEntityResponse;
use futures::StreamExt as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::attempt::{RequestFault, Retries, UnexpectedResponse};
use super::batch::{Batch, Entity};
use super::cursor::Continuation;
use super::etag::RowTag;
use super::keys::Key;
use crate::domain::account::Revision;
use crate::ports::fault::StoreFault;
use crate::ports::world::World;

/// Maximum number of rows in one response of the service.
pub(super) const ROWS_MAX: u32 = 1000;

pub(super) type Properties = Map<String, Value>;

/// A row that was read.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) revision: Revision,
    pub(super) properties: Properties,
}

/// The result of one request of a scan.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) rows: Vec<Found>,
    pub(super) next: Option<Continuation>,
}

#[derive(Debug, Clone)]
pub(super) struct Table {
    client: TableClient,
}

impl Table {
    pub(super) const fn new(client: TableClient) -> Self {
        Self { client }
    }

    /// Returns the name of the table.
    pub(super) fn name(&self) -> &str {
        self.client.table_name()
    }

    /// Reads a row. Returns `None` if it does not exist.
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Found>, RequestFault> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        match entity.get::<Properties>().await {
            Ok(answer) => Ok(Some(Found {
                key: key.clone(),
                revision: RowTag::from_response(answer.etag.as_ref())?,
                properties: answer.entity,
            })),
            Err(error) => match RequestFault::from(error) {
                // Requires the error code of the service, because a proxy may also respond with 404.
                failure if is_absent(&failure) => Ok(None),
                failure => Err(failure),
            },
        }
    }

    /// Inserts a row. Fails with 409 if it exists.
    pub(super) async fn insert(&self, key: &Key, row: &impl Serialize) -> Result<Revision, RequestFault> {
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

    async fn insert_entity(&self, entity: &Value) -> Result<Revision, RequestFault> {
        let answer = self.client.insert::<_, Value>(entity)?.await?;
        RowTag::from_response(answer.etag.as_ref())
    }

    /// Changes the given properties of a row whose revision is `guard`. Fails with 412 or 404 if the revision differs.
    pub(super) async fn merge(
        &self,
        key: &Key,
        row: &impl Serialize,
        guard: &Revision,
    ) -> Result<Revision, RequestFault> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        let answer = entity.merge(row, RowTag::of_guard(guard)?.condition())?.await?;
        RowTag::from_response(answer.etag.as_ref())
    }

    /// Replaces a row whose revision is `guard`. Fails with 412 or 404 if the revision differs.
    pub(super) async fn update(
        &self,
        key: &Key,
        row: &impl Serialize,
        guard: &Revision,
    ) -> Result<Revision, RequestFault> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        let answer = entity.update(row, RowTag::of_guard(guard)?.condition())?.await?;
        RowTag::from_response(answer.etag.as_ref())
    }

    /// Inserts a row, or adds and replaces properties of an existing row of any revision. Other properties stay unchanged.
    pub(super) async fn add_properties(&self, key: &Key, row: &Properties) -> Result<(), RequestFault> {
        let merge = async || {
            let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
            entity.insert_or_merge(row)?.await?;
            Ok(())
        };
        match merge().await {
            Err(failure @ RequestFault::Answered(_)) if failure.has_code(TABLE_NOT_FOUND) => {
                self.create().await?;
                merge().await
            }
            answer => answer,
        }
    }

    /// Inserts a row, or replaces an existing one.
    pub(super) async fn replace(&self, key: &Key, row: &impl Serialize) -> Result<(), RequestFault> {
        match self.replace_entity(key, row).await {
            Err(failure) if failure.has_code(TABLE_NOT_FOUND) => {
                self.create().await?;
                self.replace_entity(key, row).await
            }
            answer => answer,
        }
    }

    async fn replace_entity(&self, key: &Key, row: &impl Serialize) -> Result<(), RequestFault> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        entity.insert_or_replace(row)?.await?;
        Ok(())
    }

    /// Deletes a row of any revision. Succeeds if it does not exist.
    pub(super) async fn remove(&self, key: &Key) -> Result<(), RequestFault> {
        let entity = self.client.partition_key_client(key.partition()).entity_client(key.row());
        match entity.delete().if_match(IfMatchCondition::Any).await.map_err(RequestFault::from) {
            Ok(_) => Ok(()),
            Err(failure) if is_absent(&failure) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Reads one page of a scan with at most `top` matching rows. A page may be empty although more rows follow.
    pub(super) async fn scan(
        &self,
        filter: &str,
        top: u32,
        from: Option<&Continuation>,
    ) -> Result<Scanned, RequestFault> {
        self.scan_some(None, filter, top, from).await
    }

    /// Reads all rows of a partition. Unlike the other methods, this one retries each request.
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
    ) -> Result<Scanned, RequestFault> {
        self.scan_some(Some(property), filter, ROWS_MAX, from).await
    }

    /// Like [`Self::scan`], but reads only the keys and the `Timestamp` of each row. An empty filter matches all rows.
    pub(super) async fn scan_keys(
        &self,
        filter: &str,
        from: Option<&Continuation>,
    ) -> Result<Scanned, RequestFault> {
        self.scan_some(Some("Timestamp"), filter, ROWS_MAX, from).await
    }

    async fn scan_some(
        &self,
        property: Option<&str>,
        filter: &str,
        top: u32,
        from: Option<&Continuation>,
    ) -> Result<Scanned, RequestFault> {
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
        // Reads only the first page of the stream. The caller sends, counts and limits the request for the next one.
        match query.into_stream::<Properties>().next().await {
            Some(Ok(answer)) => scanned(answer),
            Some(Err(error)) => match RequestFault::from(error) {
                failure if is_absent(&failure) => Ok(Scanned { rows: Vec::new(), next: None }),
                failure => Err(failure),
            },
            None => Err(RequestFault::Unclear(Box::new(UnexpectedResponse("no page of a scan".to_owned())))),
        }
    }

    /// Applies the operations of a batch atomically. Returns the new revision of each row in order, if the service reports it.
    pub(super) async fn send(&self, batch: &Batch) -> Result<Vec<Option<Revision>>, RequestFault> {
        batch.send(&self.client.partition_key_client(batch.partition())).await
    }

    /// Like [`Self::send`], but creates the table if it does not exist. Only for batches of inserts.
    pub(super) async fn send_inserts(&self, batch: &Batch) -> Result<Vec<Option<Revision>>, RequestFault> {
        match self.send(batch).await {
            // The crate drops error codes within a batch. Inserts need no existing row, so 404 means that the table is missing.
            Err(failure) if failure.has_status(404) => {
                self.create().await?;
                self.send(batch).await
            }
            answer => answer,
        }
    }

    /// Creates the table. Succeeds if it exists.
    async fn create(&self) -> Result<(), RequestFault> {
        match self.client.create().await.map_err(RequestFault::from) {
            Ok(_) => Ok(()),
            Err(failure) if failure.has_status(409) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

const TABLE_NOT_FOUND: &str = "TableNotFound";

/// Returns whether the service reports that the table or the row does not exist.
fn is_absent(failure: &RequestFault) -> bool {
    [TABLE_NOT_FOUND, "ResourceNotFound", "EntityNotFound"].into_iter().any(|code| failure.has_code(code))
}

fn scanned(answer: QueryEntityResponse<Properties>) -> Result<Scanned, RequestFault> {
    let next = answer.continuation();
    let rows = answer.entities.into_iter().map(|properties| {
        let text = |name: &str| properties.get(name).and_then(Value::as_str).map(str::to_owned);
        let names = (text("PartitionKey"), text("RowKey"), text("odata.etag"));
        let (Some(partition), Some(row), Some(etag)) = names else {
            return Err(RequestFault::Unclear(Box::new(UnexpectedResponse(
                "a row without a key or an ETag".to_owned(),
            ))));
        };
        let revision = RowTag::from_response(&etag)?;
        Ok(Found { key: Key::stored(partition, row), revision, properties })
    });
    Ok(Scanned { rows: rows.collect::<Result<_, _>>()?, next })
}
