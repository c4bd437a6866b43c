//! The API key of the request.

use std::borrow::Cow;

use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::Key;

use crate::access::authentication::{Caller, Undecided};
use crate::access::keyring::Grant;
use crate::api::refusals::Refusals;
use crate::error::ApiError;
use crate::query;

/// Read the own key
///
/// Returns what the API key of the request grants, so that a client can offer what it may do. Every valid key may read this.
#[utoipa::path(
    get,
    path = "/v1/key",
    operation_id = "get_own_key",
    tag = "keys",
    responses((status = 200, description = "The key.", body = Key), Refusals),
)]
pub async fn find(caller: Caller<Undecided>, request: HttpRequest) -> Result<HttpResponse, ApiError> {
    query::refuse_unknown(&request)?;
    let Grant { key_id, scopes, expires_at, last_used_at: _, partner } = caller.grant();
    Ok(HttpResponse::Ok().json(Key {
        partner_id: partner.id.to_string(),
        key_id: key_id.clone(),
        scopes: scopes.iter().map(|scope| Cow::Borrowed(scope.code())).collect(),
        expires_at: expires_at.map(|at| at.to_string()),
    }))
}
