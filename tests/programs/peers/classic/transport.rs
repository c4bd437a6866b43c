//! The transport of storage requests: one pooled HTTP client, configured like that of the bank, with
//! counts. (The client of the crates keeps no connection open.)

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::headers::{HeaderName, HeaderValue, Headers};
use azure_core::{Body, BytesStream, HttpClient, Request, Response, StatusCode};

use crate::peers::classic::counts::Counts;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for a complete response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// Azurite closes an idle connection after 5 seconds.
const IDLE: Duration = Duration::from_secs(4);

/// The client with its pool of connections, for all requests of a process.
pub fn http_client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .pool_idle_timeout(IDLE)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
}

/// Sends the requests of one service and counts them.
#[derive(Debug)]
pub struct CountingTransport {
    /// The client that all services share.
    pub http: reqwest::Client,
    /// The name of the service in the counts.
    pub service: &'static str,
    /// The counts of the requests.
    pub counts: Arc<Counts>,
}

#[async_trait]
impl HttpClient for CountingTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        self.counts.note_request(self.service, name_of(request));
        let answer = self.prepare(request)?.send().await.map_err(not_answered)?;
        let status = StatusCode::try_from(answer.status().as_u16())
            .map_err(|_| unfit("the answer has an unknown status"))?;
        let headers = headers_of(&answer);
        let body = answer.bytes().await.map_err(not_answered)?;
        Ok(Response::new(status, headers, Box::pin(BytesStream::new(body))))
    }
}

impl CountingTransport {
    fn prepare(&self, request: &Request) -> azure_core::Result<reqwest::RequestBuilder> {
        let method = reqwest::Method::from_bytes(request.method().as_ref().as_bytes())
            .map_err(|_| unfit("the method cannot be sent"))?;
        let Body::Bytes(body) = request.body().clone() else {
            return Err(unfit("streams are not supported"));
        };
        let prepared = self.http.request(method, request.url().clone()).body(body);
        Ok(request
            .headers()
            .iter()
            .fold(prepared, |prepared, (name, value)| prepared.header(name.as_str(), value.as_str())))
    }
}

/// The name of the method in the counts.
fn name_of(request: &Request) -> &'static str {
    match request.method().as_ref() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "MERGE" => "MERGE",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

fn unfit(what: &'static str) -> Error {
    Error::message(ErrorKind::DataConversion, what)
}

fn not_answered(error: reqwest::Error) -> Error {
    Error::new(ErrorKind::Io, error)
}

fn headers_of(answer: &reqwest::Response) -> Headers {
    // The crates read no header that is not text.
    let texts = answer.headers().iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?;
        Some((HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value.to_owned())))
    });
    Headers::from(texts.collect::<HashMap<_, _>>())
}
