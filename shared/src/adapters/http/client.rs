//! Sends signed requests to another process.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use reqwest::{Method, StatusCode};

use super::BODY_BYTES_MAX;
use super::signature::{
    ADDRESSEE_HEADER, NONCE_HEADER, RECIPIENT_HEADER, SIGNATURE_HEADER, Stamp, TIMESTAMP_HEADER,
};
use crate::adapters::bounded_body::bounded_body;
use crate::cluster::doorbell_secret::DoorbellSecret;
use crate::ports::process_registry::{Address, ProcessId};
use crate::ports::world::{World, WorldExt as _};

/// Maximum time to connect. It is short because the processes of a bank share a network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum idle time of a pooled connection. It is shorter than the idle timeout of the server.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Why a request to another process failed.
#[derive(Debug, thiserror::Error)]
pub enum CallFault {
    /// The process could not be reached, or the connection broke.
    #[error("the process cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The response did not arrive in time.
    #[error("the process did not respond in time")]
    Late,
    /// Another process now listens at the address, because the recipient has ended.
    #[error("another process listens at the address now")]
    Replaced,
    /// The process rejected the signature.
    #[error("the process refuses the signature: its ring-secret, its clock or its address differs")]
    Unauthorized,
    /// The process responded with another error status.
    #[error("the process responded with status {0}")]
    Refused(u16),
    /// The response has more than [`BODY_BYTES_MAX`] bytes.
    #[error("the response of the process has more than {BODY_BYTES_MAX} bytes")]
    TooLarge,
}

/// Sends signed requests to other processes over a pool of connections.
pub(super) struct PeerClient {
    http: reqwest::Client,
    pub(super) secret: Arc<DoorbellSecret>,
    world: Arc<dyn World>,
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The process that must answer. With `None`, any process at the address may answer.
    pub(super) recipient: Option<ProcessId>,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
}

impl Call {
    pub(super) fn post(path: &str, body: Vec<u8>) -> Self {
        Self { recipient: None, method: Method::POST, path: path.to_owned(), body }
    }
}

impl PeerClient {
    pub(super) fn new(secret: Arc<DoorbellSecret>, world: Arc<dyn World>) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_MAX)
            .redirect(reqwest::redirect::Policy::none())
            // Processes of one bank are on one network, so no proxy is used.
            .no_proxy()
            .build()?;
        Ok(Self { http, secret, world })
    }

    /// Sends a request and returns the body of the response.
    pub(super) async fn call(
        &self,
        to: &Address,
        call: Call,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallFault> {
        let answer = std::pin::pin!(self.answer(to, call));
        match select(answer, self.world.sleep(timeout)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(CallFault::Late),
        }
    }

    async fn answer(&self, to: &Address, call: Call) -> Result<Vec<u8>, CallFault> {
        let secret = self.secret.get().await;
        let Call { recipient, method, path, body } = call;
        let stamp = Stamp::new(self.world.uuid(), self.world.now(), to);
        let signature = stamp.on(method.as_str(), &path, &body).sign(&secret);
        let mut request = self
            .http
            .request(method, format!("{to}{path}"))
            .header(TIMESTAMP_HEADER, stamp.timestamp)
            .header(NONCE_HEADER, stamp.nonce)
            .header(ADDRESSEE_HEADER, stamp.addressee)
            .header(SIGNATURE_HEADER, signature)
            .body(body);
        if let Some(id) = recipient {
            request = request.header(RECIPIENT_HEADER, id.simple());
        }
        let mut answer = request.send().await.map_err(CallFault::Unreachable)?;
        match answer.status() {
            status if status.is_success() => {}
            StatusCode::GONE => return Err(CallFault::Replaced),
            StatusCode::UNAUTHORIZED => {
                self.secret.note_refused();
                return Err(CallFault::Unauthorized);
            }
            status => return Err(CallFault::Refused(status.as_u16())),
        }
        let body = bounded_body(&mut answer, BODY_BYTES_MAX).await.map_err(CallFault::Unreachable)?;
        body.ok_or(CallFault::TooLarge)
    }
}
