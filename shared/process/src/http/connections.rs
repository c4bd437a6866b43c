//! Bounds the connections of a server, and the time for which a client can hold one without using it.
//!
//! **Number.** An address may have a part of all connections. If the server or an address has its maximum, a connection is closed
//! to make room: the oldest one whose client has shown no valid key ([`note_known`]) within [`STRANGER_TIME`], whether it is slow with
//! its head, with its body or in reading its answer; else the one that has been without a request for the longest time; else the
//! oldest one without a valid key. So nobody without a key can hold all connections. If all have requests of known clients in
//! progress, a few more are accepted, for the requests of operators and probes; the others are closed. A connection counts from the
//! moment it is accepted, also during its TLS handshake.
//!
//! **Time without a request.** The framework limits the time of the first request head, and the time for which a connection is
//! idle. However, one byte of a second head ends the idle time, and then nothing limits the wait for the rest. Therefore each
//! server also checks its connections from outside, and closes those that have no request in progress and had none for longer
//! than the keep-alive time.
//!
//! **Requests over HTTP/2.** Those whose answer is not yet sent count like connections. If there are more, the connection that has
//! not taken an answer for the longest time is closed.
//!
//! **Incomplete heads.** The framework keeps the head of a request until it has arrived completely, and accepts long ones. If all of
//! them together have more than [`HEAD_BYTES_MAX`], the connection with the longest one is closed.
//!
//! **Time without reading.** A client that does not read its answer keeps it in memory: the connection is closed when it has
//! taken no further part of it for [`UNREAD_MAX`].
//!
//! A chunked body has no announced length, and the framework reads the rest of it after the answer, to reuse the
//! connection. A client that sends such a body must send its next request soon.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use actix_http::Version;
use actix_web::{HttpMessage as _, HttpRequest};
use parking_lot::Mutex;
use postonce_shared::access::client_network::client_network;
use postonce_shared::config::TrustedProxies;
use postonce_shared::ports::world::World;

use super::connection_counts::Counts;
use super::in_progress::{InTurn, StreamCounts, Totals};
use super::incomplete_head::IncompleteHead;

/// Time between two checks of all connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which a client may take no further part of its answer.
pub const UNREAD_MAX: Duration = Duration::from_secs(30);
/// The time for which a client without a valid key can use its connection while there is no room for others.
const STRANGER_TIME: Duration = Duration::from_secs(3);
/// Bytes of the heads of all requests that have not arrived completely.
const HEAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Connections beyond the maximum, while all others have requests in progress.
pub const RESERVED: usize = 16;

/// The limits of the connections of one server.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Longest time without a request.
    pub idle_max: Duration,
    /// Maximum number of connections, and of requests over HTTP/2.
    pub open_max: usize,
    /// Maximum number of connections of one client address.
    pub per_address_max: usize,
    /// Proxies, whose connections are those of many clients: they have no maximum of their own, and are not closed to make
    /// room.
    pub trusted_proxies: Arc<TrustedProxies>,
}

/// The connections of one server.
pub struct Connections {
    world: Arc<dyn World>,
    limits: ConnectionLimits,
    open: Mutex<Vec<Weak<Connection>>>,
    /// Held from the look for room until a connection counts, so that threads do not use the same room.
    registering: Mutex<()>,
    /// Locked by connections that end, and therefore never while another lock of this module is held.
    counts: Arc<Mutex<Counts>>,
    totals: Arc<Totals>,
    /// Held while a connection is closed because of its head.
    bounding_heads: Mutex<()>,
}

/// One connection. The server drops it when the connection ends.
pub(super) struct Connection {
    /// A duplicate of the socket, to close it.
    socket: TcpStream,
    address: IpAddr,
    is_of_proxy: bool,
    counts: Arc<Mutex<Counts>>,
    is_closing: AtomicBool,
    /// Whether a request on it had a valid key, session or signature.
    is_known: AtomicBool,
    /// See [`Self::client`].
    client: AtomicU64,
    opened: Duration,
    /// The clock.
    pub(super) world: Arc<dyn World>,
    usage: Mutex<Usage>,
    server: Weak<Connections>,
    totals: Arc<Totals>,
    /// Of a request that has not arrived completely.
    pub(super) head: IncompleteHead,
    /// Over HTTP/2, once that is chosen.
    pub(super) streams: OnceLock<Arc<StreamCounts>>,
    /// The request in progress over HTTP/1.1.
    pub(super) turn: InTurn,
}

