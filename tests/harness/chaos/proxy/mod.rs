//! An HTTP proxy in front of one service of Azurite. It reads the whole request before it forwards it, and
//! the whole answer before it returns it, so that it can lose either of them, or return another answer.
//!
//! A drawn fault is carried out even if the client has disconnected: a late request still writes.
//! [`FaultProxy::until_idle`] returns when no request is under way.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, IF_MATCH, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::error_responses;
use super::storage_fault::{FaultInjector, RequestTraits, StorageFault};
use crate::proxy::runtime;
use crate::wait;

/// Time between the first half of an answer and the end of the connection, so that the half is sent.
const HALF_ANSWER_DELAY: Duration = Duration::from_millis(20);
/// Azurite closes an idle connection after 5 seconds.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4);

/// A service of Azure Storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Rows.
    Table,
    /// Messages.
    Queue,
    /// Large bodies.
    Blob,
}

impl Service {
    /// A name for summaries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
        }
    }
}

/// A whole response.
#[derive(Debug, Clone)]
pub(super) struct ProxiedResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A whole request.
#[derive(Debug, Clone)]
struct ProxiedRequest {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// The proxy cuts the connection.
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
pub struct FaultProxy {
    port: u16,
    under_way: Arc<AtomicU32>,
    listener: JoinHandle<()>,
}

/// The state that the connections of a proxy share.
struct ProxyState {
    service: Service,
    target: SocketAddr,
    http: reqwest::Client,
    faults: Arc<FaultInjector>,
    under_way: Arc<AtomicU32>,
}

impl FaultProxy {
    /// Starts a proxy on a free loopback port, in front of the service at a loopback port.
    pub fn before(service: Service, port: u16, faults: &Arc<FaultInjector>) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
        listener.set_nonblocking(true).expect("a listener can be made to not block");
        let port_here = listener.local_addr().expect("a listener has an address").port();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client with default settings");
        let under_way: Arc<AtomicU32> = Arc::default();
        let state = ProxyState {
            service,
            target: SocketAddr::from(([127, 0, 0, 1], port)),
            http,
            faults: Arc::clone(faults),
            under_way: Arc::clone(&under_way),
        };
        let listener = {
            let _entered = runtime().enter();
            TcpListener::from_std(listener).expect("a listener for the runtime")
        };
        let listener = runtime().spawn(serve(listener, Arc::new(state)));
        Self { port: port_here, under_way, listener }
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Waits until no request is under way, including those without a client.
    pub async fn until_idle(&self) {
        wait::until("the proxy is idle", wait::TIMEOUT, async || {
            match self.under_way.load(Ordering::SeqCst) {
                0 => Ok(()),
                count => Err(format!("{count} requests")),
            }
        })
        .await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<ProxyState>) {
    loop {
        // A loopback listener fails only when the process has no file descriptors left, which the run
        // shows.
        let Ok((client, _)) = listener.accept().await else { return };
        let state = Arc::clone(&state);
        drop(runtime().spawn(async move {
            drop(client.set_nodelay(true));
            let service = service_fn(|request| answer(Arc::clone(&state), request));
            // An error is a connection that was cut by either side.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(client), service)
                    .await,
            );
        }));
    }
}

type Body = UnsyncBoxBody<Bytes, ConnectionCut>;

async fn answer(state: Arc<ProxyState>, request: Request<Incoming>) -> Result<Response<Body>, ConnectionCut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| ConnectionCut)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let request = ProxiedRequest { method: head.method, path, headers: head.headers, body };
    let fault = state.faults.draw(state.service, request.traits());
    state.under_way.fetch_add(1, Ordering::SeqCst);
    // A separate task: the fault is carried out even if the connection ends first.
    let work = runtime().spawn(async move {
        let answer = state.apply(&request, fault).await;
        state.under_way.fetch_sub(1, Ordering::SeqCst);
        answer
    });
    work.await.unwrap_or(Err(ConnectionCut))
}

impl ProxiedRequest {
    fn is_batch(&self) -> bool {
        self.path.contains("/$batch")
    }

    fn traits(&self) -> RequestTraits {
        let conditional = if self.is_batch() {
            let condition = b"If-Match:";
            self.body.windows(condition.len()).any(|bytes| bytes.eq_ignore_ascii_case(condition))
        } else {
            self.headers.get(IF_MATCH).is_some_and(|condition| condition != "*")
        };
        RequestTraits { writes: self.method != Method::GET, conditional }
    }
}

impl ProxyState {
    /// Applies a fault to a request.
    async fn apply(
        &self,
        request: &ProxiedRequest,
        fault: Option<StorageFault>,
    ) -> Result<Response<Body>, ConnectionCut> {
        wait::pass(self.faults.wait_before(fault)).await;
        let Some(fault) = fault else { return self.forward(request).await.map(whole) };
        let error = |status| error_responses::error(self.service, status);
        let answer = match fault {
            StorageFault::CutBefore => Err(ConnectionCut),
            StorageFault::Failed => Ok(whole(error(StatusCode::INTERNAL_SERVER_ERROR))),
            StorageFault::Busy => Ok(whole(error(StatusCode::SERVICE_UNAVAILABLE))),
            StorageFault::Refused => Ok(whole(error_responses::stale(self.service, request.is_batch()))),
            StorageFault::Delayed | StorageFault::Late => Ok(whole(self.forward(request).await?)),
            StorageFault::FailedAfter => {
                self.forward(request).await?;
                Ok(whole(error(StatusCode::INTERNAL_SERVER_ERROR)))
            }
            StorageFault::BusyAfter => {
                self.forward(request).await?;
                Ok(whole(error(StatusCode::SERVICE_UNAVAILABLE)))
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
                    // The body has no middle.
                    self.faults.count(StorageFault::AnswerLost);
                    return Err(ConnectionCut);
                }
                Ok(half(response))
            }
        };
        // Counted last: a request that failed on the way to the service was not carried out.
        self.faults.count(fault);
        answer
    }

    async fn forward(&self, request: &ProxiedRequest) -> Result<ProxiedResponse, ConnectionCut> {
        let url = format!("http://{}{}", self.target, request.path);
        let mut headers = request.headers.clone();
        headers.remove(CONNECTION);
        headers.remove(TRANSFER_ENCODING);
        let request =
            self.http.request(request.method.clone(), url).headers(headers).body(request.body.clone());
        let response = request.send().await.map_err(|_| ConnectionCut)?;
        let (status, mut headers) = (response.status(), response.headers().clone());
        headers.remove(CONNECTION);
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
        let body = response.bytes().await.map_err(|_| ConnectionCut)?;
        Ok(ProxiedResponse { status, headers, body })
    }
}

fn whole(response: ProxiedResponse) -> Response<Body> {
    let body = Full::new(response.body).map_err(|never: Infallible| match never {});
    respond(response.status, response.headers, UnsyncBoxBody::new(body))
}

/// The head of the response and half of its body; then the connection is cut.
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
