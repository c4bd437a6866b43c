//! The transport of a connection: its socket, with or without TLS, and limits that the framework lacks.
//!
//! - While the client takes none of the bytes sent to it, nothing is read from it. Otherwise it could send one request after
//!   another, and all responses would wait in memory.
//! - Over HTTP/1.1, a request is handed over only when the previous one is answered ([`turns`]).
//! - Incomplete request heads are counted, so that their total size is bounded.
//! - Over HTTP/2, the number of open streams is bounded, and so are frames that take memory without using credit ([`streams`]).
//! - The kernel buffers only few unsent bytes.

mod fields;
mod frames;
mod framing;
mod streams;
mod turns;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::rt::net::TcpStream;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::streams::{OPEN_MAX, Streams};
use self::turns::Held;
use super::client_socket::ClientSocket;
use super::connections::Connection;
use super::in_progress::InTurn;

/// Unsent bytes that the kernel buffers for a connection (`TCP_NOTSENT_LOWAT`).
const UNSENT_BYTES_MAX: u32 = 64 * 1024;
/// Approximate limit of encrypted bytes of a connection that the kernel has not yet taken. A single write fits.
const ENCRYPTED_BYTES_MAX: usize = 8 * 1024;
/// Maximum size of a read over HTTP/1.1 while the head of a request is awaited. Bytes of later requests are copied and kept.
const HEAD_READ_BYTES: usize = 2 * 1024;
/// The parameter `SETTINGS_MAX_CONCURRENT_STREAMS` (RFC 9113, section 6.5.2).
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
/// ALPN protocol name of HTTP/2 (RFC 9113, section 3.2).
const HTTP2: &[u8] = b"h2";

enum Socket {
    Plain(ClientSocket),
    Tls(Box<TlsStream<ClientSocket>>),
}

impl Socket {
    fn client(&self) -> &ClientSocket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(socket) => socket.get_ref().0,
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Tls(socket) => Pin::new(&mut **socket).poll_read(context, buffer),
        }
    }

    /// The request in progress over HTTP/1.1.
    fn turn(&self) -> &InTurn {
        &self.client().connection().turn
    }
}

/// The transport of one client connection.
pub struct Transport {
    socket: Socket,
    /// Set over HTTP/2 only.
    streams: Option<Streams>,
    /// Used over HTTP/1.1 only.
    held: Held,
    /// Unsent rest of the server's first frame, with the added limit of streams. `None` before the frame was written.
    first: Option<Vec<u8>>,
    /// Whether the last write was blocked because the client takes nothing.
    is_blocked: bool,
    /// The task to wake for a read when writes continue.
    reader: Option<Waker>,
}

impl Transport {
    /// Creates the transport of a connection without TLS, which is always HTTP/1.1.
    pub(super) fn plain(socket: ClientSocket) -> Self {
        Self::over(Socket::Plain(socket), None)
    }

    /// Creates the transport of a TLS connection after the handshake, which has chosen the protocol.
    pub(super) fn tls(mut socket: TlsStream<ClientSocket>) -> Self {
        let (_, session) = socket.get_mut();
        session.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        let is_http2 = session.alpn_protocol() == Some(HTTP2);
        let streams = is_http2.then(|| Streams::new(Arc::clone(socket.get_ref().0.connection().totals())));
        Self::over(Socket::Tls(Box::new(socket)), streams)
    }

