//! Middleware that converts panics of handlers to error responses.

use std::panic::AssertUnwindSafe;

use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use futures::FutureExt as _;

use crate::error::ApiError;
use postonce_shared::panic_text::panic_text;

/// Middleware of each route. Responds with an internal error when the handler panics.
///
/// # Errors
/// Errors of the wrapped service.
pub async fn answer_panics(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let of_panic = request.request().clone();
    match AssertUnwindSafe(next.call(request)).catch_unwind().await {
        Ok(response) => Ok(response?.map_into_boxed_body()),
        Err(panic) => {
            let error = ApiError::internal(format!(
                "a handler panicked: {}",
                panic_text(&*panic).unwrap_or("without a message")
            ));
            Ok(ServiceResponse::from_err(error, of_panic))
        }
    }
}
