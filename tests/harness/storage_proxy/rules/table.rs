//! Rows, batches of rows, and queries ("Performing entity group transactions", "Querying tables and entities").

use std::collections::BTreeSet;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value};

use super::entity::{self, Keys};
use super::headers::check_etag;
use super::{Cost, Refusal, batch};
use crate::storage_proxy::error_responses::StorageError;
use crate::storage_proxy::request::{ProxiedRequest, decoded};

/// Maximum number of rows of a batch.
const BATCH_ROWS_MAX: usize = 100;
/// Maximum size of the body of a batch.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Maximum number of rows that a query may request.
const TOP_MAX: u32 = 1000;
/// Maximum number of comparisons in a filter.
const COMPARISONS_MAX: usize = 15;

const INVALID_INPUT: StorageError =
    StorageError::bad_request("InvalidInput", "One of the request inputs is not valid.");
const TOO_MANY: StorageError = StorageError::bad_request(
    "InvalidInput",
    "The batch request operation exceeds the maximum 100 changes per change set.",
);
const OTHER_PARTITION: StorageError = StorageError::bad_request(
    "CommandsInBatchActOnDifferentPartitions",
    "All commands in a batch must operate on same entity group.",
);
const REPEATED_ROW: StorageError = StorageError::bad_request(
    "InvalidDuplicateRow",
    "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.",
);
const NO_KEYS: StorageError = StorageError::bad_request(
    "PropertiesNeedValue",
    "The values are not specified for all properties in the entity.",
);
const BODY_TOO_LARGE: StorageError = StorageError {
    status: StatusCode::PAYLOAD_TOO_LARGE,
    code: "RequestBodyTooLarge",
    message: "The request body is too large and exceeds the maximum permissible limit.",
};

pub(super) fn check(request: &ProxiedRequest) -> Result<Cost, Refusal> {
    let path = request.target.path();
    if request.is_batch() {
        return check_batch(request);
    }
    if path.ends_with("/Tables") || path.contains("/Tables(") {
        return Ok(Cost::Request);
    }
    if request.method == Method::GET && !path.contains("(PartitionKey=") {
        return check_query(request);
    }
    let row = row_of(request.target.as_str(), &request.body)?;
    row.check(&request.method)?;
    Ok(Cost::Entities { partition: format!("{}/{}", row.table, row.keys.partition), count: 1 })
}

fn check_batch(request: &ProxiedRequest) -> Result<Cost, Refusal> {
    let size = request.body.len();
    if size > BATCH_BYTES_MAX {
        let detail = format!("the batch has {size} bytes; at most {BATCH_BYTES_MAX} are allowed");
        return Err(Refusal::new(BODY_TOO_LARGE, detail));
    }
    let content_type = request.header("content-type").unwrap_or_default();
    let operations = batch::operations(content_type, &request.body)
        .map_err(|detail| Refusal::new(INVALID_INPUT, detail.to_owned()))?;
    if operations.len() > BATCH_ROWS_MAX {
        let detail = format!("the batch has {} rows; at most {BATCH_ROWS_MAX} are allowed", operations.len());
        return Err(Refusal::new(TOO_MANY, detail).in_operation(BATCH_ROWS_MAX));
    }
    let mut partition: Option<String> = None;
    let mut rows = BTreeSet::new();
    for (index, operation) in operations.iter().enumerate() {
        let checked = operation.if_match.map_or(Ok(()), check_etag);
        let checked = checked.and_then(|()| {
            let row = row_of(operation.path, operation.body.as_bytes())?;
            row.check(&operation.method)?;
            Ok(row)
        });
        let AddressedRow { table, keys, .. } = checked.map_err(|refusal| refusal.in_operation(index))?;
        let here = format!("{table}/{}", keys.partition);
        let first = partition.get_or_insert_with(|| here.clone());
        if *first != here {
            let detail = format!("it is of {here}, and the first operation of {first}");
            return Err(Refusal::new(OTHER_PARTITION, detail).in_operation(index));
        }
        if !rows.insert(keys.row.clone()) {
            let detail = format!("the row {} is already part of the batch", keys.row);
            return Err(Refusal::new(REPEATED_ROW, detail).in_operation(index));
        }
    }
    let Some(partition) = partition else {
        return Err(Refusal::new(INVALID_INPUT, "the batch has no operations".to_owned()));
    };
    Ok(Cost::Entities { partition, count: u32::try_from(operations.len()).unwrap_or(u32::MAX) })
}

