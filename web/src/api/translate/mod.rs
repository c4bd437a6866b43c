//! Conversion of request documents to domain values. The media type selects the format, whose module parses the document.
//! All formats produce the same `Instruction`, so the same content has the same fingerprint in every format.

mod content;
pub mod look_alikes;
mod partners;

use actix_web::HttpRequest;
use actix_web::http::header;
use actix_web::web::{Bytes, Data, Payload};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::account::{AccountStatus, Holder};
use postonce_shared::domain::money::{Currency, OverdraftLimit};
use postonce_shared::messaging::xml::XmlLimits;
use postonce_shared::text;

pub use self::content::{
    account_change, account_terms, batch_item, gate_change, instruction, instruction_of, unknown_details,
};
pub use self::partners::{key_terms, partner_terms, signature_key};
use crate::access::authentication::Caller;
use crate::access::signatures::digest;
use crate::access::slots::SlotGuard;
use crate::api::negotiate;
use crate::error::{ApiError, Code};
use crate::formats::members::Members;
use crate::formats::{Format, Shape, json};

/// The complete body of a request in a supported format.
#[derive(Debug)]
pub struct InboundDocument {
    format: &'static dyn Format,
    bytes: Bytes,
    limits: XmlLimits,
}

impl InboundDocument {
    /// Reads the body of a request. Checks the media type first, and the rights of the caller again at the end.
    ///
    /// # Errors
    /// [`ApiError`] with status 415, or as [`body`].
    pub async fn read<P>(
        caller: &mut Caller<P>,
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<Self, ApiError> {
        let format = negotiate::body_format(request.headers(), negotiate::profile(request))?;
        let bytes = body(caller, request, payload).await?;
        Ok(Self::of(format, bytes, xml_limits(request)))
    }

    /// Creates a document from a complete body.
    pub const fn of(format: &'static dyn Format, bytes: Bytes, limits: XmlLimits) -> Self {
        Self { format, bytes, limits }
    }

    /// Parses the members of the document.
    fn members(&self, shape: Shape) -> Result<Members, ApiError> {
        let members = self.format.read(shape, &self.bytes, &self.limits)?;
        Ok(members.with_field_names_of(self.format, shape))
    }

    /// Parses the members of a document of the admin API, which must be JSON.
    fn members_of_json(&self) -> Result<Members, ApiError> {
        negotiate::only_json(self.format)?;
        json::members(&self.bytes)
    }
}

/// Reads a complete body: text in the encoding that its headers name, without its byte order mark. Stops early when the body
/// is too large. A body can arrive slowly, so the rights of the caller are checked again after its last byte.
///
/// # Errors
/// [`ApiError`] with status 415, 413, 408, 401, 403, 400, 429 or 503.
pub async fn body<P>(
    caller: &mut Caller<P>,
    request: &HttpRequest,
    payload: Payload,
) -> Result<Bytes, ApiError> {
    let HttpLimits { body_bytes_max, body_timeout, .. } = limits(request);
    let declared = declared_length(request);
    if declared.is_some_and(|length| length > body_bytes_max) {
        return Err(too_large(body_bytes_max));
    }
    let mut memory = caller.body_memory(request, declared.unwrap_or(body_bytes_max))?;
    // Uses the system clock and not the `World`, because this limits a client connection.
    let bytes = tokio::time::timeout(body_timeout, payload.to_bytes_limited(body_bytes_max)).await;
    let bytes = bytes.map_err(|_| {
        ApiError::new(Code::RequestTimeout, format!("The body took longer than {body_timeout:?}."))
    })?;
    let bytes = bytes.map_err(|_| too_large(body_bytes_max))?.map_err(|error| broken(&error))?;
    memory.keep(bytes.len());
    let bytes = Bytes::from_owner(Received { bytes, _memory: memory });
    // Every body of a partner, except batches, is read here, so every signed body is compared with its digest.
    digest::check(request, &bytes)?;
    caller.confirm(request).await?;
    let charset = negotiate::charset(request.headers())?;
    let text = charset.check(0, &bytes).and_then(|()| text::without_mark(&bytes));
    let text = text.map_err(|not_text| ApiError::new(Code::BodyInvalid, format!("The body {not_text}.")))?;
    Ok(bytes.slice_ref(text))
}

/// A body, with its share of the memory for bodies.
struct Received {
    bytes: Bytes,
    _memory: SlotGuard,
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the limits of XML documents in requests.
pub fn xml_limits(request: &HttpRequest) -> XmlLimits {
    let HttpLimits { xml_depth_max, xml_attributes_max, .. } = limits(request);
    XmlLimits { depth_max: xml_depth_max, attributes_max: xml_attributes_max }
}

/// Returns the limits of the server that received a request.
pub fn limits(request: &HttpRequest) -> HttpLimits {
    request.app_data::<Data<HttpLimits>>().map_or_else(HttpLimits::default, |it| ***it)
}

fn declared_length(request: &HttpRequest) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("A body has at most {bytes_max} bytes."))
}

fn broken(error: &actix_web::Error) -> ApiError {
    ApiError::new(Code::BodyInvalid, format!("The body is incomplete: {error}."))
}

/// Terms of a new account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountTerms {
    /// Currency of the account.
    pub currency: Currency,
    /// Overdraft limit in that currency.
    pub overdraft_limit: OverdraftLimit,
    /// Account holder, if one is named.
    pub holder: Option<Holder>,
}

/// Change of an account. Fields that are `None` keep their value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountChange {
    /// Text of the overdraft limit, parsed later because its decimals depend on the currency of the account.
    pub overdraft_limit: Option<String>,
    /// New account status.
    pub status: Option<AccountStatus>,
    /// New account holder.
    pub holder: Option<Holder>,
}

impl AccountChange {
    /// Returns the comma-separated names of the changed members.
    pub fn members(&self) -> String {
        let Self { overdraft_limit, status, holder } = self;
        let members = [
            overdraft_limit.as_ref().map(|_| "overdraft_limit"),
            status.map(|_| "status"),
            holder.as_ref().map(|_| "holder"),
        ];
        members.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests;
