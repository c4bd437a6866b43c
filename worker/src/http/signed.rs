//! The body of a request that another process of the bank signed. A handler that takes one can't be
//! reached without the secret.

use std::fmt;
use std::time::Duration;

use actix_web::body::{BodyStream, BoxBody, to_bytes_limited};
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data};
use actix_web::{FromRequest, HttpRequest, HttpResponse, ResponseError};
use futures::FutureExt as _;
use futures::future::{Either, LocalBoxFuture, select};
use postonce_shared::adapters::http::REQUEST_BYTES_MAX;
use postonce_shared::adapters::http::signature::{
    ADDRESSEE_HEADER, NONCE_HEADER, PeerRequest, Refused, SIGNATURE_HEADER, TIMESTAMP_HEADER,
};
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome, UNKNOWN};

use super::PeerState;

/// How long a body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(5);

/// A body, and the proof that whoever sent it knows the secret.
#[derive(Debug)]
pub struct SignedBody(Bytes);

impl SignedBody {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The body of a request that claims to be signed: proven or not. For routes on which an unproven request has
/// an effect as well, a smaller one.
#[derive(Debug)]
pub enum ClaimedBody {
    /// The signature, the time, the nonce and the addressee hold.
    Proven(SignedBody),
    /// One of them does not.
    Refused {
        /// Anybody may have sent it. It has at most [`REQUEST_BYTES_MAX`] bytes.
        unproven: Bytes,
        /// The answer to it.
        refusal: Refusal,
    },
}

/// Why another process is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    detail: String,
}

impl Refusal {
    /// A refusal with a sentence for whoever reads the log of the other process.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// The body could not be understood.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, format!("The body cannot be read: {error}."))
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let status = match refused {
            Refused::Unsigned
            | Refused::Stale
            | Refused::Wrong
            | Refused::Elsewhere
            | Refused::BeforeStart
            | Refused::Repeated => StatusCode::UNAUTHORIZED,
            // The caller is known, and can try again later.
            Refused::TooMany => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, format!("{refused}."))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ResponseError for Refusal {
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
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let claimed = ClaimedBody::from_request(request, payload);
        async move {
            match claimed.await? {
                ClaimedBody::Proven(body) => Ok(body),
                ClaimedBody::Refused { unproven: _, refusal } => Err(refusal),
            }
        }
        .boxed_local()
    }
}

impl FromRequest for ClaimedBody {
    type Error = Refusal;
    type Future = LocalBoxFuture<'static, Result<Self, Refusal>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        async move {
            let claimed = read(&request, payload).await;
            if let Err(refusal) | Ok(Self::Refused { refusal, .. }) = &claimed {
                note(&request, refusal);
            }
            claimed
        }
        .boxed_local()
    }
}

/// Notes in the audit trail that somebody did not know the secret.
fn note(request: &HttpRequest, refusal: &Refusal) {
    if refusal.status != StatusCode::UNAUTHORIZED {
        return;
    }
    let route = request.match_pattern().unwrap_or_default();
    let from = request.peer_addr().map_or_else(|| UNKNOWN.to_owned(), |peer| peer.to_string());
    let on = AuditTarget::one("method", request.method()).and("route", route);
    let outcome = Outcome::Refused("internal_signature_invalid");
    Event { who: UNKNOWN, key: "", act: "internal", on, outcome, from: &from }.record();
}

async fn read(request: &HttpRequest, payload: Payload) -> Result<ClaimedBody, Refusal> {
    let callee = request.app_data::<Data<PeerState>>().ok_or_else(|| {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "The server was built without a callee.")
    })?;
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    // Nothing of the body is read for whoever does not even claim to know the secret.
    let (Some(timestamp), Some(signature)) = (header(TIMESTAMP_HEADER), header(SIGNATURE_HEADER)) else {
        return Err(Refused::Unsigned.into());
    };
    let secret = callee.secret.known().ok_or_else(|| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "This process does not know the secret yet.")
    })?;
    let reading = std::pin::pin!(to_bytes_limited(BodyStream::new(payload), REQUEST_BYTES_MAX));
    let body = match select(reading, callee.world.sleep(BODY_PATIENCE)).await {
        Either::Left((body, _)) => body.map_err(|_| too_large())?.map_err(|error| broken(&error))?,
        Either::Right(_) => {
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "The body took too long."));
        }
    };
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let signed = PeerRequest {
        method: request.method().as_str(),
        path,
        timestamp,
        // Without them nothing is proven. Older programs send none.
        nonce: header(NONCE_HEADER).unwrap_or_default(),
        addressee: header(ADDRESSEE_HEADER).unwrap_or_default(),
        body: &body,
    };
    let taken = callee.recipient.take(&signed, signature, &secret, callee.world.now());
    Ok(match taken {
        Ok(()) => ClaimedBody::Proven(SignedBody(body)),
        Err(refused) => ClaimedBody::Refused { unproven: body, refusal: refused.into() },
    })
}

fn too_large() -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("A body has at most {REQUEST_BYTES_MAX} bytes."))
}

fn broken(error: &PayloadError) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("{error}."))
}
