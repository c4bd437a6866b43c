//! Answers to requests of an operator that were not carried out.

use std::fmt;

use actix_web::cookie::Cookie;
use actix_web::http::header::HeaderValue;
use actix_web::http::{Method, StatusCode, header};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, ResponseError};
use maud::Markup;
use postonce_shared::cluster::doorbell_secret::DoorbellKeys;

use super::addresses::{Section, sign_in_instead_of};
use super::context::Console;
use super::html::components::problem;
use super::html::shell::{Shell, page};
use super::local_api::LocalApi;

/// Time after which a browser repeats a request that the service could not answer, in seconds.
const REPEATED_AFTER_S: u64 = 15;

/// Page that explains why a request was not carried out, or a redirect.
#[derive(Debug)]
pub struct PageError {
    pub(super) status: StatusCode,
    pub(super) html: String,
    pub(super) location: Option<String>,
    pub(super) cookie: Option<Box<Cookie<'static>>>,
    /// Time after which the browser repeats the request automatically, in seconds.
    pub(super) repeated_after_s: Option<u64>,
}

impl PageError {
    /// Creates a page with this content.
    pub(super) const fn new(status: StatusCode, html: String) -> Self {
        Self { status, html, location: None, cookie: None, repeated_after_s: None }
    }

    /// Redirects the browser to another page of the console.
    pub fn see_other(location: impl Into<String>) -> Self {
        Self { location: Some(location.into()), ..Self::new(StatusCode::SEE_OTHER, String::new()) }
    }

    /// Redirects the browser to the sign-in page. `has_ended` tells that there was a session.
    pub fn not_signed_in(request: &HttpRequest, has_ended: bool) -> Self {
        Self::see_other(sign_in_instead_of(request, has_ended))
    }

    /// Creates a page for a request without a session.
    pub fn plain(status: StatusCode, title: &str, detail: &str) -> Self {
        let body = problem(status.as_u16(), title, detail);
        Self::new(status, without_session("Console", body).into_string())
    }

    /// Makes the browser repeat the request later, if the request only reads and the service is unavailable.
    #[must_use]
    pub fn repeated(self, method: &Method) -> Self {
        let is_repeated = *method == Method::GET && self.status == StatusCode::SERVICE_UNAVAILABLE;
        Self { repeated_after_s: is_repeated.then_some(REPEATED_AFTER_S), ..self }
    }

    /// Returns whether this is a redirect, which means that there is no valid session.
    pub const fn leads_elsewhere(&self) -> bool {
        self.location.is_some()
    }

    /// Returns the status as one line.
    pub fn summary(&self) -> String {
        format!("{} {}", self.status.as_u16(), self.status.canonical_reason().unwrap_or_default())
    }
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)
    }
}

impl ResponseError for PageError {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        if let Some(location) = &self.location {
            response.insert_header((header::LOCATION, location.as_str()));
        }
        if let Some(cookie) = &self.cookie {
            response.cookie(Cookie::clone(cookie));
        }
        if let Some(seconds) = self.repeated_after_s {
            response.insert_header((header::REFRESH, seconds));
        }
        answer(&mut response, self.html.clone())
    }
}

/// Returns the keys that encrypt sessions.
///
/// # Errors
/// [`PageError`] while the process has not read the secret.
pub fn keys(console: &Console) -> Result<DoorbellKeys, PageError> {
    console.secret.known().ok_or_else(|| {
        let detail = "The service is starting and cannot check sessions yet. Try again in a moment.";
        PageError::plain(StatusCode::SERVICE_UNAVAILABLE, "The service is starting", detail)
    })
}

/// Returns a page for a request without a session.
pub fn without_session(title: &str, body: Markup) -> Markup {
    page(&Shell { title, current: Section::Overview, viewer: None, live: None, plots: false }, body)
}

/// Returns the dependencies of the console.
///
/// # Errors
/// [`PageError`] when the server was built without a console.
pub fn parts(request: &HttpRequest) -> Result<(Data<Console>, Data<LocalApi>), PageError> {
    let parts =
        request.app_data::<Data<Console>>().cloned().zip(request.app_data::<Data<LocalApi>>().cloned());
    parts.ok_or_else(|| unanswered(&"the server was built without a console"))
}

/// Logs that the API gave no readable answer, which is a defect. Returns a page for the operator.
pub fn unanswered(fault: &dyn fmt::Display) -> PageError {
    tracing::error!("A request of the console to the API failed by a defect: {fault}");
    let detail = "The console could not read an answer of the API. The log contains the reason.";
    PageError::plain(StatusCode::INTERNAL_SERVER_ERROR, "The console failed", detail)
}

/// Answers with a page that must not be cached.
pub fn answer(response: &mut HttpResponseBuilder, html: String) -> HttpResponse {
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    response.content_type("text/html; charset=utf-8").body(html)
}
