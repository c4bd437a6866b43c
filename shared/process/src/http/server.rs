//! The HTTP server of a worker process.

use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpMessage as _, HttpService, Protocol, Request, Response};
use actix_server::GracefulShutdownSignal;
use actix_service::{
    IntoServiceFactory as _, Service as _, ServiceFactoryExt as _, apply_fn_factory, fn_service, map_config,
};
use actix_tls::accept::rustls_0_23::reexports::ServerConfig;
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_tls::accept::{TlsError, max_concurrent_tls_connect};
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions, Server, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::{Data, ServiceConfig, get};
use actix_web::{App, Error, HttpRequest, HttpResponse};
use futures::FutureExt as _;
use postonce_shared::config::{HttpLimits, TrustedProxies};
use postonce_shared::ports::world::World;
use serde_json::{Value, json};

use super::client_socket::ClientSocket;
use super::connections::{ClientOfRequest, Connection, ConnectionLimits, Connections, RESERVED};
use super::processor_shares::{Part, ProcessorShares, Shared};
use super::transport::Transport;
use super::{PeerRequestError, PeerState, configure, metrics_format, track_request};
use crate::build;
use crate::meter::Meter;
use crate::metrics::ProcessMetrics;
use crate::readiness::{MissingPart, Readiness};

/// Log target of the HTTP server library, which logs the start and stop of its threads.
pub const LIBRARY_LOG_TARGET: &str = "actix_server";

/// Time limit for receiving the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which an idle connection is kept; longer than the HTTP clients of other processes keep theirs.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Time limit of a TLS handshake; the limit for the request head applies if it is shorter.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the shutdown of a connection by the client.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Buffered bytes of a response over HTTP/1.1 above which the buffer is sent before another piece is added. The value is so
/// small that a buffer contains at most one large piece.
const WRITE_BUFFER_BYTES: usize = 1024;
/// HTTP/2 flow control window of a request body: bytes that a client may send before they are read.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// HTTP/2 flow control window of a connection, for all its request bodies together.
const CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;
/// Maximum number of connections from other processes of the bank and from monitoring.
const CONNECTIONS_MAX: usize = 512;
/// Blocking threads of each HTTP thread: more than the batch documents that are read at the same time.
const BLOCKING_THREADS_MAX: usize = 64;
/// Time in seconds for which requests in progress may continue after the server is stopped.
const DRAIN_S: u64 = 1;

/// The service factory of an application.
pub trait Application:
    ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<<Self as Application>::Body>,
        Error = Error,
        InitError = (),
    > + 'static
{
    /// Type of the response bodies.
    type Body: MessageBody + 'static;
}

impl<T, B> Application for T
where
    T: ServiceFactory<
            ServiceRequest,
            Config = (),
            Response = ServiceResponse<B>,
            Error = Error,
            InitError = (),
        > + 'static,
    B: MessageBody + 'static,
{
    type Body = B;
}

/// A connection, its protocol, and the address of its client.
type Accepted = (Transport, Protocol, Option<SocketAddr>);

/// State of the server of a worker process.
pub struct WorkerApp {
    /// State for requests of other processes.
    pub callee: PeerState,
    /// The metrics of the process.
    pub metrics: ProcessMetrics,
}

/// State from which readiness is reported.
struct HealthState {
    readiness: Arc<Readiness>,
    meter: Arc<Meter>,
}

/// Starts the server of a worker process on a bound address. The caller awaits it, and stops it through its handle.
///
/// # Errors
/// Fails if the server cannot listen on the address.
pub fn serve(app: WorkerApp, listener: TcpListener) -> std::io::Result<Server> {
    let WorkerApp { callee, metrics } = app;
    let metrics = Data::new(metrics);
    let (meter, readiness) = (Arc::clone(&callee.meter), Arc::clone(&callee.readiness));
    let health = Data::new(HealthState { readiness, meter });
    let routes = move |config: &mut ServiceConfig| {
        config.app_data(Data::clone(&health)).app_data(Data::clone(&metrics));
        config.route("/livez", get().to(livez)).route("/readyz", get().to(readyz));
        config.route("/metrics", get().to(text_of_metrics)).default_service(actix_web::web::to(not_found));
    };
    serve_with(callee, routes, listener)
}

/// Serves only the requests of other processes on a bound address: for a process whose main server is for partners. The caller
/// awaits the returned server, and stops it through its handle.
///
/// # Errors
/// Fails if the server cannot listen on the address.
pub fn serve_peers(callee: PeerState, listener: TcpListener) -> std::io::Result<Server> {
    let routes = |config: &mut ServiceConfig| {
        config.default_service(actix_web::web::to(not_for_partners));
    };
    serve_with(callee, routes, listener)
}

