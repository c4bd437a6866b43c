//! How a request reaches the storage, and where it is counted: every request of the Azure crates
//! goes through [`CountingTransport`], so none can be forgotten, retries included.
//!
//! It also makes failures tellable. A request that never left this machine is marked [`Unsent`]; the
//! answer is read to its end here, so that a broken one is a failure of the transport; and what the
//! table service writes only into the body is put where the crates look: the code of an error, and
//! which operation of a batch failed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::headers::{CONTENT_LENGTH, ERROR_CODE, HeaderName, HeaderValue, Headers};
use azure_core::{Body, BytesStream, HttpClient, Request, Response, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::connection::AzureConnection;
use crate::ports::fault::StoreFault;
use crate::ports::operations::{Operation, PriceKind, Service, StorageOperations};

/// Longest wait for a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the whole answer to one request.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
/// The same for a scan: the service itself works on one for up to 5 seconds.
const SCAN_TIMEOUT: Duration = Duration::from_secs(8);
/// Most requests of a process under way at once; the others wait for their turn, before their time
/// begins. Enough to keep a healthy storage busy (at 10 ms a request it is 3,200 a second), and few
/// enough that a backlog does not drown a small one in requests that all run out of time.
const REQUESTS_AT_ONCE_MAX: usize = 32;
/// Most of these that read a row: a crowd of cold accounts must not keep the first of them, which has
/// been read, from being committed.
const READS_AT_ONCE_MAX: usize = 16;
/// Azurite closes an idle connection after 5 seconds; a request that meets the closing is unclear.
const IDLE_PLAIN: Duration = Duration::from_secs(4);
/// A TLS handshake is dear, and Azure keeps idle connections for minutes.
const IDLE_ENCRYPTED: Duration = Duration::from_secs(60);

/// The request never left: nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("no connection to the storage")]
pub(super) struct Unsent(#[source] reqwest::Error);

/// One HTTP client with its pool of connections for all three services. (The crates' own client
/// keeps no connection open.)
pub(super) fn http_client(connection: &AzureConnection) -> Result<reqwest::Client, StoreFault> {
    let builder = reqwest::Client::builder()
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    let builder = if connection.is_encrypted() {
        builder.pool_idle_timeout(IDLE_ENCRYPTED)
    } else {
        // Azurite stands on the same machine or network: no proxy is in between.
        builder.pool_idle_timeout(IDLE_PLAIN).no_proxy()
    };
    builder
        .build()
        .map_err(|error| StoreFault::Refused { doing: "making an HTTP client", source: Box::new(error) })
}

/// Lets a bounded number of requests through.
#[derive(Debug)]
pub(super) struct Turns {
    all: Semaphore,
    reads: Semaphore,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Semaphore::new(REQUESTS_AT_ONCE_MAX), reads: Semaphore::new(READS_AT_ONCE_MAX) }
    }

    /// Waits for the turn of a request; it ends with what is returned.
    async fn take(&self, operation: Operation) -> (SemaphorePermit<'_>, Option<SemaphorePermit<'_>>) {
        const OPEN: &str = "nobody closes the semaphores";
        let reads_a_row = operation.service == Service::Table && operation.name == GET;
        let read = if reads_a_row { Some(self.reads.acquire().await.expect(OPEN)) } else { None };
        (self.all.acquire().await.expect(OPEN), read)
    }
}

/// Sends requests of one service and counts them. A request that finds no connection counts too.
#[derive(Debug)]
pub(super) struct CountingTransport {
    pub(super) http: reqwest::Client,
    /// One for all services.
    pub(super) turns: Arc<Turns>,
    pub(super) service: Service,
    pub(super) operations: Arc<StorageOperations>,
}

#[async_trait]
impl HttpClient for CountingTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        let operation = operation(self.service, request);
        let _turn = self.turns.take(operation).await;
        self.operations.count(operation);
        let answer = self.prepare(request, operation)?.send().await.map_err(|error| {
            if error.is_connect() {
                Error::new(ErrorKind::Io, Unsent(error))
            } else {
                Error::new(ErrorKind::Io, error)
            }
        })?;
        let status = StatusCode::try_from(answer.status().as_u16())
            .map_err(|_| Error::message(ErrorKind::DataConversion, "the answer has an unknown status"))?;
        let mut headers = convert(answer.headers());
        let body = answer.bytes().await.map_err(|error| Error::new(ErrorKind::Io, error))?;
        if !status.is_success()
            && headers.get_optional_str(&ERROR_CODE).is_none()
            && let Some(code) = table_error_code(&body)
        {
            headers.insert(ERROR_CODE, code);
        }
        let hinted = if operation.name == BATCH { with_failed_row(&body) } else { None };
        let body = hinted.map_or_else(|| BytesStream::new(body), BytesStream::new);
        Ok(Response::new(status, headers, Box::pin(body)))
    }
}