/// What speaks for closing a connection to make room, the strongest reason first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dispensable {
    /// Its client is not known, and has had it since this time.
    Stranger(Duration),
    /// It has been without a request since this time.
    Idle(Duration),
    /// Its client is not known, and has had it for a short time.
    NewStranger(Duration),
}

/// The use of a connection.
#[derive(Debug)]
pub(super) struct Usage {
    /// Requests whose answer has not ended.
    pub(super) requests_in_progress: u32,
    /// Time of the last request in progress.
    pub(super) since: Duration,
    /// Longest time without a request.
    pub(super) idle_max: Duration,
    /// When a part of an answer was given to the connection, until the client has taken it: by the number of the answer, as
    /// over HTTP/2 there are several at once.
    pub(super) unread_since: BTreeMap<u64, Duration>,
    /// The number of the next answer.
    pub(super) next_answer: u64,
}

impl Usage {
    const fn new(since: Duration, idle_max: Duration) -> Self {
        Self { requests_in_progress: 0, since, idle_max, unread_since: BTreeMap::new(), next_answer: 0 }
    }
}

impl Connections {
    /// Creates an empty set.
    pub fn new(world: Arc<dyn World>, limits: ConnectionLimits) -> Arc<Self> {
        let (open, registering, counts, totals, bounding_heads) = Default::default();
        Arc::new(Self { world, limits, open, registering, counts, totals, bounding_heads })
    }

    /// Closes a connection if there are too many open streams: among those that do not take answers, the one that has taken none
    /// for the longest time. It is not the one that asks now, whose request is not in progress yet.
    fn bound_streams(&self, asking: &Connection) {
        if self.totals.open_streams.load(Ordering::Relaxed) > self.limits.open_max {
            self.close_first(|it| if ptr::eq(it, asking) { None } else { it.untaken_since() });
        }
    }

    /// Closes the connection with the longest incomplete head, if all of them together are too long.
    fn bound_heads(&self) {
        let is_exceeded = || self.totals.head_bytes.load(Ordering::Relaxed) > HEAD_BYTES_MAX;
        // One thread at a time: several would each close one.
        if is_exceeded()
            && let Some(_bounding) = self.bounding_heads.try_lock()
            && is_exceeded()
        {
            self.close_first(|connection| {
                let bytes = connection.head.bytes();
                (bytes > 0).then_some(Reverse(bytes))
            });
        }
    }

    /// Registers a new connection.
    ///
    /// # Errors
    /// When there is no room, no file descriptor is left to close it later, or the client is gone. The caller closes it.
    pub(super) fn register(self: &Arc<Self>, stream: &tokio::net::TcpStream) -> io::Result<Arc<Connection>> {
        let socket = stream.as_fd().try_clone_to_owned().map(TcpStream::from)?;
        let peer = stream.peer_addr()?.ip();
        let is_of_proxy = self.limits.trusted_proxies.contain(peer);
        let address = client_network(peer);
        let _registering = self.registering.lock();
        if !self.has_room(address, is_of_proxy) {
            return Err(io::Error::other("there are too many connections"));
        }
        self.counts.lock().add(address);
        let opened = self.world.uptime();
        let connection = Arc::new(Connection {
            socket,
            address,
            is_of_proxy,
            counts: Arc::clone(&self.counts),
            is_closing: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            client: AtomicU64::new(number_of(address)),
            opened,
            world: Arc::clone(&self.world),
            usage: Mutex::new(Usage::new(opened, self.limits.idle_max)),
            server: Arc::downgrade(self),
            totals: Arc::clone(&self.totals),
            head: IncompleteHead::of(&self.totals),
            streams: OnceLock::new(),
            turn: InTurn::default(),
        });
        self.open.lock().push(Arc::downgrade(&connection));
        Ok(connection)
    }

