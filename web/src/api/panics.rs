//! An answer to each request whose handler panicked.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use futures::FutureExt as _;

use crate::error::ApiError;

/// Middleware of each route: answers a request whose handler panicked with an internal error.
///
/// # Errors
/// Those of the wrapped service.
pub async fn answer_panics(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let of_panic = request.request().clone();
    match AssertUnwindSafe(next.call(request)).catch_unwind().await {
        Ok(response) => Ok(response?.map_into_boxed_body()),
        Err(panic) => {
            let error = ApiError::internal(format!("a handler panicked: {}", message_of(&*panic)));
            Ok(ServiceResponse::from_err(error, of_panic))
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
