//! Health checks and metrics. None of these handlers accesses the store.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_process::build;
use postonce_process::http::metrics_format;
use postonce_process::readiness::{self, Readiness};
use postonce_schemas::json::{Health, MissingPart};
use postonce_shared::oversight::scrubber::ScrubberStatus;

use crate::access::authentication::{Caller, shares};
use crate::access::scopes::Metrics as ReadMetrics;
use crate::api::refusals::MetricsRefusals;
use crate::api::surface::Surface;
use crate::error::ApiError;
use crate::metrics::Metrics;

/// Check that the process runs
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "get_liveness",
    tag = "health",
    responses((status = 200, description = "The process runs.", body = Health)),
)]
pub async fn livez(surface: Data<Surface>) -> HttpResponse {
    let shown = |text: &'static str| surface.shows_build().then(|| text.into());
    let (version, commit) = (shown(build::VERSION), shown(build::COMMIT));
    HttpResponse::Ok().json(Health { version, commit, ..available() })
}

fn available() -> Health {
    Health {
        status: "ok".into(),
        version: None,
        commit: None,
        missing: Vec::new(),
        reasons: Vec::new(),
        oldest_accepted_at: None,
    }
}

/// Check that the service is ready
///
/// Based on recent requests and background checks; the request itself does not access the store.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "get_readiness",
    tag = "health",
    responses(
        (status = 200, description = "The service is ready.", body = Health),
        (status = 503, description = "The service is not ready; `missing` and `reasons` list the unavailable parts.", body = Health),
    ),
)]
pub async fn readyz(
    readiness: Data<Readiness>,
    scrubber: Data<ScrubberStatus>,
    surface: Data<Surface>,
) -> HttpResponse {
    let parts = readiness.missing();
    let mut health = available();
    if !parts.is_empty() {
        health.status = "unavailable".into();
    }
    // An address for partners only does not show the details, which are for operators.
    if **surface != Surface::Partners {
        health.oldest_accepted_at = oldest_accepted_at(&scrubber);
        health.missing = parts.iter().map(|missing| missing.part.code().into()).collect();
        health.reasons = parts.iter().map(reason).collect();
    }
    let status = if parts.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    HttpResponse::build(status).json(health)
}

/// Returns the acceptance time of the oldest open transaction, if this process scrubs.
fn oldest_accepted_at(scrubber: &ScrubberStatus) -> Option<String> {
    scrubber.report()?.oldest_accepted_at.map(|at| at.to_string())
}

fn reason(missing: &readiness::MissingPart) -> MissingPart {
    MissingPart {
        part: missing.part.code().to_owned(),
        reason: missing.reason.clone(),
        since: missing.since.to_string(),
    }
}

/// Read the metrics
///
/// Prometheus text 0.0.4, or OpenMetrics, if `Accept` prefers it.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "get_metrics",
    tag = "health",
    responses(
        (status = 200, description = "The metrics of this process.", content(
            (String = "text/plain"),
            (String = "application/openmetrics-text"),
        )),
        MetricsRefusals
    ),
)]
pub async fn metrics(
    mut caller: Caller<ReadMetrics>,
    request: HttpRequest,
    metrics: Data<Metrics>,
) -> Result<HttpResponse, ApiError> {
    let format = metrics_format(&request);
    let turn = caller.turn(&request, &shares(&request)?.scrapes).await?;
    let encode = async move {
        let _turn = turn;
        metrics.encode(format)
    };
    let encoded = shares(&request)?.page_threads.make(encode).await?.map_err(ApiError::internal)?;
    Ok(HttpResponse::Ok().content_type(format.content_type()).body(encoded))
}
