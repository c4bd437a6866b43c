//! The HTTP transport of the Azure crates. [`ObservedTransport`] counts every request, including retries, and compares
//! the clock of this process with the time in the response.
//!
//! It also distinguishes failures: a [`WireFault`] records whether the request was sent. The table service reports
//! error codes and the index of a failed batch operation only in the body. Both are copied into headers that the crates read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::date::parse_rfc1123;
use azure_core::error::{Error, ErrorKind};
use azure_core::headers::{DATE, ERROR_CODE, HeaderName, HeaderValue, Headers};
use azure_core::{Body, BytesStream, HttpClient, Request, Response, StatusCode};
use bytes::Bytes;
use reqwest::header::{self, HeaderMap};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::adaptive_limit::{AdaptiveLimit, Permit};
use super::attempt::is_unavailable;
use super::identity::Credentials;
use super::permissions::{self, Right};
use super::wire::{Wire, WireFault, WireRequest, WireResponse};
use crate::domain::time::Timestamp;
use crate::ports::operations::{Operation, PriceKind, Service, StorageOperations};
use crate::ports::store_clock::{ClockSkew, StoreClock};
use crate::ports::world::World;

/// Maximum time from sending a request to the end of its response.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum time for a scan. The service itself may take up to 5 seconds.
const SCAN_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum number of concurrent requests of a process. Further requests wait, and their timeouts start after the wait.
/// The limit keeps a healthy storage busy (3,200 requests per second at 10 ms per request). [`AdaptiveLimit`] lowers it
/// for a slower storage, so that not all requests time out.
const CONCURRENT_REQUESTS_MAX: usize = 32;
/// Maximum number of these requests that read a row, so that reads of many uncached accounts do not delay the commits
/// of accounts that have been read.
const CONCURRENT_READS_MAX: usize = 16;
/// Maximum number of these requests that scan a table, so that a walk over all rows does not delay other work.
const CONCURRENT_SCANS_MAX: usize = 8;
/// Maximum number of concurrent requests that renew or end leases on messages. They do not count towards
/// [`CONCURRENT_REQUESTS_MAX`], because a worker must still renew and release its messages when the tables do not respond.
const CONCURRENT_LEASE_CHANGES_MAX: usize = 16;
/// Minimum duration of an unanswered request that counts as overload. A broken connection fails sooner.
const OVERLOAD_AFTER: Duration = Duration::from_secs(1);
/// Status for requests that the storage refuses because it is busy.
const BUSY: u16 = 503;
/// Status for an invalid token.
pub(super) const UNAUTHORIZED: u16 = 401;
/// Status for a request that is not permitted.
pub(super) const FORBIDDEN: u16 = 403;
/// Error code for invalid credentials when the status is another one.
const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";

/// Limits on concurrent requests.
#[derive(Debug)]
pub(super) struct RequestLimits {
    all: AdaptiveLimit,
    reads: Semaphore,
    scans: Semaphore,
    lease_changes: AdaptiveLimit,
}

/// Permission to send one request, held until it is dropped.
struct Permits<'a> {
    limit: &'a AdaptiveLimit,
    _any: Permit<'a>,
    _of_kind: Option<SemaphorePermit<'a>>,
}

impl Permits<'_> {
    /// Adapts the limit to the result of the request, which took `took`.
    fn adapt(&self, answer: &Result<WireResponse, WireFault>, took: Duration, now: Duration) {
        match answer {
            Ok(answer) if answer.status == BUSY => self.limit.overloaded(now),
            Err(_) if took >= OVERLOAD_AFTER => self.limit.overloaded(now),
            Ok(_) => self.limit.answered(),
            Err(_) => {}
        }
    }
}

impl RequestLimits {
    pub(super) fn new() -> Self {
        Self {
            all: AdaptiveLimit::new(CONCURRENT_REQUESTS_MAX),
            reads: Semaphore::new(CONCURRENT_READS_MAX),
            scans: Semaphore::new(CONCURRENT_SCANS_MAX),
            lease_changes: AdaptiveLimit::new(CONCURRENT_LEASE_CHANGES_MAX),
        }
    }

