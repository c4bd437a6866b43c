//! Values of forms and queries.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::{Payload, UrlEncoded};
use actix_web::error::UrlencodedError;
use actix_web::http::StatusCode;
use actix_web::web::Query;

use super::page_error::PageError;

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

    /// Parses the values of a query; none if it cannot be parsed.
    pub fn of_query(query: &str) -> Self {
        Self(Query::<Vec<(String, String)>>::from_query(query).map(Query::into_inner).unwrap_or_default())
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
