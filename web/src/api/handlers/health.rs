//! Health and metrics, for machines that watch. None of this asks anything of the store.

use actix_web::HttpResponse;
use actix_web::web::Data;
use postonce_schemas::json::Health;

use crate::access::authentication::Caller;
use crate::access::scopes::Metrics as ReadMetrics;
use crate::api::refusals::MetricsRefusals;
use crate::error::ApiError;
use crate::metrics::{Metrics, OPENMETRICS};
use postonce_worker::readiness::Readiness;

/// Ask whether the process runs
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "get_liveness",
    tag = "health",
    responses((status = 200, description = "It runs.", body = Health)),
    security(())
)]
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "ok".into(), missing: Vec::new() })
}

/// Ask whether the service can do its work
///
/// As far as it was seen to work: asking does not ask the store.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "get_readiness",
    tag = "health",
    responses(
        (status = 200, description = "It can.", body = Health),
        (status = 503, description = "It cannot; `missing` says why.", body = Health),
    ),
    security(())
)]
pub async fn readyz(readiness: Data<Readiness>) -> HttpResponse {
    let missing: Vec<_> = readiness.missing().into_iter().map(Into::into).collect();
    if missing.is_empty() {
        HttpResponse::Ok().json(Health { status: "ok".into(), missing })
    } else {
        HttpResponse::ServiceUnavailable().json(Health { status: "unavailable".into(), missing })
    }
}

/// Read the metrics
///
/// Prometheus text (OpenMetrics).
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "get_metrics",
    tag = "health",
    responses(
        (status = 200, description = "The metrics of this process.", body = String, content_type = "application/openmetrics-text"),
        MetricsRefusals
    ),
    security(("api_key" = ["metrics"]))
)]
pub async fn metrics(_caller: Caller<ReadMetrics>, metrics: Data<Metrics>) -> Result<HttpResponse, ApiError> {
    let text = metrics.text().map_err(ApiError::internal)?;
    Ok(HttpResponse::Ok().content_type(OPENMETRICS).body(text))
}
