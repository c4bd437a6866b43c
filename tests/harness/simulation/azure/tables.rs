//! A table service in memory. It executes requests of the adapter as the documentation of Azure specifies: rows with ETags,
//! conditions, entity group transactions, filters, and pages with continuation tokens. The rules that limit a request are
//! checked earlier ([`rules`](crate::storage_proxy::rules)).

use std::collections::BTreeMap;

use hyper::header::{DATE, ETAG, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use postonce_shared::domain::time::Timestamp;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::storage_proxy::Service;
use crate::storage_proxy::error_responses::{ProxiedResponse, StorageError, plain_headers};
use crate::storage_proxy::request::ProxiedRequest;
use crate::storage_proxy::rules::batch;
use crate::storage_proxy::rules::headers::DATE as DATE_FORMAT;
use crate::storage_proxy::rules::table::{AddressedRow, row_of};

/// Maximum number of rows of a page.
const PAGE_ROWS_MAX: usize = 1000;

const METADATA: &str = "http://127.0.0.1/$metadata";
const JSON: &str = "application/json;odata=fullmetadata;streaming=true;charset=utf-8";
const NEXT_PARTITION: HeaderName = HeaderName::from_static("x-ms-continuation-nextpartitionkey");
const NEXT_ROW: HeaderName = HeaderName::from_static("x-ms-continuation-nextrowkey");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

const TABLE_NOT_FOUND: StorageError = StorageError {
    status: StatusCode::NOT_FOUND,
    code: "TableNotFound",
    message: "The table specified does not exist.",
};
const ROW_NOT_FOUND: StorageError = StorageError {
    status: StatusCode::NOT_FOUND,
    code: "ResourceNotFound",
    message: "The specified resource does not exist.",
};
const ROW_EXISTS: StorageError = StorageError {
    status: StatusCode::CONFLICT,
    code: "EntityAlreadyExists",
    message: "The specified entity already exists.",
};
const TABLE_EXISTS: StorageError = StorageError {
    status: StatusCode::CONFLICT,
    code: "TableAlreadyExists",
    message: "The table specified already exists.",
};
const STALE: StorageError = StorageError {
    status: StatusCode::PRECONDITION_FAILED,
    code: "UpdateConditionNotSatisfied",
    message: "The update condition specified in the request was not satisfied.",
};
const UNSUPPORTED: StorageError =
    StorageError::bad_request("InvalidInput", "The simulated service does not support this request.");

type Properties = Map<String, Value>;
/// Partition key and row key.
type RowKey = (String, String);

#[derive(Debug, Clone)]
struct Row {
    etag: String,
    properties: Properties,
}

/// The tables of a storage account, by path.
#[derive(Debug, Default)]
pub struct Tables {
    tables: BTreeMap<String, BTreeMap<RowKey, Row>>,
    /// Number of written rows, which makes each ETag unique.
    writes: u64,
}

/// The result of a request.
pub(crate) struct Applied {
    pub(crate) response: ProxiedResponse,
    /// Whether rows were written.
    pub(crate) is_written: bool,
}

impl Applied {
    const fn read(response: ProxiedResponse) -> Self {
        Self { response, is_written: false }
    }
}

impl Tables {
    /// Executes a request that violates no rule, at this time of the service.
    pub(crate) fn apply(&mut self, request: &ProxiedRequest, at: Timestamp) -> Applied {
        let path = request.target.path();
        let applied = if request.is_batch() {
            self.batch(request)
        } else if path.ends_with("/Tables") {
            self.create(request).map(Applied::read)
        } else if request.method == Method::GET && path.ends_with("()") {
            self.query(request).map(Applied::read)
        } else {
            self.row(request)
        };
        let mut applied = applied.unwrap_or_else(|error| Applied::read(error.response(Service::Table)));
        date(&mut applied.response, at);
        applied
    }

    /// Creates an empty table.
    pub(crate) fn add(&mut self, path: String) {
        self.tables.insert(path, BTreeMap::new());
    }

    /// Removes the rows whose partition key and row key, joined by `/`, have this suffix. Returns their number.
    pub(crate) fn remove_ending(&mut self, end: &str) -> usize {
        let mut removed = 0_usize;
        for rows in self.tables.values_mut() {
            let before = rows.len();
            rows.retain(|(partition, row), _| !format!("{partition}/{row}").ends_with(end));
            removed = removed.saturating_add(before.saturating_sub(rows.len()));
        }
        removed
    }

    fn create(&mut self, request: &ProxiedRequest) -> Result<ProxiedResponse, StorageError> {
        let body: Value = serde_json::from_slice(&request.body).map_err(|_| UNSUPPORTED)?;
        let name = body["TableName"].as_str().ok_or(UNSUPPORTED)?;
        let path = request.target.path().strip_suffix("Tables").ok_or(UNSUPPORTED)?;
        let table = format!("{path}{name}");
        if self.tables.contains_key(&table) {
            return Err(TABLE_EXISTS);
        }
        self.add(table);
        let body = json!({
            "TableName": name, "odata.type": "Tables", "odata.id": name, "odata.editLink": name,
        });
        Ok(response(StatusCode::CREATED, JSON, body.to_string()))
    }

    fn row(&mut self, request: &ProxiedRequest) -> Result<Applied, StorageError> {
        let row = row_of(request.target.as_str(), &request.body).map_err(|_| UNSUPPORTED)?;
        if request.method == Method::GET {
            let (key, rows) = (key_of(&row), self.tables.get(row.table).ok_or(TABLE_NOT_FOUND)?);
            let found = rows.get(&key).ok_or(ROW_NOT_FOUND)?;
            let mut read = response(StatusCode::OK, JSON, entity(&key, found, None).to_string());
            read.headers.insert(ETAG, header(&found.etag));
            return Ok(Applied::read(read));
        }
        let after = self.after(&request.method, &row, request.header("if-match"))?;
        let etag = self.write(&row, after);
        let mut written = response(StatusCode::NO_CONTENT, JSON, String::new());
        written.headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("return-no-content"));
        written.headers.extend(etag.map(|etag| (ETAG, header(&etag))));
        Ok(Applied { response: written, is_written: true })
    }

    /// Writes all rows of a batch, or none.
    fn batch(&mut self, request: &ProxiedRequest) -> Result<Applied, StorageError> {
        let content_type = request.header("content-type").unwrap_or_default();
        let operations = batch::operations(content_type, &request.body).map_err(|_| UNSUPPORTED)?;
        let mut changes = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            let row = row_of(operation.path, operation.body.as_bytes()).map_err(|_| UNSUPPORTED)?;
            match self.after(&operation.method, &row, operation.if_match) {
                Ok(after) => changes.push((row, after)),
                Err(error) => return Ok(Applied::read(error.response_to_batch(index))),
            }
        }
        let parts: String = changes.into_iter().map(|(row, after)| part(self.write(&row, after))).collect();
        let body = format!(
            "--batchresponse_simulated\r\n\
             Content-Type: multipart/mixed; boundary=changesetresponse_simulated\r\n\r\n\
             {parts}--changesetresponse_simulated--\r\n--batchresponse_simulated--\r\n"
        );
        let kind = "multipart/mixed; boundary=batchresponse_simulated";
        Ok(Applied { response: response(StatusCode::ACCEPTED, kind, body), is_written: true })
    }

    /// Returns the properties of a row after an operation, or `None` if the operation removes it. Writes nothing.
    fn after(
        &self,
        method: &Method,
        row: &AddressedRow<'_>,
        if_match: Option<&str>,
    ) -> Result<Option<Properties>, StorageError> {
        let rows = self.tables.get(row.table).ok_or(TABLE_NOT_FOUND)?;
        let existing = rows.get(&key_of(row));
        let mut sent = row.properties.clone();
        sent.retain(|name, _| !["PartitionKey", "RowKey"].contains(&name.as_str()));
        match (method.as_str(), existing, if_match) {
            ("POST", Some(_), _) => Err(ROW_EXISTS),
            ("POST", None, _) => Ok(Some(sent)),
            (_, None, Some(_)) => Err(ROW_NOT_FOUND),
            (_, Some(found), Some(tag)) if tag != "*" && tag != found.etag => Err(STALE),
            ("DELETE", _, _) => Ok(None),
            ("PUT", _, _) => Ok(Some(sent)),
            ("MERGE", existing, _) => {
                let mut merged = existing.map(|found| found.properties.clone()).unwrap_or_default();
                merged.extend(sent);
                Ok(Some(merged))
            }
            _ => Err(UNSUPPORTED),
        }
    }

    /// Writes or removes a row of an existing table. Returns the new ETag.
    fn write(&mut self, row: &AddressedRow<'_>, after: Option<Properties>) -> Option<String> {
        let rows = self.tables.get_mut(row.table)?;
        let key = key_of(row);
        let Some(properties) = after else {
            rows.remove(&key);
            return None;
        };
        self.writes = self.writes.saturating_add(1);
        let etag = format!("W/\"datetime'2026-01-01T00%3A00%3A00.{:07}Z'\"", self.writes);
        rows.insert(key, Row { etag: etag.clone(), properties });
        Some(etag)
    }

    /// Returns one page of the matching rows, ordered by key.
    fn query(&self, request: &ProxiedRequest) -> Result<ProxiedResponse, StorageError> {
        let table = request.target.path().trim_end_matches("()");
        let rows = self.tables.get(table).ok_or(TABLE_NOT_FOUND)?;
        let filter = request.parameter("$filter").unwrap_or_default();
        let filter = Filter::parse(&filter).ok_or(UNSUPPORTED)?;
        let top = request.parameter("$top").and_then(|top| top.parse().ok()).unwrap_or(PAGE_ROWS_MAX);
        let select = request.parameter("$select");
        let names: Option<Vec<&str>> = select.as_deref().map(|names| names.split(',').collect());
        let next = |name| request.parameter(name).unwrap_or_default();
        let from = (next("NextPartitionKey"), next("NextRowKey"));
        let mut matching = rows.range(from..).filter(|(key, row)| filter.matches(key, row));
        let page: Vec<Value> =
            matching.by_ref().take(top).map(|(key, row)| entity(key, row, names.as_deref())).collect();
        let body = json!({ "odata.metadata": METADATA, "value": page });
        let mut read = response(StatusCode::OK, JSON, body.to_string());
        if let Some(((partition, row), _)) = matching.next() {
            read.headers.insert(NEXT_PARTITION, header(partition));
            read.headers.insert(NEXT_ROW, header(row));
        }
        Ok(read)
    }
}

