//! The lowest layer of the adapter. It sends one HTTP request once. The layers above decide about limits, retries and
//! the meaning of responses, so the adapter behaves the same over any [`Wire`]. A process uses [`HttpWire`]; a
//! simulation provides its own.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::Url;
use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderMap;

use super::connection::AzureConnection;
use super::identity::IdentityError;
use crate::adapters::authorities::trusting_only;
use crate::files::read_regular;
use crate::ports::fault::{Cause, StoreFault};
use crate::text::without_mark_of_file;

/// Maximum time to connect, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Azurite closes idle connections after 5 seconds. The outcome of a request on a closing connection is unclear.
const IDLE_PLAIN: Duration = Duration::from_secs(4);
/// TLS handshakes are expensive, and Azure keeps idle connections open for minutes.
const IDLE_ENCRYPTED: Duration = Duration::from_secs(60);

/// A complete, signed request. `Debug` shows neither the headers nor the query, which may be a shared access signature.
#[derive(Clone)]
pub struct WireRequest {
    /// The method.
    pub method: Method,
    /// The URL, including the query.
    pub url: Url,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body; empty if the request has none.
    pub body: Bytes,
    /// Maximum time from sending the request to the end of its response.
    pub timeout: Duration,
}

impl fmt::Debug for WireRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, url, .. } = self;
        f.debug_struct("WireRequest")
            .field("method", method)
            .field("path", &url.path())
            .finish_non_exhaustive()
    }
}

/// A complete response with any status.
#[derive(Debug, Clone)]
pub struct WireResponse {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is no complete response.
#[derive(Debug, thiserror::Error)]
pub enum WireFault {
    /// The request was not sent. Nothing was written.
    #[error("no connection to the storage")]
    Unsent(#[source] Cause),
    /// The request may have arrived, or may still arrive.
    #[error("no complete response of the storage")]
    Unanswered(#[source] Cause),
}

/// Sends HTTP requests, with one attempt each.
#[async_trait]
pub trait Wire: fmt::Debug + Send + Sync {
    /// Sends a request once, and returns its response within the timeout of the request.
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireFault>;
}

/// Sends requests over one connection pool for all three services. The crates' default client does not reuse connections.
#[derive(Debug)]
pub(super) struct HttpWire(reqwest::Client);

impl HttpWire {
    /// Creates the pool. The certificates of the services are checked against `authorities`; the default is the public ones.
    pub(super) fn new(connection: &AzureConnection, authorities: Option<&Path>) -> Result<Self, StoreFault> {
        let builder = reqwest::Client::builder()
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        let builder = if connection.is_encrypted() {
            builder.pool_idle_timeout(IDLE_ENCRYPTED)
        } else {
            // Azurite runs on the same machine or network, so no proxy is used.
            builder.pool_idle_timeout(IDLE_PLAIN).no_proxy()
        };
        let refused = |source| StoreFault::Refused { doing: "making an HTTP client", source };
        let builder = trusting(builder, authorities).map_err(|invalid| refused(Box::new(invalid)))?;
        let client = builder.build().map_err(|error| refused(Box::new(error)))?;
        Ok(Self(client))
    }
}

/// Maximum size of the file with certificate authorities, in bytes. A file with all public ones has a fifth of this size.
const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// Makes a client trust only the certificate authorities in a PEM file, if a file is given.
///
/// # Errors
/// [`IdentityError::Authorities`]
pub(super) fn trusting(
    builder: reqwest::ClientBuilder,
    authorities: Option<&Path>,
) -> Result<reqwest::ClientBuilder, IdentityError> {
    let Some(path) = authorities else { return Ok(builder) };
    let invalid = |source| IdentityError::Authorities { path: path.to_owned(), source };
    let pem = read_regular(path, AUTHORITIES_BYTES_MAX).map_err(|error| invalid(Box::new(error)))?;
    let certificates = reqwest::Certificate::from_pem_bundle(without_mark_of_file(&pem))
        .map_err(|error| invalid(Box::new(error)))?;
    if certificates.is_empty() {
        return Err(invalid("it contains no certificate in PEM form".into()));
    }
    Ok(trusting_only(builder, certificates))
}

#[async_trait]
impl Wire for HttpWire {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireFault> {
        let WireRequest { method, url, headers, body, timeout } = request;
        let prepared = self.0.request(method, url).timeout(timeout).headers(headers).body(body);
        let response = prepared.send().await.map_err(|error| {
            let error = without_query(error);
            if error.is_connect() {
                WireFault::Unsent(Box::new(error))
            } else {
                WireFault::Unanswered(Box::new(error))
            }
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // The body is read completely here, so that a broken body counts as a missing response.
        let body =
            response.bytes().await.map_err(|error| WireFault::Unanswered(Box::new(without_query(error))))?;
        Ok(WireResponse { status, headers, body })
    }
}

/// Removes the query from the URL in an error, because it may be a shared access signature, and errors are logged.
fn without_query(mut error: reqwest::Error) -> reqwest::Error {
    if let Some(url) = error.url_mut() {
        url.set_query(None);
    }
    error
}
