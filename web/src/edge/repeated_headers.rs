//! Refuses repeated single-value headers, of which a proxy, the signature and the application could use different values.

use actix_web::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName};

use crate::error::{ApiError, Code};

/// Single-value headers (RFC 9110) for authorization, routing or parsing. A repeated `Idempotency-Key` has its own error.
const SINGLE: [HeaderName; 4] = [AUTHORIZATION, CONTENT_TYPE, CONTENT_ENCODING, HOST];

/// Checks that no header with a single value is repeated.
///
/// # Errors
/// [`ApiError`] with status 400 and the name of the header.
pub fn refuse_repeated_headers(headers: &HeaderMap) -> Result<(), ApiError> {
    match SINGLE.iter().find(|name| headers.get_all(*name).nth(1).is_some()) {
        Some(name) => Err(ApiError::new(Code::HeaderRepeated, format!("Send the header {name} once."))),
        None => Ok(()),
    }
}