    fn over(socket: Socket, streams: Option<Streams>) -> Self {
        let (first, is_blocked, reader) = (None, false, None);
        let connection = socket.client().connection();
        if let Some(streams) = &streams {
            connection.streams.get_or_init(|| Arc::clone(streams.counts()));
        }
        let held = Held::default();
        let transport = Self { socket, streams, held, first, is_blocked, reader };
        if let Err(error) = SockRef::from(transport.tcp()).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
            tracing::debug!("A connection keeps the default of its send buffer: {error}");
        }
        transport
    }

    fn tcp(&self) -> &TcpStream {
        self.socket.client().tcp()
    }

    /// The shared state of the connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.socket.client().connection()
    }

    pub(super) fn peer_address(&self) -> Option<SocketAddr> {
        self.tcp().peer_addr().ok()
    }

    pub(super) const fn is_http2(&self) -> bool {
        self.streams.is_some()
    }

    /// Whether a read has to wait. Over HTTP/1.1, it waits until the request whose head was handed over has begun, or until it
    /// is answered. Over HTTP/2, it waits until earlier requests have begun.
    fn waits(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_blocked {
            self.reader = Some(context.waker().clone());
            return true;
        }
        let Some(streams) = &mut self.streams else {
            return self.held.waits(self.socket.turn(), context.waker());
        };
        let is_paused = streams.takes_pause();
        if is_paused {
            context.waker().wake_by_ref();
        }
        is_paused
    }

    /// Checks the received bytes against the limits of HTTP/2.
    fn check(&mut self, received: &[u8]) -> io::Result<()> {
        let Some(streams) = &mut self.streams else { return Ok(()) };
        match streams.received(received) {
            Ok(has_opened) => {
                let head_bytes = streams.head_bytes();
                self.connection().note_head(head_bytes);
                if has_opened {
                    self.connection().bound_streams();
                }
                Ok(())
            }
            Err(excess) => {
                let client = self.peer_address().map_or_else(String::new, |address| address.ip().to_string());
                tracing::warn!("Closed an HTTP/2 connection of {client}: {excess}");
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, excess))
            }
        }
    }

    fn poll_write_raw(
        &mut self,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match (&mut self.socket, parts) {
            (Socket::Plain(socket), [all]) => Pin::new(socket).poll_write(context, all),
            (Socket::Plain(socket), parts) => Pin::new(socket).poll_write_vectored(context, parts),
            (Socket::Tls(socket), parts) => Pin::new(&mut **socket).poll_write_vectored(context, parts),
        };
        self.is_blocked = written.is_pending();
        if !self.is_blocked
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
        written
    }

    /// Adds the limit of streams to the server's first frame. Returns the original size of the frame, on the first call only.
    fn replace_first(&mut self, parts: &[IoSlice<'_>]) -> usize {
        if self.streams.is_none() || self.first.is_some() {
            return 0;
        }
        let bytes = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
        let streams_max = u32::try_from(OPEN_MAX).unwrap_or(u32::MAX);
        let replaced = frames::with_setting(bytes, MAX_CONCURRENT_STREAMS, streams_max);
        let (first, size) = replaced.unwrap_or_default();
        self.first = Some(first);
        size
    }

    /// Sends the rest of the first frame.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(mut first) = self.first.take_if(|first| !first.is_empty()) {
            let written = self.poll_write_raw(context, &[IoSlice::new(&first)]);
            if let Poll::Ready(Ok(count)) = &written {
                drop(first.drain(..(*count).min(first.len())));
            }
            self.first = Some(first);
            if ready!(written)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.waits(context) {
            return Poll::Pending;
        }
        if !this.held.is_empty() {
            this.held.hand_over(this.socket.turn(), buffer);
            this.connection().note_head(this.held.head_bytes());
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if this.streams.is_some() {
            ready!(this.socket.poll_read(context, buffer))?;
            return Poll::Ready(this.check(buffer.filled().get(before..).unwrap_or_default()));
        }
        if this.held.awaits_head() {
            let count = buffer.remaining().min(HEAD_READ_BYTES);
            let mut first = ReadBuf::new(buffer.initialize_unfilled_to(count));
            ready!(this.socket.poll_read(context, &mut first))?;
            let received = first.filled().len();
            buffer.advance(received);
        } else {
            ready!(this.socket.poll_read(context, buffer))?;
        }
        this.held.cut(this.socket.turn(), buffer, before);
        this.connection().note_head(this.held.head_bytes());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_first(context))?;
        let replaced = this.replace_first(parts);
        let written = if replaced > 0 { replaced } else { ready!(this.poll_write_raw(context, parts))? };
        if let Some(streams) = &mut this.streams {
            let mut left = written;
            for part in parts {
                let sent = part.get(..left.min(part.len())).unwrap_or_default();
                left = left.saturating_sub(sent.len());
                streams.sent(sent);
            }
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_first(context))?;
        match &mut this.socket {
            Socket::Plain(socket) => Pin::new(socket).poll_flush(context),
            Socket::Tls(socket) => Pin::new(&mut **socket).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Tls(socket) => Pin::new(&mut **socket).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::time::Duration;

    use futures::future::{Either, select};
    use postonce_shared::adapters::system::SystemWorld;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::super::connections::{ConnectionLimits, Connections};
    use super::*;

    const FIRST: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82];
    const SECOND: &[u8] = &[0, 0, 1, 1, 5, 0, 0, 0, 3, 0x82];

    #[tokio::test]
    async fn the_connection_that_asks_is_not_closed_for_answers_that_others_do_not_take() {
        let limits = ConnectionLimits {
            idle_max: Duration::from_secs(60),
            open_max: 2,
            per_address_max: 10,
            trusted_proxies: Arc::default(),
        };
        let connections = Connections::new(Arc::new(SystemWorld::new()), limits);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let connect = async || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let connection = connections.register(&listener.accept().await.unwrap().0).unwrap();
            let mut streams = Streams::new(Arc::clone(connection.totals()));
            assert!(connection.streams.set(Arc::clone(streams.counts())).is_ok());
            assert_eq!(streams.received(&[b'P'; 24]), Ok(false));
            assert_eq!(streams.received(FIRST), Ok(true));
            (client, connection, streams)
        };
        let (mut asks_again, asking, mut asks) = connect().await;
        asking.update(|usage| usage.requests_in_progress = 1);
        let (mut takes_nothing, _other, _streams) = connect().await;
        assert_eq!(asks.received(SECOND), Ok(true));
        asking.bound_streams();
        let mut closed = [[0]; 2];
        let [first, second] = &mut closed;
        match select(pin!(takes_nothing.read(first)), pin!(asks_again.read(second))).await {
            Either::Left((read, _)) => assert_eq!(read.unwrap(), 0),
            Either::Right(_) => panic!("its answers are not ready"),
        }
    }
}
