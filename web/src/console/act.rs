//! Forms submitted by a signed-in operator.

use std::time::Duration;

use actix_web::dev::{Payload, UrlEncoded};
use actix_web::error::UrlencodedError;
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpRequest};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::page_error::PageError;
use super::visitor::Visitor;
use crate::api::translate::limits;

/// Value of a ticked confirmation box.
pub const CONFIRMED: &str = "yes";
const BYTES_MAX: usize = 16 * 1024;
/// Name of the hidden field that contains the token of the session.
pub const TOKEN: &str = "csrf";

/// Form that a signed-in operator submitted on a page of the console. Requests from other sites are refused before
/// ([`super::other_sites::refuse_other_sites`]), and other sites do not know the token.
pub struct Act {
    /// The operator.
    pub visitor: Visitor,
    /// Values of the form.
    pub form: Values,
}

impl Act {
    /// Checks the confirmation in the form. The page requires it too, but the server must not rely on that.
    ///
    /// # Errors
    /// [`PageError`] unless the form contains the `expected` confirmation.
    pub fn check_confirmed(&self, expected: &str) -> Result<(), PageError> {
        if self.form.text("confirm") == expected {
            return Ok(());
        }
        let detail = "The confirmation is missing, so nothing was done. Go back and confirm it.";
        Err(self.visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Not confirmed", detail))
    }
}

/// Values of a form or a query, by name. A name can occur several times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(Vec<(String, String)>);

impl Values {
    /// Returns the first value of a name, trimmed; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(of, _)| of == name).map_or("", |(_, value)| value.trim())
    }

    /// Returns the first value of a name, trimmed; `None` if it is missing or empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Returns all values of a name, trimmed.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(of, _)| of == name).map(|(_, value)| value.trim()).collect()
    }

    /// Parses the values of a query; none if it cannot be parsed.
    pub fn of_query(request: &HttpRequest) -> Self {
        let read = actix_web::web::Query::<Vec<(String, String)>>::from_query(request.query_string());
        Self(read.map(actix_web::web::Query::into_inner).unwrap_or_default())
    }

    /// Reads the values of a form.
    ///
    /// # Errors
    /// [`PageError`] when the body is not a form, is too large, or takes too long.
    pub async fn of_body(
        request: &HttpRequest,
        payload: &mut Payload,
        FormLimits { bytes_max, time_max }: FormLimits,
    ) -> Result<Self, PageError> {
        let reading = UrlEncoded::<Vec<(String, String)>>::new(request, payload).limit(bytes_max);
        let Ok(form) = tokio::time::timeout(time_max, reading).await else {
            let detail = format!("The form took longer than {time_max:?}, so nothing was done. Try again.");
            return Err(PageError::plain(StatusCode::REQUEST_TIMEOUT, "The form took too long", &detail));
        };
        form.map(Self).map_err(|error| {
            if matches!(error, UrlencodedError::Overflow { .. }) {
                let detail = format!("A form has at most {bytes_max} bytes here, so nothing was done.");
                return PageError::plain(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large", &detail);
            }
            let detail = format!("The form cannot be read: {error}. Reload the page and try again.");
            PageError::plain(StatusCode::BAD_REQUEST, "The form cannot be read", &detail)
        })
    }
}

/// Limits of a form.
#[derive(Debug, Clone, Copy)]
pub struct FormLimits {
    /// Maximum size in bytes.
    pub bytes_max: usize,
    /// Time limit for receiving the form.
    pub time_max: Duration,
}

impl FromRequest for Act {
    type Error = PageError;
    type Future = LocalBoxFuture<'static, Result<Self, PageError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, mut payload) = (request.clone(), payload.take());
        async move {
            let visitor = Visitor::extract(&request).await?;
            let limits = FormLimits { bytes_max: BYTES_MAX, time_max: limits(&request).body_timeout };
            let form = Values::of_body(&request, &mut payload, limits).await?;
            if !visitor.has_token(form.text(TOKEN)) {
                let detail = "The form did not come from a page of this session, so nothing was done. Open the page again, and \
                              repeat it there.";
                return Err(visitor.refuse(StatusCode::FORBIDDEN, "The form is not of this session", detail));
            }
            Ok(Self { visitor, form })
        }
        .boxed_local()
    }
}