/// Serves the routes for other processes of the bank, and `routes`.
fn serve_with(
    callee: PeerState,
    routes: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    listener: TcpListener,
) -> std::io::Result<Server> {
    let (world, callee) = (Arc::clone(&callee.world), Data::new(callee));
    let app = move || {
        App::new()
            .app_data(Data::clone(&callee))
            .configure(configure)
            .configure(&routes)
            .wrap(from_fn(track_request))
    };
    let limits = HttpLimits {
        head_timeout: HEAD_TIMEOUT,
        keep_alive: KEEP_ALIVE,
        connections_max: CONNECTIONS_MAX,
        ..HttpLimits::default()
    };
    // One thread is enough for few small requests; the cores are left to posting.
    start(app, &world, &limits, 1, DRAIN_S, listener, (None, Arc::default()))
}

/// Starts an HTTP server on a bound address, with TLS if it is configured. Its `threads` share the connections. When the server
/// stops, requests in progress have `drain_s` seconds to end. The caller awaits the returned server, and stops it through its
/// handle; it ignores signals.
///
/// # Errors
/// Fails if the server cannot listen on the address.
pub fn start<T: Application>(
    app: impl Fn() -> App<T> + Clone + Send + 'static,
    world: &Arc<dyn World>,
    limits: &HttpLimits,
    threads: usize,
    drain_s: u64,
    listener: TcpListener,
    (tls, trusted_proxies): (Option<ServerConfig>, Arc<TrustedProxies>),
) -> std::io::Result<Server> {
    let HttpLimits { head_timeout, keep_alive, connections_max, .. } = *limits;
    let connection_limits = ConnectionLimits {
        idle_max: keep_alive.saturating_add(head_timeout),
        open_max: connections_max,
        per_address_max: limits.connections_of_address(),
        trusted_proxies,
    };
    let connections = Connections::new(Arc::clone(world), connection_limits);
    world.spawn(Arc::clone(&connections).watch().boxed());
    // The framework must accept connections beyond the limit, so that older ones can be closed for them. Each thread has its
    // own limit, and connections are not distributed evenly.
    let connections_max = connections_max.saturating_add(RESERVED.saturating_mul(2));
    let server = actix_server::Server::build()
        .workers(threads)
        .worker_max_blocking_threads(BLOCKING_THREADS_MAX)
        .max_concurrent_connections(connections_max)
        .shutdown_timeout(drain_s)
        .disable_signals();
    let name = format!("http-{}", listener.local_addr()?);
    let (limits, ending) = (*limits, server.graceful_shutdown_signal());
    let http =
        move |shares: &Rc<ProcessorShares>| http_service(app(), limits, ending.clone(), Rc::clone(shares));
    let server = match tls {
        Some(mut tls) => {
            tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            // Allow as many handshakes as connections, so that unfinished handshakes delay no other client. The library has one
            // such limit per process, so servers without TLS must not set it.
            max_concurrent_tls_connect(connections_max);
            let handshake_timeout = head_timeout.min(HANDSHAKE_TIMEOUT);
            server.listen(name, listener, move || {
                let mut acceptor = Acceptor::new(tls.clone());
                acceptor.set_handshake_timeout(handshake_timeout);
                let over_tls = |stream: TlsStream<ClientSocket>| ready(Ok(accepted(Transport::tls(stream))));
                let acceptor = acceptor.map_err(TlsError::into_service_error);
                let shares = Rc::default();
                let service = acceptor.and_then(over_tls).and_then(http(&shares).map_err(TlsError::Service));
                accepting(Arc::clone(&connections), shares, service, |error| TlsError::Service(error.into()))
            })?
        }
        None => server.listen(name, listener, move || {
            let plain = |socket: ClientSocket| ready(Ok(accepted(Transport::plain(socket))));
            let shares = Rc::default();
            let service = fn_service(plain).and_then(http(&shares));
            accepting(Arc::clone(&connections), shares, service, DispatchError::from)
        })?,
    };
    Ok(server.run())
}

/// Accepts connections within the limits, and charges the work of each to the processor share of its client.
fn accepting<S: ServiceFactory<ClientSocket>>(
    connections: Arc<Connections>,
    shares: Rc<ProcessorShares>,
    service: S,
    refused: impl Fn(io::Error) -> S::Error + Copy,
) -> impl ServiceFactory<
    TcpStream,
    Config = S::Config,
    Response = S::Response,
    Error = S::Error,
    InitError = S::InitError,
> {
    apply_fn_factory(service, move |stream: TcpStream, service: &S::Service| {
        let served = connections.register(&stream).map(|connection| {
            let socket = ClientSocket::new(stream, Arc::clone(&connection));
            let part = Part::new(connection, Rc::clone(&shares));
            Shared::new(service.call(socket), Some(part))
        });
        async move {
            match served {
                Ok(served) => served.await,
                Err(error) => Err(refused(error)),
            }
        }
    })
}

