//! The anchors: signed statements about the ends of all journals.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::AnchorPage;
use postonce_shared::oversight::anchors::AnchorLog;

use crate::access::authentication::Caller;
use crate::access::scopes::Admin;
use crate::api::pages::{PageQuery, cursor};
use crate::api::parameters::PageParams;
use crate::api::refusals::AnchorListingRefusals;
use crate::api::respond;
use crate::error::ApiError;

/// List the anchors
///
/// Lists the anchors, the last one first. Keep copies of them outside of the bank: with them, `postonce-web verify --anchors`
/// finds each change of the decisions before, even if all hashes were computed again. The process that makes them needs
/// `anchor-key`.
#[utoipa::path(
    get,
    path = "/v1/admin/anchors",
    operation_id = "list_anchors",
    tag = "admin",
    params(PageParams),
    responses((status = 200, description = "A page of the anchors.", body = AnchorPage), AnchorListingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn list(
    _caller: Caller<Admin>,
    request: HttpRequest,
    log: Data<AnchorLog>,
) -> Result<HttpResponse, ApiError> {
    const LISTING: &str = "anchors";
    let page = PageQuery::of(&request)?;
    let before = page.position(LISTING)?.map(|sequence| sequence.parse()).transpose();
    let before = before.map_err(|_| ApiError::cursor_invalid())?;
    // One more than requested, to know whether there is another page.
    let mut anchors = log.list(before, page.limit.saturating_add(1)).await?;
    let more = anchors.len() > page.limit;
    anchors.truncate(page.limit);
    let last = anchors.last().filter(|_| more).map(|last| last.statement.sequence);
    let next_cursor = last.map(|sequence| cursor(LISTING, &sequence.to_string()));
    let anchors = anchors.into_iter().map(respond::anchor).collect();
    Ok(HttpResponse::Ok().json(AnchorPage { anchors, next_cursor }))
}
