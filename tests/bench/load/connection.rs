//! One connection that is kept.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection to an arm.
pub(super) struct Connection {
    address: String,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens: without its arm there is nothing to measure.
    pub(super) async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the arm listens");
        stream.set_nodelay(true).expect("a connection takes the option");
        let (sender, driver) = handshake(TokioIo::new(stream)).await.expect("it speaks HTTP/1.1");
        // It ends with the sender; what breaks it, the request in hand tells.
        drop(tokio::task::spawn_local(async { drop(driver.await) }));
        Self { address: address.to_owned(), sender }
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<u16, String> {
        // An arm may close what was idle for long; a client makes a new one, and its time counts.
        if self.sender.is_closed() {
            *self = Self::open(&self.address).await;
        }
        self.sender.ready().await.map_err(|error| error.to_string())?;
        let response = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            drop(frame.map_err(|error| error.to_string())?);
        }
        Ok(status)
    }
}
