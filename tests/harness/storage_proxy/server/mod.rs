//! A proxy in front of one service of Azurite. It reads the whole request before it forwards it, and streams the response. With
//! a fault it reads the whole response, so that it can lose it or return another one.
//!
//! A drawn fault is applied even if the client has disconnected: a late request still writes. [`StorageProxy::until_idle`]
//! returns when no request is in progress.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use actix_web::http::header::HttpDate;
use futures::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use postonce_shared::ports::world::World as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::error_responses::{BUSY, FAILED, ProxiedResponse, StorageError, TIMED_OUT, stale};
use super::pages::{self, Page};
use super::request::{ProxiedRequest, Service};
use super::storage_fault::StorageFault;
use super::{Shared, latency, rules};
use crate::proxy::{listen, runtime};
use crate::wait;

/// Time between the first half of a response and the end of the connection, so that the half is sent.
const HALF_ANSWER_DELAY: Duration = Duration::from_millis(20);
/// Maximum idle time of a connection to Azurite, which closes it after 5 seconds.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);
/// Maximum and default time that the service works on a request ("Setting timeouts for Table service operations"). Blobs may
/// take longer for each megabyte, but those of the bank are small.
const SERVER_TIMEOUT_S: u64 = 30;

/// Error with which the proxy closes the connection.
#[derive(Debug)]
struct ConnectionCut;

impl fmt::Display for ConnectionCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the proxy cuts the connection")
    }
}

impl Error for ConnectionCut {}

/// A running proxy. It stops when it is dropped.
#[derive(Debug)]
pub(super) struct StorageProxy {
    port: u16,
    under_way: Arc<AtomicU32>,
    listener: JoinHandle<()>,
}

/// The state that the connections of a proxy share.
struct ProxyState {
    service: Service,
    target: Authority,
    http: Client<HttpConnector, Full<Bytes>>,
    shared: Arc<Shared>,
    under_way: Arc<AtomicU32>,
}

impl StorageProxy {
    /// Starts a proxy on a free loopback port, in front of the service at a loopback port.
    pub(super) fn before(service: Service, port: u16, shared: &Arc<Shared>) -> Self {
        let (listener, address) = listen();
        let state = ProxyState::new(service, port, shared);
        let under_way = Arc::clone(&state.under_way);
        let listener = runtime().spawn(serve(listener, Arc::new(state)));
        Self { port: address.port(), under_way, listener }
    }

    /// Returns the port on which it listens.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Waits until no request is in progress, including requests whose client is gone.
    pub(super) async fn until_idle(&self) {
        wait::until("the proxy is idle", wait::TIMEOUT, async || {
            match self.under_way.load(Ordering::SeqCst) {
                0 => Ok(()),
                count => Err(format!("{count} requests")),
            }
        })
        .await;
    }
}

impl Drop for StorageProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<ProxyState>) {
    loop {
        // A loopback listener fails only when the process has no file descriptors left, which makes the run fail.
        let Ok((client, _)) = listener.accept().await else { return };
        let state = Arc::clone(&state);
        drop(runtime().spawn(async move {
            drop(client.set_nodelay(true));
            let service = service_fn(|request| answer(Arc::clone(&state), request));
            // An error means that either side closed the connection.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(client), service)
                    .await,
            );
        }));
    }
}

type Body = UnsyncBoxBody<Bytes, ConnectionCut>;
type Answer = Result<Response<Body>, ConnectionCut>;

async fn answer(state: Arc<ProxyState>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| ConnectionCut)?.to_bytes();
    let target = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let request = ProxiedRequest { method: head.method, target, headers: head.headers, body };
    state.under_way.fetch_add(1, Ordering::SeqCst);
    // A separate task, so that the fault is applied even if the connection ends first.
    let work = runtime().spawn(async move {
        let answer = state.handle(request).await;
        state.under_way.fetch_sub(1, Ordering::SeqCst);
        answer
    });
    work.await.unwrap_or(Err(ConnectionCut))
}

