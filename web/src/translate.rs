//! From a partner's document to the domain: the media type chooses the format, and the format's own
//! module does the rest. All formats end in the same [`Instruction`], so the same content gives the
//! same fingerprint whichever way it came.

pub mod json;
mod members;
pub mod partners;

use actix_web::HttpRequest;
use actix_web::error::PayloadError;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{Bytes, BytesMut, Data, Payload};
use futures::StreamExt as _;
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::account::{AccountStatus, Holder};
use postonce_shared::domain::instruction::{Instruction, TransactionKind};
use postonce_shared::domain::money::{Currency, OverdraftLimit};
use postonce_shared::domain::partner::SignatureKey;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::gate::GateState;

use crate::error::{ApiError, Code};
use crate::partner_terms::TermsChange;
use crate::scopes::Scope;

/// A format of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
}

impl Format {
    /// The format with that media type; parameters such as the character set are of no interest.
    pub fn of(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json").then_some(Self::Json)
    }
}

/// The body of a request, whole, in a format that we know.
#[derive(Debug)]
pub struct InboundDocument {
    format: Format,
    bytes: Bytes,
}

impl InboundDocument {
    /// Reads the body: media type first, then its size, which ends the reading early.
    ///
    /// # Errors
    /// [`ApiError`] of status 415, 413, 408 or 400.
    pub async fn read(request: &HttpRequest, payload: Payload) -> Result<Self, ApiError> {
        let format = format_of(request.headers())?;
        let limits = request.app_data::<Data<HttpLimits>>().map_or_else(HttpLimits::default, |it| ***it);
        let HttpLimits { body_bytes_max, body_patience, head_patience: _, keep_alive: _, connections_max: _ } =
            limits;
        if declared_length(request).is_some_and(|length| length > body_bytes_max) {
            return Err(too_large(body_bytes_max));
        }
        // The machine's own clock: what is limited here is a client's connection, not our business.
        let bytes = tokio::time::timeout(body_patience, collect(payload, body_bytes_max)).await;
        let bytes = bytes.map_err(|_| {
            ApiError::new(Code::RequestTimeout, format!("The body took longer than {body_patience:?}."))
        })??;
        Ok(Self { format, bytes })
    }
}

/// The format of the body that comes with these headers.
///
/// # Errors
/// [`ApiError`] of status 415 when it is none that we read.
pub fn format_of(headers: &HeaderMap) -> Result<Format, ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let unsupported = |detail: String| Err(ApiError::new(Code::MediaTypeUnsupported, detail));
    if let Some(encoding) = text(header::CONTENT_ENCODING).filter(|it| !it.eq_ignore_ascii_case("identity")) {
        return unsupported(format!("The body must not be compressed, but its encoding is {encoding:?}."));
    }
    match text(header::CONTENT_TYPE) {
        None => unsupported("Send the header Content-Type: application/json.".to_owned()),
        Some(content_type) => Format::of(content_type).map_or_else(
            || unsupported(format!("Send application/json; {content_type:?} is not supported here.")),
            Ok,
        ),
    }
}

fn declared_length(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn collect(mut payload: Payload, bytes_max: usize) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| broken(&error))?;
        if bytes.len().saturating_add(chunk.len()) > bytes_max {
            return Err(too_large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("A body has at most {bytes_max} bytes."))
}

fn broken(error: &PayloadError) -> ApiError {
    ApiError::new(Code::BodyInvalid, format!("The body did not arrive whole: {error}."))
}

/// The terms of a new account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountTerms {
    /// Its currency.
    pub currency: Currency,
    /// How far below zero it may go.
    pub overdraft_limit: OverdraftLimit,
    /// Who holds it.
    pub holder: Option<Holder>,
}

/// New terms of an account, as far as they are to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountChange {
    /// The text of the limit: what it means depends on the currency of the account.
    pub overdraft_limit: Option<String>,
    /// Open or closed.
    pub status: Option<AccountStatus>,
}

/// The instruction in a document.
///
/// # Errors
/// [`ApiError`] of status 400 when it cannot be read, 422 with every violation when it can.
pub fn instruction(kind: TransactionKind, document: &InboundDocument) -> Result<Instruction, ApiError> {
    match document.format {
        Format::Json => json::instruction(kind, &document.bytes),
    }
}

/// The terms of a new account in a document.
///
/// # Errors
/// As [`instruction`].
pub fn account_terms(document: &InboundDocument) -> Result<AccountTerms, ApiError> {
    match document.format {
        Format::Json => json::account_terms(&document.bytes),
    }
}

/// The change of an account in a document.
///
/// # Errors
/// As [`instruction`].
pub fn account_change(document: &InboundDocument) -> Result<AccountChange, ApiError> {
    match document.format {
        Format::Json => json::account_change(&document.bytes),
    }
}

/// The terms of a partner in a document.
///
/// # Errors
/// As [`instruction`].
pub fn partner_terms(document: &InboundDocument) -> Result<TermsChange, ApiError> {
    match document.format {
        Format::Json => partners::terms(&document.bytes),
    }
}

/// The scopes of a new key in a document.
///
/// # Errors
/// As [`instruction`].
pub fn key_scopes(document: &InboundDocument) -> Result<Vec<Scope>, ApiError> {
    match document.format {
        Format::Json => partners::key_scopes(&document.bytes),
    }
}

/// A new key to sign with in a document.
///
/// # Errors
/// As [`instruction`].
pub fn signature_key(document: &InboundDocument) -> Result<SignatureKey, ApiError> {
    match document.format {
        Format::Json => partners::signature_key(&document.bytes),
    }
}

/// The state that a document brings the gate into. A release is scheduled for later than `now`.
///
/// # Errors
/// As [`instruction`].
pub fn gate_state(document: &InboundDocument, now: Timestamp) -> Result<GateState, ApiError> {
    match document.format {
        Format::Json => json::gate_state(&document.bytes, now),
    }
}
