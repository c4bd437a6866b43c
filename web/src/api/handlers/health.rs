//! Health checks and metrics. None of these requests accesses the store.

use actix_web::HttpResponse;
use actix_web::web::Data;
use postonce_schemas::json::Health;
use postonce_worker::readiness::Readiness;

use crate::access::authentication::Caller;
use crate::access::scopes::Metrics as ReadMetrics;
use crate::api::refusals::MetricsRefusals;
use crate::api::surface::Surface;
use crate::error::ApiError;
use crate::metrics::{Metrics, OPENMETRICS};

/// Check that the process runs
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "get_liveness",
    tag = "health",
    responses((status = 200, description = "The process runs.", body = Health)),
    security(())
)]
pub async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(Health { status: "ok".into(), missing: Vec::new() })
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
        (status = 503, description = "The service is not ready; `missing` lists the unavailable parts.", body = Health),
    ),
    security(())
)]
pub async fn readyz(readiness: Data<Readiness>, surface: Data<Surface>) -> HttpResponse {
    let mut missing: Vec<_> = readiness.missing().into_iter().map(Into::into).collect();
    if missing.is_empty() {
        HttpResponse::Ok().json(Health { status: "ok".into(), missing })
    } else {
        if **surface == Surface::Partners {
            // What is missing is for operators, who have an address of their own.
            missing.clear();
        }
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
        (status = 200, description = "The metrics of this process: `application/openmetrics-text`.", body = String, content_type = "application/openmetrics-text"),
        MetricsRefusals
    ),
    security(("api_key" = ["metrics"]))
)]
pub async fn metrics(_caller: Caller<ReadMetrics>, metrics: Data<Metrics>) -> Result<HttpResponse, ApiError> {
    let text = metrics.text().map_err(ApiError::internal)?;
    Ok(HttpResponse::Ok().content_type(OPENMETRICS).body(text))
}