/// Returns the HTTP service of a thread. It serves HTTP/2 on connections that negotiated it in the TLS handshake, and HTTP/1.1
/// on all others; a plain connection cannot upgrade to HTTP/2.
fn http_service<T: Application>(
    app: App<T>,
    limits: HttpLimits,
    ending: GracefulShutdownSignal,
    shares: Rc<ProcessorShares>,
) -> impl ServiceFactory<Accepted, Config = (), Response = (), Error = DispatchError, InitError = ()> {
    let signal = move || {
        let ending = ending.clone();
        async move { ending.notified().await }
    };
    HttpService::build()
        .graceful_shutdown_signal(signal)
        .keep_alive(limits.keep_alive)
        .client_request_timeout(limits.head_timeout)
        .client_disconnect_timeout(DISCONNECT_TIMEOUT)
        .h1_write_buffer_size(WRITE_BUFFER_BYTES)
        .h2_initial_window_size(STREAM_WINDOW_BYTES)
        .h2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .on_connect_ext(|transport: &Transport, data: &mut Extensions| {
            data.insert(Arc::clone(transport.connection()));
        })
        .finish(within_shares(app, shares))
}

/// Returns the service of an application. The work for a request over HTTP/2 is charged to the processor share of its client.
fn within_shares<T: Application>(
    app: App<T>,
    shares: Rc<ProcessorShares>,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = Response<impl MessageBody>,
    Error = HttpResponse,
    InitError = (),
> {
    let app = map_config(app.into_factory(), |()| AppConfig::default());
    let within_shares = apply_fn_factory(app, move |request: Request, service| {
        let connection = request.conn_data::<Arc<Connection>>();
        let client = connection.and_then(|of| ClientOfRequest::of(request.version(), of));
        let part = || {
            let (client, connection) = client.as_ref().zip(connection)?;
            Some(Part::of_request(client.clone(), Arc::clone(connection), Rc::clone(&shares)))
        };
        let (of_request, of_answer) = (part(), part());
        if let Some(client) = client {
            request.extensions_mut().insert(client);
        }
        let answer = Shared::new(service.call(request), of_request);
        async move {
            let answer = Response::from(answer.await?);
            Ok(answer.map_body(|_, body| Shared::new(body, of_answer)))
        }
    });
    within_shares.map_err(|error: Error| error.error_response())
}

/// Returns the input of the HTTP service for a connection.
fn accepted(transport: Transport) -> Accepted {
    let protocol = if transport.is_http2() { Protocol::Http2 } else { Protocol::Http1 };
    let client = transport.peer_address();
    (transport, protocol, client)
}

async fn not_for_partners() -> Result<HttpResponse, PeerRequestError> {
    Err(PeerRequestError::new(StatusCode::NOT_FOUND, "This address only serves other processes of the bank."))
}

async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "ok", "version": build::VERSION, "commit": build::COMMIT }))
}

async fn readyz(health: Data<HealthState>) -> HttpResponse {
    let missing = health.readiness.missing();
    let (status, mut body) = if missing.is_empty() {
        (StatusCode::OK, json!({ "status": "ok" }))
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, unavailable(&missing))
    };
    let oldest = health.meter.scrubber.report().and_then(|report| report.oldest_accepted_at);
    if let Some(oldest) = oldest {
        body["oldest_accepted_at"] = json!(oldest.to_string());
    }
    HttpResponse::build(status).json(body)
}

fn unavailable(missing: &[MissingPart]) -> Value {
    let codes: Vec<&str> = missing.iter().map(|missing| missing.part.code()).collect();
    let reason = |MissingPart { part, since, reason }: &MissingPart| json!({ "part": part.code(), "reason": reason, "since": since.to_string() });
    let reasons: Vec<Value> = missing.iter().map(reason).collect();
    json!({ "status": "unavailable", "missing": codes, "reasons": reasons })
}

async fn text_of_metrics(
    request: HttpRequest,
    metrics: Data<ProcessMetrics>,
) -> Result<HttpResponse, PeerRequestError> {
    let failed =
        |_| PeerRequestError::new(StatusCode::INTERNAL_SERVER_ERROR, "The metrics could not be encoded.");
    let format = metrics_format(&request);
    Ok(HttpResponse::Ok().content_type(format.content_type()).body(metrics.encode(format).map_err(failed)?))
}

async fn not_found() -> Result<HttpResponse, PeerRequestError> {
    Err(PeerRequestError::new(StatusCode::NOT_FOUND, "A worker has /livez, /readyz and /metrics."))
}