/// The row of an operation, alone or in a batch, and the properties in the operation.
pub(crate) struct AddressedRow<'a> {
    /// The path of the table.
    pub(crate) table: &'a str,
    pub(crate) keys: Keys,
    pub(crate) properties: Map<String, Value>,
}

impl AddressedRow<'_> {
    fn check(&self, method: &Method) -> Result<(), Refusal> {
        self.keys.check()?;
        let writes = [Method::POST, Method::PUT].contains(method) || method.as_str() == "MERGE";
        if writes { entity::check(&self.keys, &self.properties) } else { Ok(()) }
    }
}

/// Returns the row of an operation.
pub(crate) fn row_of<'a>(target: &'a str, body: &[u8]) -> Result<AddressedRow<'a>, Refusal> {
    let path = target.split('?').next().unwrap_or_default();
    let properties: Map<String, Value> = if body.is_empty() {
        Map::new()
    } else {
        serde_json::from_slice(body)
            .map_err(|_| Refusal::new(INVALID_INPUT, "its body is not a JSON object".to_owned()))?
    };
    let (table, keys) = match path.split_once('(') {
        Some((table, keys)) => {
            let invalid = || Refusal::new(INVALID_INPUT, format!("{path} does not name a row"));
            (table, keys_of_path(&decoded(keys)).ok_or_else(invalid)?)
        }
        None => {
            let text = |name: &str| properties.get(name).and_then(Value::as_str).map(str::to_owned);
            let (Some(partition), Some(row)) = (text("PartitionKey"), text("RowKey")) else {
                return Err(Refusal::new(NO_KEYS, "the row has no PartitionKey or no RowKey".to_owned()));
            };
            (path, Keys { partition, row })
        }
    };
    Ok(AddressedRow { table, keys, properties })
}

/// Parses the keys in `PartitionKey='…',RowKey='…')`. A quote in a key is doubled.
fn keys_of_path(text: &str) -> Option<Keys> {
    let keys = text.strip_prefix("PartitionKey='")?.strip_suffix("')")?;
    let (partition, row) = keys.split_once("',RowKey='")?;
    let key = |text: &str| {
        let quotes = text.matches('\'').count();
        let doubled = text.matches("''").count();
        (quotes == doubled.saturating_mul(2)).then(|| text.replace("''", "'"))
    };
    Some(Keys { partition: key(partition)?, row: key(row)? })
}

fn check_query(request: &ProxiedRequest) -> Result<Cost, Refusal> {
    if let Some(top) = request.parameter("$top")
        && !top.parse::<u32>().is_ok_and(|top| (1..=TOP_MAX).contains(&top))
    {
        let detail = format!("$top is {top}; allowed is 1 to {TOP_MAX}");
        return Err(Refusal::new(INVALID_INPUT, detail));
    }
    let filter = request.parameter("$filter").unwrap_or_default();
    let is_comparison = |word: &&str| ["eq", "ne", "gt", "ge", "lt", "le"].contains(word);
    let comparisons = filter.split(' ').filter(is_comparison).count();
    if comparisons > COMPARISONS_MAX {
        let detail =
            format!("its filter has {comparisons} comparisons; at most {COMPARISONS_MAX} are allowed");
        return Err(Refusal::new(INVALID_INPUT, detail));
    }
    Ok(Cost::Request)
}
