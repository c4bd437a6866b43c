//! The body of a request signed by another process of the bank. Handlers that take it run only for senders with the secret.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use actix_web::body::{BodyStream, BoxBody, to_bytes_limited};
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError};
use futures::FutureExt as _;
use futures::future::{Either, LocalBoxFuture, select};
use postonce_shared::access::client_network::client_network;
use postonce_shared::adapters::http::REQUEST_BYTES_MAX;
use postonce_shared::adapters::http::signature::{
    ADDRESSEE_HEADER, NONCE_HEADER, PeerRequest, RECIPIENT_HEADER, Refused, SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
};
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome, UNKNOWN};
use postonce_shared::ports::process_registry::ProcessId;

use super::PeerState;
use super::connections::note_known;

/// Client name for all other processes of the bank together.
const PEERS: &str = "/internal";
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A body with a valid signature, so its sender knows the secret.
#[derive(Debug)]
pub struct SignedBody(Bytes);

impl SignedBody {
    /// Returns the authenticated bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A request body whose signature may be invalid. For routes on which an unauthenticated request has a limited effect.
#[derive(Debug)]
pub enum CheckedBody {
    /// Signature, time, nonce and recipient are valid.
    Authentic(SignedBody),
    /// One of them is invalid.
    Refused {
        /// Untrusted: it may come from any client. At most [`REQUEST_BYTES_MAX`] bytes.
        body: Bytes,
        /// The response for the sender.
        refusal: PeerRequestError,
    },
}

/// The response to a refused request of another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRequestError {
    status: StatusCode,
    detail: String,
}

impl PeerRequestError {
    /// Creates a refusal. The sender logs `detail`.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// Creates the response to a body that cannot be decoded.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, format!("The body cannot be read: {error}."))
    }
}

impl From<Refused> for PeerRequestError {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::Unsigned
            | Refused::Stale
            | Refused::Wrong
            | Refused::Elsewhere
            | Refused::BeforeStart
            | Refused::Repeated => StatusCode::UNAUTHORIZED,
            // The sender is authenticated and can retry later.
            Refused::TooMany => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, format!("{refused}."))
    }
}

impl fmt::Display for PeerRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ResponseError for PeerRequestError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let title = self.status.canonical_reason().unwrap_or_default();
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        HttpResponse::build(self.status).content_type("application/problem+json").body(problem.to_string())
    }
}

impl FromRequest for SignedBody {
    type Error = PeerRequestError;
    type Future = LocalBoxFuture<'static, Result<Self, PeerRequestError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let checked = CheckedBody::from_request(request, payload);
        async move {
            match checked.await? {
                CheckedBody::Authentic(body) => Ok(body),
                CheckedBody::Refused { body: _, refusal } => Err(refusal),
            }
        }
        .boxed_local()
    }
}

impl FromRequest for CheckedBody {
    type Error = PeerRequestError;
    type Future = LocalBoxFuture<'static, Result<Self, PeerRequestError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        async move {
            let checked = read(&request, payload).await;
            if let Err(refusal) | Ok(Self::Refused { refusal, .. }) = &checked {
                audit(&request, refusal);
            }
            checked
        }
        .boxed_local()
    }
}

/// Records in the audit trail that a sender did not know the secret.
fn audit(request: &HttpRequest, refusal: &PeerRequestError) {
    if refusal.status != StatusCode::UNAUTHORIZED {
        return;
    }
    let route = request.match_pattern().unwrap_or_default();
    let from = request.peer_addr().map_or_else(|| UNKNOWN.to_owned(), |peer| peer.to_string());
    let on = AuditTarget::one("method", request.method()).and("route", route);
    let outcome = Outcome::Refused("internal_signature_invalid");
    Event { who: UNKNOWN, key: "", act: "internal", on, outcome, from: &from }.log();
}

async fn read(request: &HttpRequest, payload: Payload) -> Result<CheckedBody, PeerRequestError> {
    let callee = request.app_data::<Data<PeerState>>().ok_or_else(|| {
        PeerRequestError::new(StatusCode::INTERNAL_SERVER_ERROR, "The server has no peer state.")
    })?;
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    // Without a signature, the body is not read.
    let (Some(timestamp), Some(signature)) = (header(TIMESTAMP_HEADER), header(SIGNATURE_HEADER)) else {
        return Err(Refused::Unsigned.into());
    };
    let secret = callee.secret.known().ok_or_else(|| {
        PeerRequestError::new(StatusCode::SERVICE_UNAVAILABLE, "This process has not read the secret yet.")
    })?;
    let reading = pin!(to_bytes_limited(BodyStream::new(payload), REQUEST_BYTES_MAX));
    let address = request.peer_addr().map(|peer| client_network(peer.ip()));
    let place = callee.unverified.take(&address);
    let body = match place.hold(select(reading, callee.world.sleep(BODY_TIMEOUT))).await {
        Some(Either::Left((body, _))) => body.map_err(|_| too_large())?.map_err(|error| broken(&error))?,
        Some(Either::Right(_)) => return Err(too_slow("The body was not received in time.")),
        None => return Err(too_slow("The body took long, and others arrived.")),
    };
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let signed = PeerRequest {
        method: request.method().as_str(),
        path,
        timestamp,
        // Empty values of these headers are refused below.
        nonce: header(NONCE_HEADER).unwrap_or_default(),
        addressee: header(ADDRESSEE_HEADER).unwrap_or_default(),
        body: &body,
    };
    let taken = callee.recipient.take(&signed, signature, &secret, callee.world.now());
    let is_meant = |id: &str| ProcessId::parse(id).is_none_or(|id| id == callee.id);
    Ok(match taken {
        Ok(()) if !header(RECIPIENT_HEADER).is_none_or(is_meant) => {
            return Err(PeerRequestError::new(StatusCode::GONE, format!("This is process {}.", callee.id)));
        }
        Ok(()) => {
            note_known(request, PEERS);
            CheckedBody::Authentic(SignedBody(body))
        }
        Err(refused) => CheckedBody::Refused { body, refusal: refused.into() },
    })
}

fn too_slow(detail: &str) -> PeerRequestError {
    PeerRequestError::new(StatusCode::REQUEST_TIMEOUT, detail)
}

fn too_large() -> PeerRequestError {
    PeerRequestError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("A body has at most {REQUEST_BYTES_MAX} bytes."),
    )
}

fn broken(error: &PayloadError) -> PeerRequestError {
    PeerRequestError::new(StatusCode::BAD_REQUEST, format!("{error}."))
}
