//! Checks of the request line and headers: their size, and repeated headers. The framework reads up to 128 KiB and
//! answers larger requests with a bare status; this lower limit is configurable and answers with a problem document.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpRequest};
use postonce_shared::config::HttpLimits;

use crate::edge::repeated_headers::refuse_repeated_headers;
use crate::error::{ApiError, Code};

/// Bytes that HTTP/1.1 adds to the name and value of a header: the separator and the line end.
const AROUND_A_HEADER: usize = ": \r\n".len();
/// Bytes that HTTP/1.1 adds to the method and target of the request line.
const AROUND_THE_TARGET: usize = "  HTTP/1.1\r\n".len();

/// Middleware that refuses a request whose headers are too large or ambiguous.
///
/// # Errors
/// Errors of the inner service.
pub async fn bound_heads<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let most = request.app_data::<Data<HttpLimits>>().map_or(usize::MAX, |limits| limits.header_bytes_max);
    match check_size(request.request(), most).and_then(|()| refuse_repeated_headers(request.headers())) {
        Ok(()) => Ok(next.call(request).await?.map_into_left_body()),
        Err(refusal) => Ok(ServiceResponse::from_err(refusal, request.into_parts().0).map_into_right_body()),
    }
}

fn check_size(request: &HttpRequest, most: usize) -> Result<(), ApiError> {
    let bytes = head_bytes(request);
    if bytes <= most {
        return Ok(());
    }
    let detail = format!("The request line and the headers have {bytes} bytes together; {most} are allowed.");
    Err(ApiError::new(Code::HeadersTooLarge, detail))
}

/// Returns the size of request line and headers in HTTP/1.1. A request over HTTP/2 is measured in the same way.
fn head_bytes(request: &HttpRequest) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let first = [request.method().as_str().len(), target, AROUND_THE_TARGET];
    let lines = request.headers().iter();
    let lines = lines.flat_map(|(name, value)| [name.as_str().len(), value.len(), AROUND_A_HEADER]);
    first.into_iter().chain(lines).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_size_is_that_of_the_written_headers() {
        let written = "GET /a?b=c HTTP/1.1\r\nx-one: 1\r\nx-one: 22\r\n";
        let request = TestRequest::get().uri("/a?b=c");
        let request = request.append_header(("x-one", "1")).append_header(("x-one", "22"));
        assert_eq!(head_bytes(&request.to_http_request()), written.len());
    }
}