    async fn acquire(&self, operation: Operation) -> Permits<'_> {
        let (limit, kind) = match (operation.service, operation.name) {
            (Service::Queue, UPDATE | DELETE) => (&self.lease_changes, None),
            (Service::Table, GET) => (&self.all, Some(&self.reads)),
            (Service::Table, QUERY) => (&self.all, Some(&self.scans)),
            (Service::Table | Service::Queue | Service::Blob, _) => (&self.all, None),
        };
        let of_kind = match kind {
            Some(kind) => Some(kind.acquire().await.expect("the semaphores are never closed")),
            None => None,
        };
        Permits { limit, _any: limit.acquire().await, _of_kind: of_kind }
    }
}

/// Observes all requests of a store.
#[derive(Clone)]
pub(super) struct Observer {
    pub(super) operations: Arc<StorageOperations>,
    /// Compares the clock of `world` with the times in responses.
    pub(super) clock: Arc<StoreClock>,
    pub(super) world: Arc<dyn World>,
    /// Whether requests refused for a missing right are logged. Not for checks of rights, which readiness reports.
    pub(super) logs_missing_rights: bool,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Observer {
    /// Compares the clocks. `sent` is the uptime when the request was sent; its response has just been received.
    fn compare_clocks(&self, sent: Duration, headers: &Headers) {
        let (received, uptime) = (self.world.now(), self.world.uptime());
        let date = headers.get_optional_str(&DATE).and_then(|date| parse_rfc1123(date).ok());
        let Some(date) = date else { return };
        let date = Timestamp::from_unix_ms(date.unix_timestamp().saturating_mul(1000));
        let skew = ClockSkew::of_response(date, received, uptime.saturating_sub(sent));
        if let Some(skew) = self.clock.record(skew, uptime) {
            tracing::warn!(
                clock.skew_ms = skew.estimate_ms(),
                "The clock of this process is {skew}: correct it"
            );
        }
    }
}

/// Sends and observes the requests of one service. Requests that fail to connect are counted too.
#[derive(Debug)]
pub(super) struct ObservedTransport {
    pub(super) wire: Arc<dyn Wire>,
    /// Shared by all services.
    pub(super) limits: Arc<RequestLimits>,
    pub(super) service: Service,
    pub(super) observer: Observer,
    pub(super) credentials: Credentials,
}

#[async_trait]
impl HttpClient for ObservedTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        let operation = operation(self.service, request);
        let permits = self.limits.acquire(operation).await;
        self.observer.operations.count(operation);
        let sent = self.observer.world.uptime();
        let sending = self.wire.send(self.prepare(request, operation)?);
        let answer = sending.await;
        let now = self.observer.world.uptime();
        let took = now.saturating_sub(sent);
        permits.adapt(&answer, took, now);
        let is_failure = answer.as_ref().map_or(true, |answer| is_unavailable(answer.status));
        self.observer.operations.answered(operation, took, is_failure);
        let answer = answer.map_err(|fault| Error::new(ErrorKind::Io, fault))?;
        let status = StatusCode::try_from(answer.status)
            .map_err(|_| Error::message(ErrorKind::DataConversion, "the answer has an unknown status"))?;
        let mut headers = convert(&answer.headers);
        self.observer.compare_clocks(sent, &headers);
        let body = answer.body;
        if !status.is_success()
            && headers.get_optional_str(&ERROR_CODE).is_none()
            && let Some(code) = table_error_code(&body)
        {
            headers.insert(ERROR_CODE, code);
        }
        let code = headers.get_optional_str(&ERROR_CODE);
        if answer.status == UNAUTHORIZED || code == Some(AUTHENTICATION_FAILED) {
            self.credentials.note_unauthorized();
        }
        if self.observer.logs_missing_rights {
            self.tell_missing_right(operation, answer.status, code);
        }
        let hinted = if operation.name == BATCH { with_failed_row(&body) } else { None };
        let body = hinted.map_or_else(|| BytesStream::new(body), BytesStream::new);
        Ok(Response::new(status, headers, Box::pin(body)))
    }
}