impl CountingTransport {
    fn prepare(
        &self,
        request: &Request,
        operation: Operation,
    ) -> azure_core::Result<reqwest::RequestBuilder> {
        let unfit = |what: &'static str| Error::message(ErrorKind::DataConversion, what);
        let method = reqwest::Method::from_bytes(request.method().as_ref().as_bytes())
            .map_err(|_| unfit("the method cannot be sent"))?;
        let Body::Bytes(body) = request.body().clone() else {
            return Err(unfit("streams are not sent: a retry could not repeat them"));
        };
        let timeout = if operation.name == QUERY { SCAN_TIMEOUT } else { ATTEMPT_TIMEOUT };
        let plain = body.len();
        let escaped = if self.service == Service::Table { escape_line_separators(&body) } else { None };
        // The crates wrote the length of the body that they know. It is in no signature of a request
        // to a table.
        let length = escaped.as_ref().map_or(plain, String::len).to_string();
        let body = escaped.map_or_else(|| reqwest::Body::from(body), reqwest::Body::from);
        let prepared = self.http.request(method, request.url().clone()).timeout(timeout).body(body);
        Ok(request.headers().iter().fold(prepared, |prepared, (name, value)| {
            let value = if *name == CONTENT_LENGTH { length.as_str() } else { value.as_str() };
            prepared.header(name.as_str(), value)
        }))
    }
}

/// The body with the line separators of Unicode as JSON escapes; `None` when it has none. JSON allows
/// them as they are, but Azurite takes them for ends of lines and answers the whole batch with 500.
/// Nothing but texts of JSON can hold them here: keys and headers are plain.
fn escape_line_separators(body: &[u8]) -> Option<String> {
    let has_any = body.windows(3).any(|bytes| matches!(bytes, [0xe2, 0x80, 0xa8 | 0xa9]));
    let text = std::str::from_utf8(body).ok().filter(|_| has_any)?;
    Some(text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029"))
}

fn convert(headers: &reqwest::header::HeaderMap) -> Headers {
    // A header that is not text is none that the crates read.
    let texts = headers.iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?;
        Some((HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value.to_owned())))
    });
    Headers::from(texts.collect::<HashMap<_, _>>())
}

/// The code in an error of the table service: `{"odata.error":{"code":"TableNotFound",…}}`.
fn table_error_code(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let code = body.get("odata.error")?.get("code")?.as_str()?;
    (!code.is_empty()).then(|| code.to_owned())
}

const QUERY: &str = "query";
const GET: &str = "get";
const BATCH: &str = "batch";

/// The answer to a batch that failed, with the number of the operation that did as the one header of
/// its response that the crate reads and nobody needs. `None` where no number is told. The service
/// writes it before the words of the error: `"value":"7:The specified entity already exists.…"`.
fn with_failed_row(body: &[u8]) -> Option<String> {
    const HEADER: &str = "DataServiceId:";
    let text = std::str::from_utf8(body).ok()?;
    let (head, error) = text.split_once(r#""odata.error""#)?;
    let (_, words) = error.split_once(r#""value":""#)?;
    let (row, _) = words.split_once(':')?;
    let row: usize = row.parse().ok()?;
    // The status stands on the first line of the response.
    let (before, status) = head.rsplit_once("HTTP/1.1 ")?;
    let (status, headers) = status.split_once('\n')?;
    let rest = text.get(head.len()..)?;
    Some(format!("{before}HTTP/1.1 {status}\n{HEADER} {row}\r\n{headers}{rest}"))
}

/// What a request asks for, in the service's own word, and its price.
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
                "PUT" if of_messages => "update",
                "PUT" => "create",
                "DELETE" => "delete",
                _ => "other",
            };
            (name, PriceKind::Queue)
        }
        Service::Blob => match method {
            "PUT" if asks("restype") => ("create", PriceKind::BlobWrite),
            "PUT" => ("put", PriceKind::BlobWrite),
            // Listing is priced like writing.
            "GET" if asks("restype") => ("list", PriceKind::BlobWrite),
            "GET" => ("get", PriceKind::BlobRead),
            "DELETE" => ("delete", PriceKind::BlobRead),
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
        "PUT" => ("update", PriceKind::Table),
        "DELETE" => ("delete", PriceKind::Table),
        _ => ("other", PriceKind::Table),
    }
}
