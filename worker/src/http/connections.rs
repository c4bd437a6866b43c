//! Connections on which nothing is asked: whoever holds one has to ask now and then, or loses it.
//!
//! The framework limits how long the first head of a connection may take, and how long a connection is
//! idle; but one byte of a second head ends the idleness, and then nothing would ever end the wait for the
//! rest. So each server also looks at its connections from outside, and hangs up on those that have no
//! request in hand and had none for longer than an idle connection is kept.
//!
//! A body in chunks has no announced end, and the framework reads on to it after the answer, so that the
//! connection can be kept: who sends one has to come with the next request soon.

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

/// Between two looks at all connections.
const LOOK_DELAY: Duration = Duration::from_secs(1);
/// How long a connection is kept after an answer to a body in chunks: time to read the answer.
const AFTER_CHUNKS: Duration = Duration::from_secs(2);

/// The connections of one server.
pub struct Connections {
    world: Arc<dyn World>,
    idle_max: Duration,
    open: Mutex<Vec<Weak<Connection>>>,
}

/// One connection; the server lets go of it when the connection ends.
struct Connection {
    /// The same socket once more, to hang up.
    socket: TcpStream,
    world: Arc<dyn World>,
    use_of_it: Mutex<Use>,
}

#[derive(Debug, Clone, Copy)]
struct Use {
    requests_in_hand: u32,
    /// When there was a request in hand last.
    since: Duration,
    /// How long there need not be another.
    idle_max: Duration,
}

impl Connections {
    /// No connection yet. One without a request for longer than `idle_max` is ended.
    pub fn new(world: Arc<dyn World>, idle_max: Duration) -> Arc<Self> {
        Arc::new(Self { world, idle_max, open: Mutex::default() })
    }

    /// Takes note of a new connection: for `HttpServer::on_connect`.
    pub fn admit(&self, stream: &dyn Any, data: &mut Extensions) {
        let Some(stream) = socket_of(stream) else { return };
        // Where the process may open nothing more, the connection stays without a watch.
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else { return };
        let (since, idle_max) = (self.world.uptime(), self.idle_max);
        let use_of_it = Mutex::new(Use { requests_in_hand: 0, since, idle_max });
        let world = Arc::clone(&self.world);
        let connection = Arc::new(Connection { socket: socket.into(), world, use_of_it });
        self.open.lock().push(Arc::downgrade(&connection));
        data.insert(connection);
    }

    /// Looks at the connections for as long as the server exists.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.world.sleep(LOOK_DELAY).await;
            self.hang_up_on_idle_ones();
        }
    }

    fn hang_up_on_idle_ones(&self) {
        let now = self.world.uptime();
        let mut open = self.open.lock();
        open.retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let is_idle = connection.is_idle(now);
            if is_idle {
                // It may have ended by itself in this moment.
                let _gone = connection.socket.shutdown(Shutdown::Both);
            }
            !is_idle
        });
    }
}

/// The socket below a connection, with or without TLS.
fn socket_of(stream: &dyn Any) -> Option<&TokioStream> {
    let tls = || stream.downcast_ref::<TlsStream<TokioStream>>().map(|tls| tls.get_ref().0);
    stream.downcast_ref::<TokioStream>().or_else(tls)
}

impl Connection {
    fn change(&self, change: impl FnOnce(&mut Use)) {
        change(&mut self.use_of_it.lock());
    }

    fn is_idle(&self, now: Duration) -> bool {
        let Use { requests_in_hand, since, idle_max } = *self.use_of_it.lock();
        requests_in_hand == 0 && now.saturating_sub(since) > idle_max
    }
}

/// A request in hand, until it is dropped: also when its client went away.
struct InHand(Arc<Connection>);

impl InHand {
    fn on(connection: Arc<Connection>, is_in_chunks: bool) -> Self {
        connection.change(|it| {
            it.requests_in_hand = it.requests_in_hand.saturating_add(1);
            if is_in_chunks {
                it.idle_max = it.idle_max.min(AFTER_CHUNKS);
            }
        });
        Self(connection)
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let now = self.0.world.uptime();
        self.0.change(|it| {
            it.requests_in_hand = it.requests_in_hand.saturating_sub(1);
            it.since = now;
        });
    }
}

/// Around every request: its connection is in use.
///
/// # Errors
/// Those of what is around.
pub async fn attend<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let is_in_chunks = request.headers().contains_key(TRANSFER_ENCODING);
    let connection = request.conn_data::<Arc<Connection>>().cloned();
    let _in_hand = connection.map(|connection| InHand::on(connection, is_in_chunks));
    next.call(request).await
}