/// Sets the date of a response to the time of the service.
pub(super) fn date(response: &mut ProxiedResponse, at: Timestamp) {
    let date = OffsetDateTime::from_unix_timestamp(at.unix_ms().div_euclid(1000)).expect("a date of the run");
    let date = date.format(DATE_FORMAT).expect("every date has this form");
    response.headers.insert(DATE, header(&date));
}

fn key_of(row: &AddressedRow<'_>) -> RowKey {
    (row.keys.partition.clone(), row.keys.row.clone())
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("keys, ETags and dates are plain")
}

fn response(status: StatusCode, kind: &'static str, body: String) -> ProxiedResponse {
    ProxiedResponse { status, headers: plain_headers(kind), body: body.into() }
}

/// Returns the inner response to one operation of a successful batch.
fn part(etag: Option<String>) -> String {
    let etag = etag.map(|etag| format!("ETag: {etag}\r\n")).unwrap_or_default();
    format!(
        "--changesetresponse_simulated\r\n\
         Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         HTTP/1.1 204 No Content\r\nDataServiceVersion: 1.0;\r\n{etag}\r\n\r\n"
    )
}

/// Returns a row as JSON, with all properties or only those in `names`.
fn entity((partition, row): &RowKey, found: &Row, names: Option<&[&str]>) -> Value {
    let mut entity = found.properties.clone();
    entity.insert("PartitionKey".to_owned(), partition.as_str().into());
    entity.insert("RowKey".to_owned(), row.as_str().into());
    entity.insert("Timestamp".to_owned(), "2026-01-01T00:00:00.0000000Z".into());
    if let Some(names) = names {
        entity.retain(|name, _| names.contains(&name.as_str()));
    }
    entity.insert("odata.metadata".to_owned(), METADATA.into());
    entity.insert("odata.etag".to_owned(), found.etag.as_str().into());
    Value::Object(entity)
}

/// A conjunction of text comparisons, which is the only kind of filter that the adapter sends.
struct Filter<'a>(Vec<(&'a str, &'a str, String)>);

impl<'a> Filter<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let comparison = |text: &'a str| {
            let mut words = text.splitn(3, ' ');
            let (name, operator, value) = (words.next()?, words.next()?, words.next()?);
            let value = value.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'");
            ["eq", "ge", "gt", "le", "lt"].contains(&operator).then_some((name, operator, value))
        };
        text.split(" and ").map(comparison).collect::<Option<_>>().map(Self)
    }

    fn matches(&self, (partition, row): &RowKey, found: &Row) -> bool {
        self.0.iter().all(|(name, operator, value)| {
            let stored = match *name {
                "PartitionKey" => Some(partition.as_str()),
                "RowKey" => Some(row.as_str()),
                name => found.properties.get(name).and_then(Value::as_str),
            };
            stored.is_some_and(|stored| match *operator {
                "eq" => stored == value,
                "ge" => stored >= value.as_str(),
                "gt" => stored > value.as_str(),
                "le" => stored <= value.as_str(),
                _ => stored < value.as_str(),
            })
        })
    }
}