    /// Returns whether there is room for a connection of an address, after closing another one if necessary.
    fn has_room(&self, address: IpAddr, is_of_proxy: bool) -> bool {
        let (total, own) = {
            let counts = self.counts.lock();
            (counts.total(), counts.of(address))
        };
        let ConnectionLimits { open_max, per_address_max, .. } = self.limits;
        if !is_of_proxy && own >= per_address_max {
            return self.close_dispensable(|connection| connection.address == address);
        }
        total < open_max
            || self.close_dispensable(|connection| !connection.is_of_proxy)
            || total < open_max.saturating_add(RESERVED)
    }

    /// Closes the connection that can best be done without. Returns false if there is none.
    fn close_dispensable(&self, is_candidate: impl Fn(&Connection) -> bool) -> bool {
        let now = self.world.uptime();
        self.close_first(|connection| is_candidate(connection).then(|| connection.dispensable(now)).flatten())
    }

    /// Closes the connection with the smallest reason to keep it; those without a reason to close them are kept. Returns false if
    /// there is none to close.
    fn close_first<R: Ord>(&self, reason: impl Fn(&Connection) -> Option<R>) -> bool {
        let open: Vec<Arc<Connection>> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        let candidates = open.iter().filter(|it| !it.is_closing.load(Ordering::Relaxed));
        let reasons = candidates.filter_map(|connection| Some((reason(connection)?, connection)));
        let first = reasons.min_by(|(one, _), (other, _)| one.cmp(other));
        first.is_some_and(|(_, connection)| connection.close())
    }

    /// Checks the connections for as long as the server exists.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.world.sleep(CHECK_INTERVAL).await;
            self.close_unused();
        }
    }

    fn close_unused(&self) {
        let now = self.world.uptime();
        let mut open: Vec<Arc<Connection>> = Vec::new();
        self.open.lock().retain(|connection| {
            let connection = connection.upgrade();
            let is_open = connection.is_some();
            open.extend(connection);
            is_open
        });
        for connection in open.into_iter().filter(|connection| connection.is_unused(now)) {
            connection.close();
        }
    }
}

impl Connection {
    /// Returns a number for who uses it: the partner of its last request with a valid key, and before that its address.
    pub(super) fn client(&self) -> u64 {
        self.client.load(Ordering::Relaxed)
    }

    /// Notes a use of the connection.
    pub(super) fn update(&self, update: impl FnOnce(&mut Usage)) {
        update(&mut self.usage.lock());
    }

    /// What is under way on all connections of its server.
    pub(super) const fn totals(&self) -> &Arc<Totals> {
        &self.totals
    }

    /// Bounds the open streams of all connections, after it opened one.
    pub(super) fn bound_streams(&self) {
        if let Some(server) = self.server.upgrade() {
            server.bound_streams(self);
        }
    }

    /// Notes how many bytes have arrived of a head that is not complete, and bounds those of all connections.
    pub(super) fn note_head(&self, bytes: usize) {
        if self.head.note(bytes)
            && let Some(server) = self.server.upgrade()
        {
            server.bound_heads();
        }
    }

