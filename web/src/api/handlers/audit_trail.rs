//! The audit trail of administrative acts.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::AuditPage;
use postonce_shared::domain::audit_row::AuditRow;
use postonce_shared::oversight::audit::AuditTrail;
use postonce_shared::ports::ledger::Listing;

use crate::access::authentication::Caller;
use crate::access::scopes::Admin;
use crate::api::arguments::Query;
use crate::api::pages::{PageParams, cursor};
use crate::api::refusals::AuditListingRefusals;
use crate::api::views;
use crate::error::ApiError;

/// List the audit trail
///
/// Lists the administrative acts that were done, the last one first. Each row contains the hash of the row before it, so
/// a row cannot be changed, removed or inserted without a trace; `postonce-web verify` checks this. Refused and failed
/// acts are only in the log.
#[utoipa::path(
    get,
    path = "/v1/admin/audit",
    operation_id = "list_audit_rows",
    tag = "admin",
    responses((status = 200, description = "A page of the audit trail.", body = AuditPage), AuditListingRefusals),
)]
pub async fn list(
    mut caller: Caller<Admin>,
    page: Query<PageParams>,
    request: HttpRequest,
    trail: Data<AuditTrail>,
) -> Result<HttpResponse, ApiError> {
    const LISTING: &str = "audit rows";
    let page = page.value()?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    // One more than requested, to know whether there is another page.
    let rows = trail.list(page.before(LISTING)?, page.limit.saturating_add(1)).await?;
    caller.confirm(&request).await?;
    let last = |row: &AuditRow| cursor(LISTING, &row.sequence.to_string());
    let Listing { items, next: next_cursor } = Listing::first_of(rows, page.limit, last);
    let rows = items.into_iter().map(views::audit_row).collect();
    Ok(HttpResponse::Ok().json(AuditPage { rows, next_cursor }))
}
