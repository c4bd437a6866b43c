//! The overview of the whole bank, for the console of operators.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::Overview;
use postonce_shared::text::digits;

use crate::access::authentication::Caller;
use crate::access::scopes::Metrics;
use crate::admin::overview::OverviewService;
use crate::api::overview_report;
use crate::api::parameters::OverviewParams;
use crate::api::refusals::Refusals;
use crate::error::ApiError;
use crate::query::{self, Violations};

/// Default length of the activity, in seconds.
const SECONDS_DEFAULT: u16 = 60;
/// Minimum and maximum length of the activity, in seconds.
const SECONDS_MIN: u16 = 2;
const SECONDS_MAX: u16 = 3600;

/// Read the overview
///
/// Gate, processes, activity, queues, scaling and costs of the whole bank. It can be read every second: all callers together cause
/// at most 60 storage operations a minute, besides the check of their API keys. Therefore the queues and the list of processes can
/// be a minute old, and older with many web processes; activity, gate and readiness are those of the last seconds.
#[utoipa::path(
    get,
    path = "/v1/admin/overview",
    operation_id = "get_overview",
    tag = "admin",
    params(OverviewParams),
    responses((status = 200, description = "The bank at this moment.", body = Overview), Refusals),
    security(("api_key" = ["metrics"]))
)]
pub async fn find(
    _caller: Caller<Metrics>,
    request: HttpRequest,
    service: Data<OverviewService>,
) -> Result<HttpResponse, ApiError> {
    let seconds = seconds(&request)?;
    let overview = service.read(seconds).await.map_err(ApiError::queue)?;
    Ok(HttpResponse::Ok().json(overview_report::overview(overview, service.scaling(), service.prices())))
}

/// Parses the length of the activity.
///
/// # Errors
/// [`ApiError`] with status 400 and the violation.
fn seconds(request: &HttpRequest) -> Result<u16, ApiError> {
    let OverviewParams { seconds } = query::texts(request)?;
    let mut violations = Violations::default();
    let rule = format!("must be a number of seconds from {SECONDS_MIN} to {SECONDS_MAX}");
    let seconds = violations.parse("seconds", seconds, &rule, |text| {
        digits(text).filter(|seconds| (SECONDS_MIN..=SECONDS_MAX).contains(seconds))
    });
    violations.finish(seconds.unwrap_or(SECONDS_DEFAULT))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_length_is_a_number_of_seconds_within_limits() {
        let parsed = |query: &str| {
            seconds(&TestRequest::with_uri(&format!("/v1/admin/overview{query}")).to_http_request())
        };
        for (query, expected) in [("", 60), ("?seconds=2", 2), ("?seconds=3600", 3600), ("?seconds=061", 61)]
        {
            assert_eq!(parsed(query).unwrap(), expected, "{query}");
        }
        for wrong in ["", "1", "3601", "+60", "-60", "6.5", "70000", "minute"] {
            let problem =
                serde_json::to_value(parsed(&format!("?seconds={wrong}")).unwrap_err().problem()).unwrap();
            assert_eq!(problem["violations"][0]["field"], "seconds", "{wrong}: {problem}");
        }
    }
}