impl ObservedTransport {
    /// Logs the missing right if the storage refused a request because of it.
    fn tell_missing_right(&self, operation: Operation, status: u16, code: Option<&str>) {
        let (service, name) = (self.service.code(), operation.name);
        let Some(code) = code.filter(|code| status == FORBIDDEN && code.starts_with("Authorization")) else {
            return;
        };
        if self.credentials.have_roles() {
            let Right { action, role } = permissions::needed(self.service, name);
            tracing::error!(
                "Azure Storage refuses the operation {service} {name} ({code}): the identity of this process lacks the right \
                 Microsoft.Storage/storageAccounts/{action}, which the role {role} includes, or the network rules of the \
                 account exclude it"
            );
        } else {
            tracing::error!(
                "Azure Storage refuses the operation {service} {name} ({code}): the shared access signature does not permit \
                 it, the account permits no shared keys, or its network rules exclude this process"
            );
        }
    }

    fn prepare(&self, request: &Request, operation: Operation) -> azure_core::Result<WireRequest> {
        let unsupported = |what: &'static str| Error::message(ErrorKind::DataConversion, what);
        let method = reqwest::Method::from_bytes(request.method().as_ref().as_bytes())
            .map_err(|_| unsupported("the HTTP method is invalid"))?;
        let Body::Bytes(body) = request.body().clone() else {
            return Err(unsupported("a streamed body is not supported: a retry could not repeat it"));
        };
        let timeout = if operation.name == QUERY { SCAN_TIMEOUT } else { ATTEMPT_TIMEOUT };
        let changed = if self.service == Service::Table { table_body(&body, operation) } else { None };
        let body = changed.map_or(body, Bytes::from);
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers().iter() {
            let name = header::HeaderName::from_bytes(name.as_str().as_bytes())
                .map_err(|_| unsupported("the name of a header is invalid"))?;
            let value = header::HeaderValue::from_str(value.as_str())
                .map_err(|_| unsupported("the value of a header is invalid"))?;
            headers.append(name, value);
        }
        // The crates set the length of the original body. The length is not part of the signature of table requests.
        if headers.contains_key(header::CONTENT_LENGTH) {
            headers.insert(header::CONTENT_LENGTH, header::HeaderValue::from(body.len()));
        }
        Ok(WireRequest { method, url: request.url().clone(), headers, body, timeout })
    }
}

/// Returns the changed body of a request to the table service, or `None` if it is unchanged.
fn table_body(body: &[u8], operation: Operation) -> Option<String> {
    let escaped = escape_line_separators(body);
    if operation.name != BATCH {
        return escaped;
    }
    let batch = escaped.as_deref().or_else(|| std::str::from_utf8(body).ok())?;
    Some(asking_for_no_content(batch))
}

/// Adds a header to the inserts of a batch that requests responses without content. Otherwise each response would
/// contain the inserted row. The crate sets this header only outside batches. The request line of an operation cannot
/// occur within a row, because JSON strings contain no line breaks.
fn asking_for_no_content(batch: &str) -> String {
    batch.split_inclusive('\n').fold(String::with_capacity(batch.len()), |mut changed, line| {
        changed.push_str(line);
        if line.starts_with("POST ") && line.ends_with(" HTTP/1.1\n") {
            changed.push_str("Prefer: return-no-content\n");
        }
        changed
    })
}

