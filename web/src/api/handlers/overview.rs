//! The overview of the whole bank, for the console of operators.

use actix_web::HttpResponse;
use actix_web::web::Data;
use postonce_schemas::json::Overview;
use postonce_shared::text::digits;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::authentication::Caller;
use crate::access::scopes::Metrics;
use crate::admin::overview::OverviewService;
use crate::api::arguments::{Query, QueryTexts};
use crate::api::refusals::Refusals;
use crate::api::views;
use crate::error::ApiError;
use crate::query::Violations;

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
    responses((status = 200, description = "The bank at this moment.", body = Overview), Refusals),
)]
pub async fn find(
    _caller: Caller<Metrics>,
    seconds: Query<OverviewParams>,
    service: Data<OverviewService>,
) -> Result<HttpResponse, ApiError> {
    let seconds = seconds.value()?;
    let overview = service.read(seconds).await.map_err(ApiError::queue)?;
    Ok(HttpResponse::Ok().json(views::overview(overview, service.scaling(), service.prices())))
}

/// The length of the activity.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OverviewParams {
    /// The length of `activity` in seconds.
    #[param(value_type = Option<u16>, minimum = 2, maximum = 3600, default = 60)]
    pub seconds: Option<String>,
}

impl QueryTexts for OverviewParams {
    type Value = u16;

    fn parse(self, violations: &mut Violations) -> Option<u16> {
        let rule = format!("must be a number of seconds from {SECONDS_MIN} to {SECONDS_MAX}");
        let seconds = violations.parse("seconds", self.seconds, &rule, |text| {
            digits(text).filter(|seconds| (SECONDS_MIN..=SECONDS_MAX).contains(seconds))
        });
        Some(seconds.unwrap_or(SECONDS_DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::api::arguments::QueryParameters as _;

    #[test]
    fn the_length_is_a_number_of_seconds_within_limits() {
        let parsed = |query: &str| {
            OverviewParams::read(
                &TestRequest::with_uri(&format!("/v1/admin/overview{query}")).to_http_request(),
            )
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
