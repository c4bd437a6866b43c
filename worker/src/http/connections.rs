//! Limits the time for which a client can hold a connection without a request.
//!
//! The framework limits the time of the first request head, and the time for which a connection is idle. However, one
//! byte of a second head ends the idle time, and then nothing limits the wait for the rest. Therefore each server
//! also checks its connections from outside, and closes those that have no request in progress and had none for
//! longer than the keep-alive time.
//!
//! A chunked body has no announced length, and the framework reads the rest of it after the answer, to reuse the
//! connection. A client that sends such a body must send its next request soon.

use std::any::Any;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::http::header::TRANSFER_ENCODING;
use actix_web::middleware::Next;
use actix_web::rt::net::TcpStream as TokioStream;
use parking_lot::Mutex;
use postonce_shared::ports::world::World;

/// Time between two checks of all connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Idle time after an answer to a request with a chunked body: enough to read the answer.
const CHUNKED_IDLE_MAX: Duration = Duration::from_secs(2);

/// The connections of one server.
pub struct Connections {
    world: Arc<dyn World>,
    idle_max: Duration,
    open: Mutex<Vec<Weak<Connection>>>,
}

/// One connection. The server drops it when the connection ends.
struct Connection {
    /// A duplicate of the socket, to close it.
    socket: TcpStream,
    world: Arc<dyn World>,
    usage: Mutex<Usage>,
}

#[derive(Debug, Clone, Copy)]
struct Usage {
    requests_in_progress: u32,
    /// Time of the last request in progress.
    since: Duration,
    /// Longest time without a request.
    idle_max: Duration,
}

impl Connections {
    /// Creates an empty set. Connections without a request for longer than `idle_max` are closed.
    pub fn new(world: Arc<dyn World>, idle_max: Duration) -> Arc<Self> {
        Arc::new(Self { world, idle_max, open: Mutex::default() })
    }

    /// Registers a new connection; for `HttpServer::on_connect`.
    pub fn track(&self, stream: &dyn Any, data: &mut Extensions) {
        let Some(stream) = socket_of(stream) else { return };
        // If no file descriptor is left, the connection is not checked.
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else { return };
        let (since, idle_max) = (self.world.uptime(), self.idle_max);
        let usage = Mutex::new(Usage { requests_in_progress: 0, since, idle_max });
        let world = Arc::clone(&self.world);
        let connection = Arc::new(Connection { socket: socket.into(), world, usage });
        self.open.lock().push(Arc::downgrade(&connection));
        data.insert(connection);
    }

    /// Checks the connections for as long as the server exists.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.world.sleep(CHECK_INTERVAL).await;
            self.close_idle();
        }
    }

    fn close_idle(&self) {
        let now = self.world.uptime();
        let mut open = self.open.lock();
        open.retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let is_idle = connection.is_idle(now);
            if is_idle {
                // The client may have closed it at the same moment.
                let _gone = connection.socket.shutdown(Shutdown::Both);
            }
            !is_idle
        });
    }
}

/// Returns the socket of a connection, with or without TLS.
fn socket_of(stream: &dyn Any) -> Option<&TokioStream> {
    let tls = || stream.downcast_ref::<TlsStream<TokioStream>>().map(|tls| tls.get_ref().0);
    stream.downcast_ref::<TokioStream>().or_else(tls)
}

impl Connection {
    fn update(&self, update: impl FnOnce(&mut Usage)) {
        update(&mut self.usage.lock());
    }

    fn is_idle(&self, now: Duration) -> bool {
        let Usage { requests_in_progress, since, idle_max } = *self.usage.lock();
        requests_in_progress == 0 && now.saturating_sub(since) > idle_max
    }
}

/// A request in progress, until it is dropped; it is also dropped when the client disconnects.
struct RequestGuard(Arc<Connection>);

impl RequestGuard {
    fn on(connection: Arc<Connection>, is_chunked: bool) -> Self {
        connection.update(|it| {
            it.requests_in_progress = it.requests_in_progress.saturating_add(1);
            if is_chunked {
                it.idle_max = it.idle_max.min(CHUNKED_IDLE_MAX);
            }
        });
        Self(connection)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let now = self.0.world.uptime();
        self.0.update(|it| {
            it.requests_in_progress = it.requests_in_progress.saturating_sub(1);
            it.since = now;
        });
    }
}

/// Middleware that marks the connection of each request as in use.
///
/// # Errors
/// Those of the wrapped service.
pub async fn track_request<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let is_chunked = request.headers().contains_key(TRANSFER_ENCODING);
    let connection = request.conn_data::<Arc<Connection>>().cloned();
    let _guard = connection.map(|connection| RequestGuard::on(connection, is_chunked));
    next.call(request).await
}
