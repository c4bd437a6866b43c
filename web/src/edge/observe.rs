//! Middleware around every request: counts and logs it once, marks failed parts in [`Readiness`], and limits the
//! memory of its answer. Bodies and keys are never logged.

use std::sync::Arc;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::ErrorInternalServerError;
use actix_web::http::header::{self, HeaderName};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _};
use postonce_process::readiness::Readiness;
use postonce_shared::access::token_bucket::RateStatus;
use postonce_shared::domain::partner::Partner;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use postonce_shared::tracer::Tracer;
use tracing::Instrument as _;

use crate::access::authentication::is_of_session;
use crate::access::console_request::{MadeByConsole, ToConsole};
use crate::access::rates::RetryAfter;
use crate::access::{acts, audit};
use crate::api::payment_log::NotedPayment;
use crate::edge::keyless::close_keyless;
use crate::edge::large_answers::bound_large_answers;
use crate::edge::limits::fields;
use crate::edge::request_ids::RequestIds;
use crate::edge::span;
use crate::error::{ApiError, Fault};
use crate::metrics::Metrics;

/// Header with the quota of the caller (draft-ietf-httpapi-ratelimit-headers-10).
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const READINESS: &str = "/readyz";

/// Dependencies of [`observe`].
pub struct Observer {
    /// Request metrics.
    pub metrics: Arc<Metrics>,
    /// Readiness, which records failed parts.
    pub readiness: Arc<Readiness>,
    /// Records requests as spans.
    pub tracer: Arc<Tracer>,
    /// Clock for the duration of requests.
    pub world: Arc<dyn World>,
}

/// Middleware of the whole application. An administrative act is completed and recorded even if its client disconnects.
///
/// # Errors
/// Errors that the application did not convert to a response.
pub async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let Some(observer) = request.app_data::<Data<Observer>>().cloned() else {
        return next.call(request).await.map(ServiceResponse::map_into_boxed_body);
    };
    let ids = RequestIds::of(request.headers(), &observer.tracer, &*observer.world);
    request.extensions_mut().insert(ids.origin());
    let route = request.match_pattern().unwrap_or_default();
    let tracer = Arc::clone(&observer.tracer);
    let operation = span::begin(&tracer, (&request, known(request.method()), &route), &ids);
    // All log lines about the request carry its ids, and the id of its span if it is recorded.
    let span = tracing::info_span!(
        "request",
        request_id = ids.request_id(),
        trace_id = ids.trace_id(),
        span_id = operation.as_ref().map(|_| ids.place().span_id()),
    );
    let is_act = acts::is_without_own_id(request.method().as_str(), &route);
    let observed = observed(observer, request, next).instrument(span);
    let mut response = if is_act {
        actix_web::rt::spawn(observed).await.unwrap_or_else(|ended| Err(ErrorInternalServerError(ended)))?
    } else {
        observed.await?
    };
    if let Some(operation) = operation {
        span::end(operation, &response);
    }
    ids.of_answer().into_iter().for_each(|(name, value)| drop(response.headers_mut().insert(name, value)));
    Ok(response)
}

async fn observed(
    observer: Data<Observer>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = observer.world.uptime();
    let method = known(request.method()).unwrap_or("OTHER");
    let mut response = bound_large_answers(next.call(request).await?);
    insert_rate_limit_headers(&mut response);
    close_keyless(&mut response);
    let took = observer.world.uptime().saturating_sub(started);

    let route = response.request().match_pattern().unwrap_or_else(|| "unmatched".to_owned());
    let status = response.status();
    observer.metrics.answered(&route, method, status.as_u16(), took);
    let partner = response.request().extensions().get::<Arc<Partner>>().map(|partner| partner.id.to_string());
    let to_console = ToConsole::of(response.request());
    let partner = partner.or_else(|| to_console.key.map(|key| key.partner));
    // If the API refused a request of the console, the API has counted that refusal.
    if status == StatusCode::TOO_MANY_REQUESTS
        && !to_console.is_refused_by_api
        && let Some(partner) = &partner
    {
        observer.metrics.over_rate(partner);
    }
    if let Some(Fault { cause, part }) = fault_of(&response) {
        let why = chain(&**cause);
        // Two call sites, because equal lines are limited per call site: an outage must not hide a defect.
        if let Some(part) = part {
            observer.readiness.lose(*part);
            tracing::error!(method, route, "{method} {route} failed: {why}");
        } else {
            tracing::error!(method, route, "{method} {route} failed by a defect: {why}");
        }
    }
    let made_by_console = MadeByConsole::of(response.request());
    // Failed readiness checks are no service failures, and the API has counted its failures for a console page.
    if status.is_server_error() && route != READINESS && !to_console.is_failed_by_api {
        observer.metrics.failed();
    }
    audit::record(&response, method, &route).await;
    // Not logged, unlike the page itself: its reads every second, and the look-up of the session's key.
    if made_by_console.is_some_and(|made| made.for_stream) || is_of_session(response.request()) {
        return Ok(response);
    }
    // The address identifies requests without a partner.
    let from = if partner.is_none() { audit::origin(response.request()) } else { String::new() };
    let (partner, status) = (partner.unwrap_or_default(), status.as_u16());
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let extensions = response.request().extensions();
    let payment = extensions.get::<NotedPayment>();
    tracing::info!(
        target: "postonce::access",
        method, route, status, ms, partner, from,
        message_id = payment.map(|payment| &*payment.message_id),
        account = payment.map(|payment| &*payment.account),
        transaction = payment.and_then(|payment| payment.status),
        order_number = payment.and_then(|payment| payment.order_number.as_deref()),
        "{method} {route} answered {status}"
    );
    drop(extensions);
    Ok(response)
}

/// Adds the remaining quota for authenticated callers, and `Retry-After` if the request was refused with a wait.
fn insert_rate_limit_headers<B>(response: &mut ServiceResponse<B>) {
    let (standing, retry_after) = {
        let extensions = response.request().extensions();
        (extensions.get::<RateStatus>().copied(), extensions.get::<RetryAfter>().copied())
    };
    let standing =
        standing.map(|it| [(RATE_LIMIT_POLICY, fields::policy(&it)), (RATE_LIMIT, fields::limit(&it))]);
    let retry_after = retry_after.map(|RetryAfter(seconds)| (header::RETRY_AFTER, seconds.to_string()));
    for (name, value) in standing.into_iter().flatten().chain(retry_after) {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
}

fn fault_of<B>(response: &ServiceResponse<B>) -> Option<&Fault> {
    response.response().error()?.as_error::<ApiError>()?.fault()
}

/// Returns the label of a method, if it is known. The set is closed, so that clients cannot create new label values.
fn known(method: &Method) -> Option<&'static str> {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.into_iter().find(|name| *name == method.as_str())
}
