//! Protection against requests that other sites cause.

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, ORIGIN};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest};

use super::addresses::is_of_stream;
use super::context::is_own_origin;
use super::page_error::PageError;

/// Header that relates the origin of a request to its target (Fetch Metadata Request Headers, W3C).
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Value for a request from the same origin.
const SAME_ORIGIN: &str = "same-origin";
/// Header that tells a navigation from the load of a resource.
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// Header that tells how the browser uses the response.
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Middleware that refuses requests caused by other sites, except links. Other sites can then not act, keep a stream
/// open, or load a page of the console into their own, although the browser sends the cookie.
///
/// # Errors
/// Errors of the inner service.
pub async fn refuse_other_sites<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    if is_of_other_site(request.request()) && !is_link(request.request()) {
        let detail = "The request comes from a page of another site, so nothing was done. Open the page in the console itself.";
        let refusal = PageError::plain(StatusCode::FORBIDDEN, "Not a request of the console", detail);
        return Ok(ServiceResponse::from_err(refusal, request.into_parts().0).map_into_right_body());
    }
    Ok(next.call(request).await?.map_into_left_body())
}

/// Returns whether another site caused the request. Browsers send `Sec-Fetch-Site` over TLS, and `Origin` with every form.
fn is_of_other_site(request: &HttpRequest) -> bool {
    let mut sites = request.headers().get_all(SITE).peekable();
    let is_known = sites.peek().is_some();
    let is_own = |site: &str| site == SAME_ORIGIN || site == "none";
    if is_known {
        return !sites.all(|site| site.to_str().is_ok_and(is_own));
    }
    let mut origins = request.headers().get_all(ORIGIN);
    !origins.all(|origin| origin.to_str().is_ok_and(|origin| is_own_origin(request, origin)))
}

/// Returns whether the browser follows a link to a page or a download as a top-level navigation.
fn is_link(request: &HttpRequest) -> bool {
    let is = |name, expected: &str| {
        request.headers().get(name).is_some_and(|value| value.as_bytes() == expected.as_bytes())
    };
    *request.method() == Method::GET
        && is(MODE, "navigate")
        && is(DESTINATION, "document")
        && !is_of_stream(request)
}
