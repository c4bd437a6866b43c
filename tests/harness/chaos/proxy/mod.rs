//! A proxy in front of one service of Azurite that understands HTTP: it has the whole request before
//! it forwards it, and the whole answer before it passes it on, so that it can lose either of them, or
//! answer otherwise than the service did.
//!
//! What was decided is done, also when whoever asked has gone: a request that was forwarded late still
//! writes. [`RoughProxy::until_quiet`] returns when nothing is under way.

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

use super::invented;
use super::mishap::{Dice, Mishap, Traits};
use crate::proxy::runtime;
use crate::wait;

/// Between the first half of an answer and the end of the connection, so that the half is sent.
const HALFWAY: Duration = Duration::from_millis(20);
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
    /// For a summary.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
            Self::Blob => "blob",
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A whole request.
#[derive(Debug, Clone)]
struct Asked {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// The connection is cut.
#[derive(Debug)]
struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the proxy cuts the connection")
    }
}

impl Error for Cut {}

/// A running proxy. It ends with its owner.
#[derive(Debug)]
pub struct RoughProxy {
    port: u16,
    underway: Arc<AtomicU32>,
    listener: JoinHandle<()>,
}

/// What every connection of a proxy needs.
struct Desk {
    service: Service,
    target: SocketAddr,
    http: reqwest::Client,
    dice: Arc<Dice>,
    underway: Arc<AtomicU32>,
}

impl RoughProxy {
    /// A proxy on a free loopback port, in front of the service at a loopback port.
    pub fn before(service: Service, port: u16, dice: &Arc<Dice>) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port on loopback");
        listener.set_nonblocking(true).expect("a listener can be made to not block");
        let port_here = listener.local_addr().expect("a listener has an address").port();
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client without special wishes");
        let underway: Arc<AtomicU32> = Arc::default();
        let desk = Desk {
            service,
            target: SocketAddr::from(([127, 0, 0, 1], port)),
            http,
            dice: Arc::clone(dice),
            underway: Arc::clone(&underway),
        };
        let listener = {
            let _entered = runtime().enter();
            TcpListener::from_std(listener).expect("a listener for the runtime")
        };
        let listener = runtime().spawn(serve(listener, Arc::new(desk)));
        Self { port: port_here, underway, listener }
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Waits until no request is under way, not even one that nobody waits for.
    pub async fn until_quiet(&self) {
        wait::until("the proxy has nothing under way", wait::PATIENCE, async || {
            match self.underway.load(Ordering::SeqCst) {
                0 => Ok(()),
                count => Err(format!("{count} requests")),
            }
        })
        .await;
    }
}

impl Drop for RoughProxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    loop {
        // A listener on loopback fails only when the process runs out of files; the run shows it.
        let Ok((client, _)) = listener.accept().await else { return };
        let desk = Arc::clone(&desk);
        drop(runtime().spawn(async move {
            drop(client.set_nodelay(true));
            let service = service_fn(|request| answer(Arc::clone(&desk), request));
            // An error is a cut connection, by whichever side.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(client), service)
                    .await,
            );
        }));
    }
}

type Body = UnsyncBoxBody<Bytes, Cut>;

async fn answer(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let asked = Asked { method: head.method, path, headers: head.headers, body };
    let mishap = desk.dice.roll(desk.service, asked.traits());
    desk.underway.fetch_add(1, Ordering::SeqCst);
    // A task of its own: what was decided is done, also when the connection ends before.
    let work = runtime().spawn(async move {
        let answer = desk.befall(&asked, mishap).await;
        desk.underway.fetch_sub(1, Ordering::SeqCst);
        answer
    });
    work.await.unwrap_or(Err(Cut))
}

impl Asked {
    fn is_batch(&self) -> bool {
        self.path.contains("/$batch")
    }

    fn traits(&self) -> Traits {
        let conditional = if self.is_batch() {
            let condition = b"If-Match:";
            self.body.windows(condition.len()).any(|bytes| bytes.eq_ignore_ascii_case(condition))
        } else {
            self.headers.get(IF_MATCH).is_some_and(|condition| condition != "*")
        };
        Traits { writes: self.method != Method::GET, conditional }
    }
}

impl Desk {
    /// Does to a request what was decided about it.
    async fn befall(&self, asked: &Asked, mishap: Option<Mishap>) -> Result<Response<Body>, Cut> {
        wait::pass(self.dice.wait_before(mishap)).await;
        let Some(mishap) = mishap else { return self.forward(asked).await.map(whole) };
        let error = |status| invented::error(self.service, status);
        let answer = match mishap {
            Mishap::CutBefore => Err(Cut),
            Mishap::Failed => Ok(whole(error(StatusCode::INTERNAL_SERVER_ERROR))),
            Mishap::Busy => Ok(whole(error(StatusCode::SERVICE_UNAVAILABLE))),
            Mishap::Refused => Ok(whole(invented::stale(self.service, asked.is_batch()))),
            Mishap::Delayed | Mishap::Late => Ok(whole(self.forward(asked).await?)),
            Mishap::FailedAfter => {
                self.forward(asked).await?;
                Ok(whole(error(StatusCode::INTERNAL_SERVER_ERROR)))
            }
            Mishap::BusyAfter => {
                self.forward(asked).await?;
                Ok(whole(error(StatusCode::SERVICE_UNAVAILABLE)))
            }
            Mishap::Repeated => {
                self.forward(asked).await?;
                Ok(whole(self.forward(asked).await?))
            }
            Mishap::AnswerLost => {
                self.forward(asked).await?;
                Err(Cut)
            }
            Mishap::CutWithin => {
                let answered = self.forward(asked).await?;
                if answered.body.len() < 2 {
                    // There is no middle.
                    self.dice.note(Mishap::AnswerLost);
                    return Err(Cut);
                }
                Ok(half(answered))
            }
        };
        // Only here: what failed on its way to the service was not done.
        self.dice.note(mishap);
        answer
    }

    async fn forward(&self, asked: &Asked) -> Result<Answered, Cut> {
        let url = format!("http://{}{}", self.target, asked.path);
        let mut headers = asked.headers.clone();
        headers.remove(CONNECTION);
        headers.remove(TRANSFER_ENCODING);
        let request = self.http.request(asked.method.clone(), url).headers(headers).body(asked.body.clone());
        let response = request.send().await.map_err(|_| Cut)?;
        let (status, mut headers) = (response.status(), response.headers().clone());
        headers.remove(CONNECTION);
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
        let body = response.bytes().await.map_err(|_| Cut)?;
        Ok(Answered { status, headers, body })
    }
}

fn whole(answered: Answered) -> Response<Body> {
    let body = Full::new(answered.body).map_err(|never: Infallible| match never {});
    respond(answered.status, answered.headers, UnsyncBoxBody::new(body))
}

/// The head of the answer and half of its body; then the connection is cut.
fn half(answered: Answered) -> Response<Body> {
    let Answered { status, mut headers, body } = answered;
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let first = body.slice(..body.len().div_euclid(2));
    let end = futures::stream::once(async {
        wait::pass(HALFWAY).await;
        Err(Cut)
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
