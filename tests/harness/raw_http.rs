//! HTTP at the level of bytes, for requests that a regular client does not send, at any pace.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A response to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct RawAnswer {
    /// The status.
    pub status: u16,
    /// The head as received.
    pub head: String,
    /// The body as text.
    pub text: String,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
}

impl RawAnswer {
    /// Returns the code of a problem; empty if there is none.
    pub fn code(&self) -> &str {
        self.body.get("code").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the detail of a problem; empty if there is none.
    pub fn detail(&self) -> &str {
        self.body.get("detail").and_then(Value::as_str).unwrap_or_default()
    }
}

/// One connection to a web process.
pub struct RawConnection {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    /// Received bytes that are not parsed yet.
    received: Vec<u8>,
    is_ended: bool,
}

impl RawConnection {
    /// Connects to an address such as `http://127.0.0.1:40123`.
    ///
    /// # Panics
    /// When no process listens there.
    pub async fn open(address: &str) -> Self {
        Self::open_from(Ipv4Addr::LOCALHOST, address).await
    }

    /// Like [`Self::open`], from another address of this machine, which are all addresses in 127.0.0.0/8.
    ///
    /// # Panics
    /// Same as [`Self::open`].
    pub async fn open_from(client: Ipv4Addr, address: &str) -> Self {
        let address: SocketAddr =
            address.strip_prefix("http://").unwrap_or(address).parse().expect("an address");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((client, 0).into()).expect("an address of this machine");
        let stream = socket.connect(address).await.expect("the process listens");
        stream.set_nodelay(true).expect("a socket option");
        let (reader, writer) = stream.into_split();
        Self { reader, writer, received: Vec::new(), is_ended: false }
    }

    /// Sends bytes. Returns whether the server accepted them.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.writer.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Sends a block repeatedly until `total` bytes are sent, a response arrives, or the server accepts no more. Returns the
    /// number of accepted bytes.
    pub async fn flood(&mut self, block: &[u8], total: usize) -> usize {
        let mut sent: usize = 0;
        while sent < total {
            let mut some = vec![0; 16 * 1024];
            let (reading, writing) = (pin!(self.reader.read(&mut some)), pin!(self.writer.write(block)));
            let read = match select(reading, writing).await {
                Either::Left((read, _)) => read,
                Either::Right((Ok(count), _)) if count > 0 => {
                    sent = sent.saturating_add(count);
                    continue;
                }
                Either::Right(_) => break,
            };
            self.keep(read.ok().and_then(|count| some.get(..count)));
            break;
        }
        sent
    }

    /// Returns the next response, or `None` when the connection ends or nothing arrives within this time.
    pub async fn answer(&mut self, within: Duration) -> Option<RawAnswer> {
        loop {
            if let Some((answer, rest)) = split(&self.received, self.is_ended) {
                self.received = rest;
                return Some(answer);
            }
            if self.is_ended || !self.receive(within).await {
                return None;
            }
        }
    }

    /// Returns whether the server closes the connection within this time without another response.
    pub async fn is_closed(&mut self, within: Duration) -> bool {
        while !self.is_ended && self.received.is_empty() {
            if !self.receive(within).await {
                return false;
            }
        }
        self.is_ended && self.received.is_empty()
    }

    /// Receives some bytes, or the end of the connection. Returns whether that happened in time.
    async fn receive(&mut self, within: Duration) -> bool {
        let mut some = vec![0; 16 * 1024];
        match tokio::time::timeout(within, self.reader.read(&mut some)).await {
            Ok(read) => {
                self.keep(read.ok().and_then(|count| some.get(..count)));
                true
            }
            Err(_) => false,
        }
    }

    fn keep(&mut self, some: Option<&[u8]>) {
        match some {
            Some(bytes) if !bytes.is_empty() => self.received.extend_from_slice(bytes),
            // Closed, or reset because the server did not accept the rest of the request.
            Some(_) | None => self.is_ended = true,
        }
    }
}

/// Splits the received bytes after the first complete response.
fn split(received: &[u8], is_ended: bool) -> Option<(RawAnswer, Vec<u8>)> {
    let head_end = received.windows(4).position(|window| window == b"\r\n\r\n")?.saturating_add(4);
    let (head, rest) = received.split_at(head_end);
    let head = String::from_utf8_lossy(head).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.unwrap_or(0);
    if rest.len() < length && !is_ended {
        return None;
    }
    let (body, rest) = rest.split_at(length.min(rest.len()));
    let text = String::from_utf8_lossy(body).into_owned();
    let body = serde_json::from_slice(body).unwrap_or(Value::Null);
    Some((RawAnswer { status, head, text, body }, rest.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_split_one_by_one() {
        let bytes =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too\r\nContent-Length: 12\r\n\r\n{\"code\":\"x\"}HT";
        let (first, rest) = split(bytes, false).unwrap();
        assert_eq!((first.status, first.code()), (100, ""));
        let (second, rest) = split(&rest, false).unwrap();
        assert_eq!((second.status, second.code(), rest.as_slice()), (413, "x", b"HT".as_slice()));
        assert_eq!(split(&rest, true), None);
        assert_eq!(split(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12", false), None);
    }
}
