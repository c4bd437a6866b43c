//! Refuses requests in which a header that decides about them occurs more than once. A proxy, a signature or the
//! application could each take another of the values for the right one.

use actix_web::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName};

use crate::error::{ApiError, Code};

/// Headers with a single value (RFC 9110) by which a request is authorized, routed or parsed. `Idempotency-Key` has an
/// error of its own.
const SINGLE: [HeaderName; 4] = [AUTHORIZATION, CONTENT_TYPE, CONTENT_ENCODING, HOST];

/// Checks that none of them is repeated.
///
/// # Errors
/// [`ApiError`] with status 400 and the name of the header.
pub fn refuse_repeated_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    match SINGLE.iter().find(|name| headers.get_all(*name).nth(1).is_some()) {
        Some(name) => Err(ApiError::new(Code::HeaderRepeated, format!("Send the header {name} once."))),
        None => Ok(()),
    }
}
