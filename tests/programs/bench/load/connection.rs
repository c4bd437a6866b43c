//! A persistent connection.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection to an arm.
pub(super) struct Connection {
    address: String,
    host: HeaderValue,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// If the arm does not listen: then there is nothing to measure.
    pub(super) async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the arm listens");
        stream.set_nodelay(true).expect("the option can be set");
        let (sender, driver) = handshake(TokioIo::new(stream)).await.expect("an HTTP/1.1 connection");
        // The task ends with the sender; an error of the connection is reported by its request.
        drop(tokio::task::spawn_local(async { drop(driver.await) }));
        let host = HeaderValue::try_from(address).expect("an address is a valid header value");
        Self { address: address.to_owned(), host, sender }
    }

    /// Sends a request and reads the whole response: its status and its body.
    pub(super) async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<(u16, Bytes), String> {
        // An arm may close an idle connection; a client then opens a new one, and that time counts.
        if self.sender.is_closed() {
            *self = Self::open(&self.address).await;
        }
        self.sender.ready().await.map_err(|error| error.to_string())?;
        drop(request.headers_mut().insert(HOST, self.host.clone()));
        let response = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes()))
    }
}
