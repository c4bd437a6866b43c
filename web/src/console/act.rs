//! Forms submitted by a signed-in operator.

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::{FromRequest, HttpRequest, HttpResponse};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;

use super::addresses::with_query;
use super::html::forms::{CONFIRM, TOKEN};
use super::page_error::PageError;
use super::values::{FormLimits, Values};
use super::visitor::Visitor;
use crate::api::translate::limits;

const BYTES_MAX: usize = 16 * 1024;

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
        if self.form.text(CONFIRM) == expected {
            return Ok(());
        }
        let detail = "The confirmation is missing, so nothing was done. Go back and confirm it.";
        Err(self.visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Not confirmed", detail))
    }

    /// Refuses a form that lacks a value, which no page of the console sends.
    pub fn incomplete(&self, detail: &str) -> PageError {
        self.visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", detail)
    }

    /// Redirects the browser to a page, which announces what was done by its code.
    pub fn done(&self, page: &str, code: &str) -> HttpResponse {
        self.visitor.see_other(&with_query(page, &[("done", Some(code))]))
    }
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