impl ProxyState {
    fn new(service: Service, port: u16, shared: &Arc<Shared>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME_MAX)
            .build(connector);
        let target = Authority::try_from(format!("127.0.0.1:{port}")).expect("a host and a port");
        Self { service, target, http, shared: Arc::clone(shared), under_way: Arc::default() }
    }

    /// Responds to a request as the service would, with the rules and limits of Azure.
    async fn handle(&self, mut request: ProxiedRequest) -> Answer {
        let shared = &*self.shared;
        let fault = shared.faults.draw(self.service, request.traits());
        if shared.has_latency {
            // Drawn before the wait, so that the lock is not held during it.
            let latency = latency::draw(&mut shared.rng.lock());
            wait::pass(latency).await;
        }
        let cost = match rules::check(self.service, &request, shared.world.now()) {
            Ok(cost) => cost,
            Err(refusal) => {
                shared.refused.lock().push(refusal.finding(&request));
                return Ok(whole(refusal.response(self.service)));
            }
        };
        if !shared.rates.lock().admit(cost, shared.world.uptime().as_secs()) {
            return Ok(whole(self.busy()));
        }
        let is_query = request.method == Method::GET && request.target.path().ends_with("()");
        if self.service == Service::Table && is_query {
            match pages::draw(&request.target, &mut shared.rng.lock()) {
                Page::Empty(response) => return Ok(whole(response)),
                Page::Forward(target) => request.target = target,
            }
        }
        self.apply(&request, fault).await
    }

    /// Sets the date of a response to the clock that the test has set.
    fn set_clock(&self, headers: &mut HeaderMap) {
        let behind = Duration::from_secs(self.shared.clock_behind_s.load(Ordering::Relaxed).into());
        if !behind.is_zero() {
            let now = u64::try_from(self.shared.world.now().unix_ms()).expect("a time after 1970");
            let at = UNIX_EPOCH.checked_add(Duration::from_millis(now).saturating_sub(behind));
            let date = HttpDate::from(at.expect("a time")).to_string();
            headers.insert(DATE, date.try_into().expect("a date is a value"));
        }
    }

    fn busy(&self) -> ProxiedResponse {
        let mut response = BUSY.response(self.service);
        response.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// Applies a fault to a request.
    async fn apply(&self, request: &ProxiedRequest, fault: Option<StorageFault>) -> Answer {
        let faults = &self.shared.faults;
        let Some(fault) = fault else { return self.send(request).await };
        wait::pass(faults.wait_before(fault)).await;
        let error = |error: StorageError| Ok(whole(error.response(self.service)));
        let answer = match fault {
            StorageFault::CutBefore => Err(ConnectionCut),
            StorageFault::Failed => error(FAILED),
            StorageFault::Busy => Ok(whole(self.busy())),
            StorageFault::Refused => Ok(whole(stale(self.service, request.is_batch()))),
            StorageFault::Delayed | StorageFault::Late => Ok(whole(self.forward(request).await?)),
            StorageFault::FailedAfter => {
                self.forward(request).await?;
                error(FAILED)
            }
            StorageFault::BusyAfter => {
                self.forward(request).await?;
                Ok(whole(self.busy()))
            }
            StorageFault::Repeated => {
                self.forward(request).await?;
                Ok(whole(self.forward(request).await?))
            }
            StorageFault::AnswerLost => {
                self.forward(request).await?;
                Err(ConnectionCut)
            }
            StorageFault::CutWithin => {
                let response = self.forward(request).await?;
                if response.body.len() < 2 {
                    // The body is too short to be cut.
                    faults.count(StorageFault::AnswerLost);
                    return Err(ConnectionCut);
                }
                Ok(half(response))
            }
        };
        // Counted last, because a request that failed on the way to the service was not executed.
        faults.count(fault);
        answer
    }

    /// Sends a request, and returns the complete response.
    async fn forward(&self, request: &ProxiedRequest) -> Result<ProxiedResponse, ConnectionCut> {
        let (head, body) = self.send(request).await?.into_parts();
        let mut headers = head.headers;
        headers.remove(CONTENT_LENGTH);
        let body = body.collect().await.map_err(|_| ConnectionCut)?.to_bytes();
        Ok(ProxiedResponse { status: head.status, headers, body })
    }

    /// Sends a request, and returns the response when it begins.
    async fn send(&self, request: &ProxiedRequest) -> Answer {
        let target = Uri::builder().scheme(Scheme::HTTP).authority(self.target.clone());
        let target = target.path_and_query(request.target.clone()).build().expect("parts of a URL are one");
        let mut sent = Request::new(Full::new(request.body.clone()));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = target;
        sent.headers_mut().clone_from(&request.headers);
        sent.headers_mut().remove(CONNECTION);
        let asked = request.parameter("timeout").and_then(|seconds| seconds.parse().ok());
        let timeout = Duration::from_secs(asked.unwrap_or(SERVER_TIMEOUT_S).min(SERVER_TIMEOUT_S));
        match tokio::time::timeout(timeout, self.http.request(sent)).await {
            Ok(response) => {
                let mut response = response.map_err(|_| ConnectionCut)?;
                response.headers_mut().remove(CONNECTION);
                response.headers_mut().remove(TRANSFER_ENCODING);
                self.set_clock(response.headers_mut());
                Ok(response.map(|body| UnsyncBoxBody::new(body.map_err(|_| ConnectionCut))))
            }
            Err(_) => Ok(whole(TIMED_OUT.response(self.service))),
        }
    }
}

fn whole(response: ProxiedResponse) -> Response<Body> {
    let body = Full::new(response.body).map_err(|never: Infallible| match never {});
    respond(response.status, response.headers, UnsyncBoxBody::new(body))
}

/// Returns a response with half of the body, after which the connection is closed.
fn half(response: ProxiedResponse) -> Response<Body> {
    let ProxiedResponse { status, mut headers, body } = response;
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let first = body.slice(..body.len().div_euclid(2));
    let end = futures::stream::once(async {
        wait::pass(HALF_ANSWER_DELAY).await;
        Err(ConnectionCut)
    });
    let frames = futures::stream::once(async move { Ok(Frame::data(first)) }).chain(end);
    respond(status, headers, UnsyncBoxBody::new(StreamBody::new(frames)))
}

fn respond(status: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests;
