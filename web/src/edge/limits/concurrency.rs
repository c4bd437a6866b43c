//! Limit on the requests in progress. Over HTTP/1.1, the limit on connections also limits requests. One HTTP/2
//! connection can carry any number of requests, each with a body in memory.

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use tokio::sync::Semaphore;

use crate::access::authentication::{is_of_operators, is_of_session};
use crate::edge::keyless::INTERNAL_PATHS;
use crate::error::{ApiError, Code};
use crate::query;

/// Health checks are exempt, so that a busy process is not taken for a dead one.
const ALWAYS_ANSWERED: [&str; 2] = ["/livez", "/readyz"];

/// Permits for the requests in progress.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    of_clients: Semaphore,
    of_operators: Semaphore,
}

impl ConcurrencyLimit {
    /// Allows `requests_max` requests, and as many more on the paths of operators, who must act while the process is busy.
    pub fn new(requests_max: usize) -> Self {
        let permits = || Semaphore::new(requests_max.min(Semaphore::MAX_PERMITS));
        Self { of_clients: permits(), of_operators: permits() }
    }

    /// Returns the permits for a request; `None` for health checks, and for requests of other processes, which have a
    /// limit of their own: their signature is verified when the body is received.
    fn permits(&self, request: &ServiceRequest) -> Option<&Semaphore> {
        let path = query::path(request.request());
        if ALWAYS_ANSWERED.contains(&path) || path.starts_with(INTERNAL_PATHS) {
            return None;
        }
        let is_of_operators = is_of_operators(path) || is_of_session(request.request());
        Some(if is_of_operators { &self.of_operators } else { &self.of_clients })
    }
}

/// Middleware that refuses a request above the [`ConcurrencyLimit`] with status 503. The permit is held until the
/// answer is ready or the request is dropped. Over HTTP/1.1, a request is dropped when its client closes the
/// connection. Over HTTP/2, the framework completes a request even if its client resets the stream.
///
/// # Errors
/// Errors of the inner service.
pub async fn limit_concurrency<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let limit = request.app_data::<Data<ConcurrencyLimit>>().cloned();
    let permit = limit.as_ref().and_then(|limit| limit.permits(&request)).map(Semaphore::try_acquire);
    if matches!(permit, Some(Err(_))) {
        let error = ApiError::new(Code::Overloaded, "Try again in a moment: the request was not processed.");
        return Ok(ServiceResponse::from_err(error, request.into_parts().0).map_into_right_body());
    }
    Ok(next.call(request).await?.map_into_left_body())
}

#[cfg(test)]
mod tests {
    use actix_web::HttpMessage as _;
    use actix_web::http::StatusCode;
    use actix_web::middleware::from_fn;
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::{App, HttpResponse, web};
    use futures::FutureExt as _;

    use super::*;
    use crate::access::console_request::MadeByConsole;

    #[actix_web::test]
    async fn a_request_that_is_dropped_or_answered_returns_its_permit() {
        let app = App::new()
            .app_data(Data::new(ConcurrencyLimit::new(1)))
            .route("/answered", web::get().to(HttpResponse::Ok))
            .route("/pending", web::get().to(std::future::pending::<HttpResponse>))
            .route("/livez", web::get().to(HttpResponse::Ok))
            .route("/v1/admin/gate", web::get().to(HttpResponse::Ok))
            .route("/v1/admin/pending", web::get().to(std::future::pending::<HttpResponse>))
            .route("/v1/key", web::get().to(HttpResponse::Ok))
            .route("/internal/ring", web::get().to(HttpResponse::Ok))
            .wrap(from_fn(limit_concurrency));
        let app = init_service(app).await;
        let status = async |path| call_service(&app, TestRequest::with_uri(path).to_request()).await.status();
        let mut pending = Box::pin(status("/pending"));
        assert_eq!((&mut pending).now_or_never(), None);
        for _ in 0..2 {
            // The second refusal shows that a refused request takes no permit.
            assert_eq!(status("/answered").await, StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(status("/livez").await, StatusCode::OK);
        assert_eq!(status("/v1/admin/gate").await, StatusCode::OK);
        assert_eq!(status("/internal/ring").await, StatusCode::OK);
        assert_eq!(
            status("/v1/key").await,
            StatusCode::SERVICE_UNAVAILABLE,
            "as any other request of a client"
        );
        let of_console = TestRequest::with_uri("/v1/key").to_request();
        of_console.extensions_mut().insert(MadeByConsole { for_stream: false });
        assert_eq!(call_service(&app, of_console).await.status(), StatusCode::OK);
        drop(pending);
        let mut pending = Box::pin(status("/v1/admin/pending"));
        assert_eq!((&mut pending).now_or_never(), None);
        assert_eq!(status("/v1/admin/gate").await, StatusCode::SERVICE_UNAVAILABLE, "they have a limit, too");
        for _ in 0..2 {
            assert_eq!(status("/answered").await, StatusCode::OK);
        }
    }
}
