//! The anchors: signed statements about the ends of all journals.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::AnchorPage;
use postonce_shared::oversight::anchors::{AnchorLog, StoredAnchor};
use postonce_shared::ports::ledger::Listing;

use crate::access::authentication::Caller;
use crate::access::scopes::Admin;
use crate::api::arguments::Query;
use crate::api::pages::{PageParams, cursor};
use crate::api::refusals::AnchorListingRefusals;
use crate::api::views;
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
    responses((status = 200, description = "A page of the anchors.", body = AnchorPage), AnchorListingRefusals),
)]
pub async fn list(
    mut caller: Caller<Admin>,
    page: Query<PageParams>,
    request: HttpRequest,
    log: Data<AnchorLog>,
) -> Result<HttpResponse, ApiError> {
    const LISTING: &str = "anchors";
    let page = page.value()?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    // One more than requested, to know whether there is another page.
    let anchors = log.list(page.before(LISTING)?, page.limit.saturating_add(1)).await?;
    caller.confirm(&request).await?;
    let last = |anchor: &StoredAnchor| cursor(LISTING, &anchor.statement.sequence.to_string());
    let Listing { items, next: next_cursor } = Listing::first_of(anchors, page.limit, last);
    let anchors = items.into_iter().map(views::anchor).collect();
    Ok(HttpResponse::Ok().json(AnchorPage { anchors, next_cursor }))
}
