//! The socket of a client together with what is known of its connection, from the moment it is accepted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::rt::net::{ActixStream, Ready, TcpStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::Connection;

/// An accepted connection, which counts as open until this is dropped.
pub(super) struct ClientSocket {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl ClientSocket {
    /// The socket of a registered connection. What is written to it is sent at once: otherwise the second part of a long answer
    /// would wait until the client has acknowledged the first one, which many do only after 40 ms.
    pub(super) fn new(stream: TcpStream, connection: Arc<Connection>) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("Parts of answers of a connection may be delayed: {error}");
        }
        Self { stream, connection }
    }

    /// The socket.
    pub(super) const fn tcp(&self) -> &TcpStream {
        &self.stream
    }

    /// What is known of the connection.
    pub(super) const fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        // Requests in progress may keep what is known of the connection.
        self.connection.head.end();
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl ActixStream for ClientSocket {
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_read_ready(&self.stream, context)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        ActixStream::poll_write_ready(&self.stream, context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_sent_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (_client, accepted) = tokio::join!(client, listener.accept());
        let (stream, _) = accepted.unwrap();
        let socket = ClientSocket::new(stream, Connection::of_test(Duration::from_secs(1)));
        assert!(socket.tcp().nodelay().unwrap());
    }
}
