//! Dead letters: look, try again, discard.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{DeadLetter, DeadLetterPage};
use postonce_shared::protocol::dead_letters::ResolveOutcome;

use crate::access::authentication::Caller;
use crate::access::scopes::Admin;
use crate::admin::service::AdminService;
use crate::api::pages::{PageQuery, cursor};
use crate::api::parameters::{DeadLetterPath, PageParams, ResolvedParam};
use crate::api::refusals::{DeadLetterRefusals, DecisionRefusals, LetterListingRefusals};
use crate::api::respond;
use crate::error::{ApiError, Code};

/// List dead letters
///
/// Those that nobody decided about yet; with `resolved=include`, all of them.
#[utoipa::path(
    get,
    path = "/v1/admin/dead-letters",
    operation_id = "list_dead_letters",
    tag = "admin",
    params(PageParams, ResolvedParam),
    responses((status = 200, description = "A page of dead letters, by id.", body = DeadLetterPage), LetterListingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn list(
    _caller: Caller<Admin>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let page = PageQuery::of(&request)?;
    let listing = if page.include_resolved { "all dead letters" } else { "open dead letters" };
    let position = page.position(listing)?;
    let found = admin.dead_letters(!page.include_resolved, position.as_deref(), page.limit).await?;
    Ok(HttpResponse::Ok().json(DeadLetterPage {
        dead_letters: found.items.into_iter().map(respond::dead_letter).collect(),
        next_cursor: found.next.map(|next| cursor(listing, &next)),
    }))
}

/// Read a dead letter
///
/// Resolved ones stay readable.
#[utoipa::path(
    get,
    path = "/v1/admin/dead-letters/{id}",
    operation_id = "get_dead_letter",
    tag = "admin",
    params(DeadLetterPath),
    responses((status = 200, description = "The letter.", body = DeadLetter), DeadLetterRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn find(
    _caller: Caller<Admin>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    letter(&admin, id(&request)).await
}

/// Send the work of a dead letter again
///
/// What became final in the meantime stays as it is.
#[utoipa::path(
    post,
    path = "/v1/admin/dead-letters/{id}/replay",
    operation_id = "replay_dead_letter",
    tag = "admin",
    params(DeadLetterPath),
    responses((status = 200, description = "Sent again; the letter with who did it.", body = DeadLetter), DecisionRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn replay(
    caller: Caller<Admin>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let decided = admin.replay(id(&request), caller.partner()).await?;
    decision(&admin, id(&request), decided).await
}

/// Discard a dead letter
///
/// What is not final in it is rejected with the reason `discarded`.
#[utoipa::path(
    delete,
    path = "/v1/admin/dead-letters/{id}",
    operation_id = "discard_dead_letter",
    tag = "admin",
    params(DeadLetterPath),
    responses((status = 200, description = "Discarded; the letter with who did it.", body = DeadLetter), DecisionRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn discard(
    caller: Caller<Admin>,
    request: HttpRequest,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let decided = admin.discard(id(&request), caller.partner()).await?;
    decision(&admin, id(&request), decided).await
}

fn id(request: &HttpRequest) -> &str {
    request.match_info().query("id")
}

async fn decision(admin: &AdminService, id: &str, decided: ResolveOutcome) -> Result<HttpResponse, ApiError> {
    match decided {
        ResolveOutcome::Done => letter(admin, id).await,
        ResolveOutcome::Unknown => Err(unknown()),
        ResolveOutcome::AlreadyResolved => {
            let detail = "Read the letter to see what was decided, by whom and when.";
            Err(ApiError::new(Code::DeadLetterResolved, detail))
        }
    }
}

async fn letter(admin: &AdminService, id: &str) -> Result<HttpResponse, ApiError> {
    let letter = admin.dead_letter(id).await?.ok_or_else(unknown)?;
    Ok(HttpResponse::Ok().json(respond::dead_letter(letter)))
}

fn unknown() -> ApiError {
    ApiError::new(Code::DeadLetterUnknown, "List the dead letters to see which there are.")
}
