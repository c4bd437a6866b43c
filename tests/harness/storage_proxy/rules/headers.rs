//! Headers: dates, versions, lengths and conditions.

use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, IF_MATCH, TRANSFER_ENCODING};
use hyper::{Method, StatusCode};
use postonce_shared::domain::time::Timestamp;
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::Refusal;
use crate::storage_proxy::error_responses::StorageError;
use crate::storage_proxy::request::{ProxiedRequest, Service};

/// Maximum time between the date of a request and its arrival ("Authorize with Shared Key").
const CLOCK_DIFFERENCE_MAX_MS: u64 = 15 * 60 * 1000;

/// Date format of RFC 1123.
pub(crate) const DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

const UNAUTHENTICATED: StorageError = StorageError {
    status: StatusCode::FORBIDDEN,
    code: "AuthenticationFailed",
    message: "Server failed to authenticate the request. Make sure the value of Authorization header is formed \
              correctly including the signature.",
};
const NO_LENGTH: StorageError = StorageError {
    status: StatusCode::LENGTH_REQUIRED,
    code: "MissingContentLengthHeader",
    message: "Content-Length HTTP header is missing.",
};
const NO_HEADER: StorageError = StorageError::bad_request(
    "MissingRequiredHeader",
    "An HTTP header that's mandatory for this request is not specified.",
);
const INVALID_HEADER: StorageError = StorageError::bad_request(
    "InvalidHeaderValue",
    "The value for one of the HTTP headers is not in the correct format.",
);
const INVALID_ETAG: StorageError = StorageError::bad_request(
    "InvalidInput",
    "The etag value specified in one of the request headers is not valid. Please make sure only one etag value is \
     specified and is valid.",
);

pub(super) fn check(service: Service, request: &ProxiedRequest, now: Timestamp) -> Result<(), Refusal> {
    if request.headers.contains_key(AUTHORIZATION) {
        check_date(request, now)?;
        require(request, "x-ms-version")?;
    }
    let has_length = request.headers.contains_key(CONTENT_LENGTH);
    let needs_length = ["PUT", "POST", "MERGE"].contains(&request.method.as_str());
    if (needs_length && !has_length) || request.headers.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::new(NO_LENGTH, "it has no Content-Length".to_owned()));
    }
    let is_blob = service == Service::Blob
        && request.method == Method::PUT
        && ["restype", "comp"].iter().all(|name| request.parameter(name).is_none());
    if is_blob {
        require(request, "x-ms-blob-type")?;
    }
    let is_row_removed = service == Service::Table
        && request.method == Method::DELETE
        && !request.target.path().contains("/Tables(");
    if is_row_removed {
        require(request, IF_MATCH.as_str())?;
    }
    match request.headers.get(IF_MATCH).map(|tag| tag.to_str().unwrap_or("(not text)")) {
        Some(tag) if service == Service::Table => check_etag(tag),
        Some(tag) if !is_etag(tag) => {
            Err(Refusal::new(INVALID_HEADER, format!("the If-Match {tag:?} is not an ETag")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks the date of a signed request.
fn check_date(request: &ProxiedRequest, now: Timestamp) -> Result<(), Refusal> {
    let refusal = |detail: String| Err(Refusal::new(UNAUTHENTICATED, detail));
    let Some(text) = request.header("x-ms-date").or_else(|| request.header("date")) else {
        return refusal("it has neither x-ms-date nor Date".to_owned());
    };
    let Ok(date) = PrimitiveDateTime::parse(text, DATE) else {
        return refusal(format!("the date {text:?} is not one of RFC 1123"));
    };
    let date_ms = date.assume_utc().unix_timestamp().saturating_mul(1000);
    if date_ms.abs_diff(now.unix_ms()) > CLOCK_DIFFERENCE_MAX_MS {
        return refusal(format!("the date {text:?} differs by more than 15 minutes from {now}"));
    }
    Ok(())
}

fn require(request: &ProxiedRequest, name: &str) -> Result<(), Refusal> {
    match request.header(name) {
        Some(value) if !value.trim().is_empty() => Ok(()),
        Some(_) | None => Err(Refusal::new(NO_HEADER, format!("it has no {name}"))),
    }
}

/// Checks the condition of a request to the table service, alone or in a batch.
pub(super) fn check_etag(tag: &str) -> Result<(), Refusal> {
    if is_etag(tag) {
        return Ok(());
    }
    Err(Refusal::new(INVALID_ETAG, format!("the If-Match {tag:?} is not one ETag")))
}

/// Returns whether a tag is a single ETag, or the wildcard.
fn is_etag(tag: &str) -> bool {
    let quoted = tag.strip_prefix("W/").unwrap_or(tag);
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    tag == "*" || inner.is_some_and(|inner| !inner.contains('"'))
}
