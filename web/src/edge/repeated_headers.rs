//! Refuses requests in which a header that decides about them occurs more than once. A proxy, a signature or the
//! application could each take another of the values for the right one.

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName};
use actix_web::middleware::Next;

use crate::error::{ApiError, Code};

/// Headers with a single value (RFC 9110) by which a request is authorized, routed or parsed. `Idempotency-Key` has an
/// error of its own.
const SINGLE: [HeaderName; 4] = [AUTHORIZATION, CONTENT_TYPE, CONTENT_ENCODING, HOST];

/// Middleware that refuses such a request.
///
/// # Errors
/// Those of the inner service.
pub async fn refuse_repeated_headers<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let repeated = SINGLE.iter().find(|name| request.headers().get_all(*name).nth(1).is_some());
    if let Some(name) = repeated {
        let detail = format!("Send the header {name} once.");
        let refused =
            ServiceResponse::from_err(ApiError::new(Code::HeaderRepeated, detail), request.into_parts().0);
        return Ok(refused.map_into_right_body());
    }
    Ok(next.call(request).await?.map_into_left_body())
}
