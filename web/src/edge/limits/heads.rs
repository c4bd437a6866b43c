//! How large the head of a request may be. The framework reads up to 128 KiB and 96 lines of it and
//! answers what is more with a bare status; this is the limit that is ours, with an answer that says so.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpRequest};
use postonce_shared::config::HttpLimits;

use crate::error::{ApiError, Code};

/// What stands between the name and the value of a header, and at the end of its line.
const AROUND_A_HEADER: usize = ": \r\n".len();
/// What stands around the target in the first line.
const AROUND_THE_TARGET: usize = "  HTTP/1.1\r\n".len();

/// Around every request: refuses one with too large a head.
///
/// # Errors
/// Those of what is around.
pub async fn bound_heads<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let most = request.app_data::<Data<HttpLimits>>().map_or(usize::MAX, |limits| limits.header_bytes_max);
    let bytes = head_bytes(request.request());
    if bytes > most {
        let detail =
            format!("The first line and the headers have {bytes} bytes together; {most} are allowed.");
        let refused =
            ServiceResponse::from_err(ApiError::new(Code::HeadersTooLarge, detail), request.into_parts().0);
        return Ok(refused.map_into_right_body());
    }
    Ok(next.call(request).await?.map_into_left_body())
}

/// The size of a head as HTTP/1.1 writes it, also of a request that came over HTTP/2.
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
    fn a_head_is_as_long_as_it_was_written() {
        let written = "GET /a?b=c HTTP/1.1\r\nx-one: 1\r\nx-one: 22\r\n";
        let request = TestRequest::get().uri("/a?b=c");
        let request = request.append_header(("x-one", "1")).append_header(("x-one", "22"));
        assert_eq!(head_bytes(&request.to_http_request()), written.len());
    }
}