/// Escapes the Unicode line separators for JSON; returns `None` if there are none. JSON allows them unescaped, but
/// Azurite treats them as line breaks and fails the whole batch with 500. They can occur only in JSON strings, because
/// keys and headers do not contain them.
fn escape_line_separators(body: &[u8]) -> Option<String> {
    let has_any = body.windows(3).any(|bytes| matches!(bytes, [0xe2, 0x80, 0xa8 | 0xa9]));
    let text = std::str::from_utf8(body).ok().filter(|_| has_any)?;
    Some(text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029"))
}

fn convert(headers: &HeaderMap) -> Headers {
    // The crates read only headers with text values.
    let texts = headers.iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?;
        Some((HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value.to_owned())))
    });
    Headers::from(texts.collect::<HashMap<_, _>>())
}

/// Returns the code in an error of the table service: `{"odata.error":{"code":"TableNotFound",…}}`.
fn table_error_code(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let code = body.get("odata.error")?.get("code")?.as_str()?;
    (!code.is_empty()).then(|| code.to_owned())
}

const QUERY: &str = "query";
const GET: &str = "get";
const BATCH: &str = "batch";
const UPDATE: &str = "update";
const DELETE: &str = "delete";

/// Returns the response of a failed batch with an added header that contains the index of the failed operation. The
/// crate reads this header, which is otherwise unused. Returns `None` if the response has no index. The service writes
/// the index before the error message: `"value":"7:The specified entity already exists.…"`.
fn with_failed_row(body: &[u8]) -> Option<String> {
    const HEADER: &str = "DataServiceId:";
    let text = std::str::from_utf8(body).ok()?;
    let (head, error) = text.split_once(r#""odata.error""#)?;
    let (_, message) = error.split_once(r#""value":""#)?;
    let (row, _) = message.split_once(':')?;
    let row: usize = row.parse().ok()?;
    // The status is in the first line of the response.
    let (before, status) = head.rsplit_once("HTTP/1.1 ")?;
    let (status, headers) = status.split_once('\n')?;
    let rest = text.get(head.len()..)?;
    Some(format!("{before}HTTP/1.1 {status}\n{HEADER} {row}\r\n{headers}{rest}"))
}

/// Returns the operation of a request, with its name in the terms of the service and its price.
fn operation(service: Service, request: &Request) -> Operation {
    let (method, url) = (request.method().as_ref(), request.url());
    let asks = |name: &str| url.query_pairs().any(|(parameter, _)| parameter == name);
    let (name, price) = match service {
        Service::Table => table_operation(method, url.path()),
        Service::Queue => {
            let of_messages = url.path().contains("/messages");
            let name = match method {
                "POST" => "send",
                "GET" if of_messages && asks("peekonly") => "peek",
                "GET" if of_messages => "receive",
                "GET" => "metadata",
                "PUT" if of_messages => UPDATE,
                "PUT" => "create",
                "DELETE" => DELETE,
                _ => "other",
            };
            (name, PriceKind::Queue)
        }
        Service::Blob => match method {
            "PUT" if asks("restype") => ("create", PriceKind::BlobWrite),
            "PUT" => ("put", PriceKind::BlobWrite),
            // A listing is priced as a write.
            "GET" if asks("restype") => ("list", PriceKind::BlobWrite),
            "GET" => ("get", PriceKind::BlobRead),
            "DELETE" => (DELETE, PriceKind::BlobRead),
            _ => ("other", PriceKind::BlobRead),
        },
    };
    Operation { service, name, price }
}

fn table_operation(method: &str, path: &str) -> (&'static str, PriceKind) {
    match method {
        "POST" if path.ends_with("/$batch") => (BATCH, PriceKind::TableBatch),
        "POST" if path.ends_with("/Tables") => ("create", PriceKind::Table),
        "POST" => ("insert", PriceKind::Table),
        "GET" if path.ends_with("()") => (QUERY, PriceKind::TableBatch),
        "GET" => (GET, PriceKind::Table),
        "MERGE" => ("merge", PriceKind::Table),
        "PUT" => (UPDATE, PriceKind::Table),
        "DELETE" => (DELETE, PriceKind::Table),
        _ => ("other", PriceKind::Table),
    }
}
