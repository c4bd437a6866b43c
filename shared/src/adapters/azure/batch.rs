//! An entity group transaction: up to 100 rows of one partition that change atomically.
//!
//! The crate returns `Ok` for a failed transaction and for a response without content. So this module checks the status
//! of each response, and compares the number of responses with the number of operations. The index of the failed
//! operation is a hint, see [`super::transport`].

use azure_data_tables::clients::PartitionKeyClient;
use azure_data_tables::operations::TransactionBuilder;
use serde::Serialize;

use super::attempt::{ErrorResponse, RequestFault, UnexpectedResponse};
use super::etag::RowTag;
use super::keys::Key;
use crate::domain::account::Revision;

/// Maximum number of rows in one batch.
pub(super) const BATCH_ROWS_MAX: usize = 100;

/// A row in the form in which it is sent.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entity<'a, T> {
    pub(super) partition_key: &'a str,
    pub(super) row_key: &'a str,
    #[serde(flatten)]
    pub(super) row: &'a T,
}

/// Changes of rows in one partition that are applied atomically. A batch can be sent repeatedly.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    partition: String,
    operations: Vec<Operation>,
}

#[derive(Debug, Clone)]
enum Operation {
    Insert { entity: serde_json::Value },
    Replace { row: String, entity: serde_json::Value },
    Merge { row: String, properties: serde_json::Value, guard: Revision },
    Delete { row: String, guard: Revision },
}

impl Batch {
    pub(super) fn new(partition: impl Into<String>) -> Self {
        Self { partition: partition.into(), operations: Vec::new() }
    }

    pub(super) fn partition(&self) -> &str {
        &self.partition
    }

    /// Adds an insert of a row that must not exist yet.
    pub(super) fn insert(&mut self, key: &Key, row: &impl Serialize) {
        self.check(key);
        let entity = to_json(&Entity { partition_key: key.partition(), row_key: key.row(), row });
        self.operations.push(Operation::Insert { entity });
    }

    /// Adds a row that replaces an existing one without a guard. Only for rows that no other process changes.
    pub(super) fn replace(&mut self, key: &Key, row: &impl Serialize) {
        self.check(key);
        let entity = to_json(&Entity { partition_key: key.partition(), row_key: key.row(), row });
        self.operations.push(Operation::Replace { row: key.row().to_owned(), entity });
    }

    pub(super) const fn len(&self) -> usize {
        self.operations.len()
    }

    /// Adds a change of the given properties of a row whose revision must be `guard`.
    pub(super) fn merge(&mut self, key: &Key, row: &impl Serialize, guard: &Revision) {
        self.check(key);
        let properties = to_json(row);
        let row = key.row().to_owned();
        self.operations.push(Operation::Merge { row, properties, guard: guard.clone() });
    }

    /// Adds the deletion of a row whose revision must be `guard`.
    pub(super) fn delete(&mut self, key: &Key, guard: &Revision) {
        self.check(key);
        self.operations.push(Operation::Delete { row: key.row().to_owned(), guard: guard.clone() });
    }

    /// Panics if a limit of Azure is violated. Azurite does not check these limits.
    fn check(&self, key: &Key) {
        assert!(key.partition() == self.partition, "{key} is not of the partition {}", self.partition);
        assert!(self.operations.len() < BATCH_ROWS_MAX, "a batch holds at most {BATCH_ROWS_MAX} rows");
    }

    /// Makes one attempt. If a guard is not a valid ETag, fails as if the guard did not match, without a request.
    pub(super) async fn send(
        &self,
        client: &PartitionKeyClient,
    ) -> Result<Vec<Option<Revision>>, RequestFault> {
        let mut transaction = client.transaction();
        for operation in &self.operations {
            transaction = add(transaction, operation)?;
        }
        let responses = transaction.await?.operation_responses;
        if let Some(refused) = responses.iter().find(|response| !response.status_code.is_success()) {
            let row = refused.data_service_id.as_deref().and_then(|row| row.parse().ok());
            let status = u16::from(refused.status_code);
            return Err(RequestFault::of_answer(ErrorResponse { status, code: None, row }));
        }
        let (expected, received) = (self.operations.len(), responses.len());
        if expected != received {
            let what = format!("{received} responses to a batch of {expected}");
            return Err(RequestFault::Unclear(Box::new(UnexpectedResponse(what))));
        }
        let tags = responses.into_iter().map(|response| response.etag);
        tags.map(|tag| tag.map(|tag| RowTag::from_response(tag.as_ref())).transpose()).collect()
    }
}

fn add(transaction: TransactionBuilder, operation: &Operation) -> Result<TransactionBuilder, RequestFault> {
    Ok(match operation {
        Operation::Insert { entity } => transaction.insert(entity)?,
        Operation::Replace { row, entity } => transaction.insert_or_replace(row, entity)?,
        Operation::Merge { row, properties, guard } => {
            transaction.merge(row, properties, Some(RowTag::of_guard(guard)?.condition()))?
        }
        Operation::Delete { row, guard } => {
            transaction.delete(row, Some(RowTag::of_guard(guard)?.condition()))?
        }
    })
}

fn to_json(row: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(row).expect("rows can always be written as JSON")
}