    /// Returns when the last request ended, if none is in progress.
    fn idle_since(&self) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.requests_in_progress == 0).then_some(usage.since)
    }

    /// Returns why the connection can be closed to make room; `None` while a request of a known client is in progress.
    fn dispensable(&self, now: Duration) -> Option<Dispensable> {
        let idle = self.idle_since().map(Dispensable::Idle);
        if self.is_known.load(Ordering::Relaxed) {
            return idle;
        }
        if now.saturating_sub(self.opened) >= STRANGER_TIME {
            return Some(Dispensable::Stranger(self.opened));
        }
        idle.or(Some(Dispensable::NewStranger(self.opened)))
    }

    /// Returns a number that is smaller the longer ago the client took an answer, if answers wait for it.
    fn untaken_since(&self) -> Option<u64> {
        let streams = self.streams.get()?;
        let usage = self.usage.lock();
        let in_progress = usize::try_from(usage.requests_in_progress).unwrap_or(usize::MAX);
        let not_answered = in_progress.saturating_sub(usage.unread_since.len());
        (streams.open() > not_answered).then(|| streams.answered_at())
    }

    /// Returns whether the client has had no request, or has taken no part of one of its answers, for too long.
    pub(super) fn is_unused(&self, now: Duration) -> bool {
        let usage = self.usage.lock();
        let is_idle = usage.requests_in_progress == 0 && now.saturating_sub(usage.since) > usage.idle_max;
        is_idle || usage.unread_since.values().any(|since| now.saturating_sub(*since) > UNREAD_MAX)
    }

    /// Closes the connection. Returns false if it is already being closed.
    fn close(&self) -> bool {
        let is_first = self.release();
        if is_first {
            // The client may have closed it at the same moment.
            let _gone = self.socket.shutdown(Shutdown::Both);
            self.head.end();
        }
        is_first
    }

    /// Stops counting the connection, once.
    fn release(&self) -> bool {
        let is_first = !self.is_closing.swap(true, Ordering::Relaxed);
        if is_first {
            self.counts.lock().remove(self.address);
        }
        is_first
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.release();
        self.head.end();
    }
}

/// The number of the client of a request over HTTP/2 ([`Connection::client`]): several with keys of different partners can share a
/// connection.
#[derive(Clone)]
pub(super) struct ClientOfRequest(pub(super) Rc<Cell<u64>>);

impl ClientOfRequest {
    /// The client of a request that has shown no key yet. `None` over HTTP/1.1: the framework makes a task of each request over
    /// HTTP/2 only.
    pub(super) fn of(version: Version, connection: &Connection) -> Option<Self> {
        (version == Version::HTTP_2).then(|| Self(Rc::new(Cell::new(connection.client()))))
    }
}

/// Notes that the client of a request has a valid key, session or signature: its connection is not closed to make room while it has
/// requests in progress, and both use the processor time of that client from now on, such as a partner.
pub fn note_known(request: &HttpRequest, client: impl Hash) {
    let client = number_of(client);
    if let Some(connection) = request.conn_data::<Arc<Connection>>() {
        connection.is_known.store(true, Ordering::Relaxed);
        connection.client.store(client, Ordering::Relaxed);
    }
    if let Some(of_request) = request.extensions().get::<ClientOfRequest>() {
        of_request.0.set(client);
    }
}

fn number_of(client: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
impl Connection {
    /// A connection of a test, which can be idle, or not take a part of an answer, for this time.
    pub(super) fn of_test(idle_max: Duration) -> Arc<Self> {
        use std::net::{Ipv4Addr, TcpListener};

        use postonce_shared::adapters::system::SystemWorld;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Arc::new(Self {
            socket,
            address: Ipv4Addr::LOCALHOST.into(),
            is_of_proxy: false,
            counts: Arc::default(),
            is_closing: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            client: AtomicU64::default(),
            opened: Duration::ZERO,
            world: Arc::new(SystemWorld::new()),
            usage: Mutex::new(Usage::new(Duration::ZERO, idle_max)),
            server: Weak::new(),
            totals: Arc::default(),
            head: IncompleteHead::default(),
            streams: OnceLock::new(),
            turn: InTurn::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_stranger_makes_room_before_all_others() {
        let [stranger, known] = [(); 2].map(|()| Connection::of_test(UNREAD_MAX));
        known.is_known.store(true, Ordering::Relaxed);
        let since = Duration::ZERO;
        assert_eq!(stranger.dispensable(since), Some(Dispensable::Idle(since)));
        for connection in [&stranger, &known] {
            connection.update(|it| it.requests_in_progress = 1);
        }
        assert_eq!(stranger.dispensable(since), Some(Dispensable::NewStranger(since)));
        assert_eq!(stranger.dispensable(STRANGER_TIME), Some(Dispensable::Stranger(since)));
        assert_eq!(known.dispensable(UNREAD_MAX), None);
        assert!(Dispensable::Stranger(UNREAD_MAX) < Dispensable::Idle(since));
        assert!(Dispensable::Idle(UNREAD_MAX) < Dispensable::NewStranger(since));
    }
}
