//! The HTTP client of the exporter.

use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response, ResponseBodyTooLarge};
use tokio::runtime::Handle;

use super::headers::ExportHeaders;
use crate::adapters::bounded_body::bounded_body;

/// Maximum size of a response of a collector. The exporter has the same limit.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Sends requests on the runtime of the process, because the thread of the exporter has no runtime.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    headers: Option<ExportHeaders>,
    runtime: Handle,
}

impl Client {
    /// Creates a client that adds these headers to every request and sends on the current runtime.
    pub(super) fn new(http: reqwest::Client, headers: Option<ExportHeaders>) -> Self {
        Self { http, headers, runtime: Handle::current() }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (http, mut request) = (self.http.clone(), reqwest::Request::try_from(request)?);
        if let Some(headers) = &self.headers {
            headers.add_to(request.headers_mut());
        }
        self.runtime.spawn(exchange(http, request)).await?
    }
}

async fn exchange(http: reqwest::Client, request: reqwest::Request) -> Result<Response<Bytes>, HttpError> {
    // The URL is removed from errors, because it may be secret.
    let mut answer = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    let body = bounded_body(&mut answer, ANSWER_BYTES_MAX).await.map_err(reqwest::Error::without_url)?;
    Ok(response.body(body.ok_or_else(ResponseBodyTooLarge::new)?.into())?)
}
