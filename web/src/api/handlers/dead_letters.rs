//! Dead letters: list, read, replay, discard.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{DeadLetter, DeadLetterPage};
use postonce_shared::ports::ledger::Listing;
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::authentication::Caller;
use crate::access::scopes::Operate;
use crate::admin::service::AdminService;
use crate::api::arguments::{Path, Query, QueryTexts};
use crate::api::pages::{PageParams, cursor, page_of_large};
use crate::api::paths::DeadLetterPath;
use crate::api::refusals::{DeadLetterRefusals, DecisionRefusals, LetterListingRefusals};
use crate::api::views;
use crate::error::{ApiError, Code};
use crate::query::Violations;

/// List dead letters
///
/// Lists open dead letters; with `resolved=include`, resolved ones too. A page can be short before the end. On the last page,
/// `next_cursor` is null.
#[utoipa::path(
    get,
    path = "/v1/admin/dead-letters",
    operation_id = "list_dead_letters",
    tag = "admin",
    responses((status = 200, description = "A page of dead letters, by id.", body = DeadLetterPage), LetterListingRefusals),
)]
pub async fn list(
    mut caller: Caller<Operate>,
    query: Query<(PageParams, ResolvedParam)>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let (page, with_resolved) = query.value()?;
    let listing = if with_resolved { "all dead letters" } else { "open dead letters" };
    let position = page.position(listing)?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    let read = async |position: Option<&str>, count| {
        let found = admin.dead_letters(!with_resolved, position, count).await?;
        let items = found.items.into_iter().map(views::dead_letter).collect();
        Ok::<_, ApiError>(Listing { items, next: found.next })
    };
    let Listing { items: dead_letters, next } = page_of_large(page.limit, position, read).await?;
    caller.confirm(&request).await?;
    let next_cursor = next.map(|next| cursor(listing, &next));
    Ok(HttpResponse::Ok().json(DeadLetterPage { dead_letters, next_cursor }))
}

/// Read a dead letter
///
/// Resolved dead letters can still be read.
#[utoipa::path(
    get,
    path = "/v1/admin/dead-letters/{id}",
    operation_id = "get_dead_letter",
    tag = "admin",
    responses((status = 200, description = "The dead letter.", body = DeadLetter), DeadLetterRefusals),
)]
pub async fn find(
    _caller: Caller<Operate>,
    path: Path<DeadLetterPath>,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    letter(&admin, &path.value()?.id).await
}

/// Replay a dead letter
///
/// Enqueues its transactions again. Transactions that are already final do not change.
#[utoipa::path(
    post,
    path = "/v1/admin/dead-letters/{id}/replay",
    operation_id = "replay_dead_letter",
    tag = "admin",
    responses((status = 200, description = "Enqueued again; the resolved dead letter.", body = DeadLetter), DecisionRefusals),
)]
pub async fn replay(
    mut caller: Caller<Operate>,
    path: Path<DeadLetterPath>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let id = path.value()?.id;
    let act =
        async |caller: &Caller<Operate>| Ok(admin.replay(&id, (caller.partner(), caller.standing())).await?);
    let decided = caller.under_present_rights(&request, act).await?;
    decision(&admin, &id, decided).await
}

/// Discard a dead letter
///
/// Its transactions that are not final are rejected with the reason `discarded`.
#[utoipa::path(
    delete,
    path = "/v1/admin/dead-letters/{id}",
    operation_id = "discard_dead_letter",
    tag = "admin",
    responses((status = 200, description = "Discarded; the resolved dead letter.", body = DeadLetter), DecisionRefusals),
)]
pub async fn discard(
    mut caller: Caller<Operate>,
    path: Path<DeadLetterPath>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let id = path.value()?.id;
    let act = async |caller: &Caller<Operate>| {
        Ok(admin.discard(&id, (caller.partner(), caller.standing())).await?)
    };
    let decided = caller.under_present_rights(&request, act).await?;
    decision(&admin, &id, decided).await
}

/// Filter of dead letters.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ResolvedParam {
    /// `include` lists resolved dead letters too.
    #[param(pattern = "^include$")]
    pub resolved: Option<String>,
}

impl QueryTexts for ResolvedParam {
    /// Whether resolved dead letters are listed, too.
    type Value = bool;

    fn parse(self, violations: &mut Violations) -> Option<bool> {
        let is_include = |text: &str| (text == "include").then_some(true);
        let resolved = violations.parse("resolved", self.resolved, "must be include, or absent", is_include);
        Some(resolved.unwrap_or(false))
    }
}

async fn decision(admin: &AdminService, id: &str, decided: ResolveOutcome) -> Result<HttpResponse, ApiError> {
    match decided {
        ResolveOutcome::Done => letter(admin, id).await,
        ResolveOutcome::Unknown => Err(unknown()),
        ResolveOutcome::AlreadyResolved => {
            let detail = "Read the dead letter to see how it was resolved, by whom and when.";
            Err(ApiError::new(Code::DeadLetterResolved, detail))
        }
    }
}

async fn letter(admin: &AdminService, id: &str) -> Result<HttpResponse, ApiError> {
    let letter = admin.dead_letter(id).await?.ok_or_else(unknown)?;
    Ok(HttpResponse::Ok().json(views::dead_letter(letter)))
}

fn unknown() -> ApiError {
    ApiError::new(Code::DeadLetterUnknown, "List the dead letters to find their ids.")
}
