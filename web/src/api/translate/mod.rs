//! From a partner's document to the domain: the media type chooses the format, and the format's own
//! module does the rest. All formats end in the same [`Instruction`], so the same content gives the
//! same fingerprint whichever way it came.

mod content;

mod partners;

use actix_web::HttpRequest;
use actix_web::http::header;
use actix_web::web::{Bytes, Data, Payload};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::account::{AccountStatus, Holder};
use postonce_shared::domain::money::{Currency, OverdraftLimit};
use postonce_shared::messaging::xml::XmlLimits;

pub use self::content::{account_change, account_terms, gate_state, instruction, instruction_of};
pub use self::partners::{key_scopes, partner_terms, signature_key};
use crate::access::signatures::digest;
use crate::api::negotiate;
use crate::error::{ApiError, Code};
use crate::formats::members::Members;
use crate::formats::{Format, Shape, json};

/// The body of a request, whole, in a format that we know.
#[derive(Debug)]
pub struct InboundDocument {
    format: &'static dyn Format,
    bytes: Bytes,
    limits: XmlLimits,
}

impl InboundDocument {
    /// Reads the body: media type first, then the rest of it.
    ///
    /// # Errors
    /// [`ApiError`] of status 415, 413, 408, 401 or 400.
    pub async fn read(request: &HttpRequest, payload: Payload) -> Result<Self, ApiError> {
        let format = negotiate::body_format(request.headers(), negotiate::profile(request))?;
        let bytes = body(request, payload).await?;
        Ok(Self::of(format, bytes, xml_limits(request)))
    }

    /// A body that came whole.
    pub const fn of(format: &'static dyn Format, bytes: Bytes, limits: XmlLimits) -> Self {
        Self { format, bytes, limits }
    }

    /// Its members. They are refused under the names that they have in the document.
    fn members(&self, shape: Shape) -> Result<Members, ApiError> {
        let members = self.format.read(shape, &self.bytes, &self.limits)?;
        Ok(members.called_as_in(self.format, shape))
    }

    /// The members of what operators write, which is JSON.
    fn members_of_json(&self) -> Result<Members, ApiError> {
        negotiate::only_json(self.format)?;
        json::members(&self.bytes)
    }
}

/// The body of a request, whole. One that is too large ends the reading early.
///
/// # Errors
/// [`ApiError`] of status 413, 408, 401 or 400.
pub async fn body(request: &HttpRequest, payload: Payload) -> Result<Bytes, ApiError> {
    let HttpLimits { body_bytes_max, body_patience, .. } = limits(request);
    if declared_length(request).is_some_and(|length| length > body_bytes_max) {
        return Err(too_large(body_bytes_max));
    }
    // The machine's own clock: what is limited here is a client's connection, not our business.
    let bytes = tokio::time::timeout(body_patience, payload.to_bytes_limited(body_bytes_max)).await;
    let bytes = bytes.map_err(|_| {
        ApiError::new(Code::RequestTimeout, format!("The body took longer than {body_patience:?}."))
    })?;
    let bytes = bytes.map_err(|_| too_large(body_bytes_max))?.map_err(|error| broken(&error))?;
    // The only place that reads a body for a partner: what a signature says of it is held against it here.
    digest::check(request, &bytes)?;
    Ok(bytes)
}

/// What a document of XML in a request may ask of us.
pub fn xml_limits(request: &HttpRequest) -> XmlLimits {
    let HttpLimits { xml_depth_max, xml_attributes_max, .. } = limits(request);
    XmlLimits { depth_max: xml_depth_max, attributes_max: xml_attributes_max }
}

fn limits(request: &HttpRequest) -> HttpLimits {
    request.app_data::<Data<HttpLimits>>().map_or_else(HttpLimits::default, |it| ***it)
}

fn declared_length(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("A body has at most {bytes_max} bytes."))
}

fn broken(error: &actix_web::Error) -> ApiError {
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

impl AccountChange {
    /// The names of what is to change.
    pub fn members(&self) -> String {
        let Self { overdraft_limit, status } = self;
        let members = [overdraft_limit.as_ref().map(|_| "overdraft_limit"), status.map(|_| "status")];
        members.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests;
