//! Who may do what: partners, their keys, and what they sign with.
//!
//! Nobody shuts itself out: a request that would end the very key it comes with, or suspend the very partner, is
//! refused. Another key can do it, or `postonce-web` on the command line.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{
    NewPartnerKey, Partner as WirePartner, PartnerKeyRequest, PartnerPage, PartnerSignatureKeyRequest,
    PartnerTerms,
};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, PartnerStatus};

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::partner_service::{Changed, PartnerService, Put};
use crate::access::partner_terms::{Unfit, add_signature_key, remove_signature_key};
use crate::access::scopes::Admin;
use crate::api::pages::{PageQuery, cursor};
use crate::api::parameters::{PageParams, PartnerKeyPath, PartnerPath, PartnerPutHeaders};
use crate::api::refusals::{
    KeyAddingRefusals, KeyRevokingRefusals, PartnerListingRefusals, PartnerPuttingRefusals, PartnerRefusals,
    SignatureKeyAddingRefusals,
};
use crate::api::translate::{self, InboundDocument};
use crate::api::{paths, respond};
use crate::error::{ApiError, Code};

/// List the partners
#[utoipa::path(
    get,
    path = "/v1/admin/partners",
    operation_id = "list_partners",
    tag = "admin",
    params(PageParams),
    responses((status = 200, description = "A page of partners, by name.", body = PartnerPage), PartnerListingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn list(
    _caller: Caller<Admin>,
    request: HttpRequest,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    const LISTING: &str = "partners";
    let page = PageQuery::of(&request)?;
    let after = page.position(LISTING)?.map(|id| PartnerId::parse(&id)).transpose();
    let after = after.map_err(|_| ApiError::cursor_invalid())?;
    // One more than asked for, to know whether there is more.
    let mut partners = desk.list(after.as_ref(), page.limit.saturating_add(1)).await?;
    let more = partners.len() > page.limit;
    partners.truncate(page.limit);
    let next_cursor = partners.last().filter(|_| more).map(|last| cursor(LISTING, last.id.as_str()));
    let scopes = desk.scopes_of(&partners).await?;
    let partners = partners.iter().map(|partner| respond::partner(partner, &scopes)).collect();
    Ok(HttpResponse::Ok().json(PartnerPage { partners, next_cursor }))
}

/// Read a partner
///
/// `ETag` names its state, for `If-Match`.
#[utoipa::path(
    get,
    path = "/v1/admin/partners/{partner_id}",
    operation_id = "get_partner",
    tag = "admin",
    params(PartnerPath),
    responses(
        (status = 200, description = "The partner.", body = WirePartner, headers(
            ("ETag" = String, description = "Names the state of the partner."),
        )),
        PartnerRefusals
    ),
    security(("api_key" = ["admin"]))
)]
pub async fn find(
    _caller: Caller<Admin>,
    request: HttpRequest,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = paths::partner(&request)?;
    let partner = desk.find(&id).await?.ok_or_else(unknown)?;
    answer(HttpResponse::Ok(), &desk, &partner).await
}

/// Make a partner, or change its terms
///
/// What it may touch is always said whole; other members that are left out stay as they are. A change counts in
/// every process within a second; in one that cannot be reached, within 5 minutes. With `If-Match` it is made
/// only if the partner is still in the state that the `ETag` named. A new partner has no keys.
#[utoipa::path(
    put,
    path = "/v1/admin/partners/{partner_id}",
    operation_id = "put_partner",
    tag = "admin",
    params(PartnerPath, PartnerPutHeaders),
    request_body(content = PartnerTerms, content_type = "application/json"),
    responses(
        (status = 201, description = "It is new.", body = WirePartner, headers(
            ("ETag" = String, description = "Names the state of the partner."),
        )),
        (status = 200, description = "It was known, and has these terms now.", body = WirePartner, headers(
            ("ETag" = String, description = "Names the state of the partner."),
        )),
        PartnerPuttingRefusals
    ),
    security(("api_key" = ["admin"]))
)]
pub async fn put(
    caller: Caller<Admin>,
    request: HttpRequest,
    payload: Payload,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = paths::partner(&request)?;
    let document = InboundDocument::read(&request, payload).await?;
    let terms = translate::partner_terms(&document)?;
    if terms.status == Some(PartnerStatus::Suspended) && id == *caller.partner() {
        return Err(shuts_itself_out("Suspend this partner with a key of another one"));
    }
    // Whoever signs already loses nothing.
    let is_signed = request.headers().contains_key("signature");
    if terms.signature_required == Some(true) && id == *caller.partner() && !is_signed {
        return Err(shuts_itself_out("Require signatures with a request that is signed"));
    }
    let expected = request.headers().get(header::IF_MATCH).map(|value| value.to_str().unwrap_or_default());
    let is_expected = |partner: Option<&Partner>| match (expected, partner) {
        (None, _) => true,
        (Some(expected), Some(partner)) => respond::names(expected, partner),
        (Some(_), None) => false,
    };
    match desk.put(&id, &terms, is_expected).await? {
        Put::Created(partner) => {
            audit::tell(&request, "is_new", true);
            answer(HttpResponse::Created(), &desk, &partner).await
        }
        Put::Changed(partner) => answer(HttpResponse::Ok(), &desk, &partner).await,
        Put::Refused(unfit) => Err(refused(&unfit)),
    }
}

/// Make an API key for a partner
///
/// The key is in the answer, and nowhere else: it is stored as a hash. Where the answer is lost, revoke the key
/// that stands in the partner's list. Two keys may work at a time: an old one, and a new one to change over to.
#[utoipa::path(
    post,
    path = "/v1/admin/partners/{partner_id}/keys",
    operation_id = "add_partner_key",
    tag = "admin",
    params(PartnerPath),
    request_body(content = PartnerKeyRequest, content_type = "application/json"),
    responses((status = 201, description = "The key, shown this once.", body = NewPartnerKey), KeyAddingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn add_key(
    _caller: Caller<Admin>,
    request: HttpRequest,
    payload: Payload,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = paths::partner(&request)?;
    let document = InboundDocument::read(&request, payload).await?;
    let scopes = translate::key_scopes(&document)?;
    let (key, changed) = desk.add_key(&id, &scopes).await?;
    changed_partner(changed)?;
    audit::tell(&request, "key_id", key.id());
    let codes: Vec<&str> = scopes.iter().map(|scope| scope.code()).collect();
    audit::tell(&request, "scopes", codes.join(","));
    let new = NewPartnerKey {
        partner_id: id.to_string(),
        key_id: key.id(),
        key: key.expose().to_owned(),
        scopes: scopes.into_iter().map(|scope| scope.code()).collect(),
    };
    Ok(HttpResponse::Created().insert_header((header::CACHE_CONTROL, "no-store")).json(new))
}

/// Revoke an API key of a partner
///
/// For ever. It is refused in every process within a second; in one that cannot be reached, within 5 minutes.
/// The key that the request itself comes with cannot be revoked by it.
#[utoipa::path(
    delete,
    path = "/v1/admin/partners/{partner_id}/keys/{key_id}",
    operation_id = "revoke_partner_key",
    tag = "admin",
    params(PartnerKeyPath),
    responses((status = 200, description = "Revoked; the partner as it now is.", body = WirePartner), KeyRevokingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn revoke_key(
    caller: Caller<Admin>,
    request: HttpRequest,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let (id, key_id) = (paths::partner(&request)?, key_id(&request));
    if key_id == caller.grant().key_id {
        return Err(shuts_itself_out("Revoke this key with another one"));
    }
    let partner = changed_partner(desk.revoke_key(&id, key_id).await?)?;
    answer(HttpResponse::Ok(), &desk, &partner).await
}

/// Add a key that a partner signs its requests with
///
/// The same key again changes nothing. Two may be known at a time, to change over.
#[utoipa::path(
    post,
    path = "/v1/admin/partners/{partner_id}/signature-keys",
    operation_id = "add_partner_signature_key",
    tag = "admin",
    params(PartnerPath),
    request_body(content = PartnerSignatureKeyRequest, content_type = "application/json"),
    responses((status = 200, description = "The partner as it now is.", body = WirePartner), SignatureKeyAddingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn add_signing(
    _caller: Caller<Admin>,
    request: HttpRequest,
    payload: Payload,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = paths::partner(&request)?;
    let document = InboundDocument::read(&request, payload).await?;
    let key = translate::signature_key(&document)?;
    let changed = desk.change(&id, |partner| add_signature_key(partner, &key)).await?;
    let partner = changed_partner(changed)?;
    // Before it was taken up it was any text.
    audit::tell(&request, "key_id", &key.id);
    audit::tell(&request, "algorithm", key.algorithm.code());
    answer(HttpResponse::Ok(), &desk, &partner).await
}

/// Remove a key that a partner signs its requests with
///
/// What it signed is refused from then on. The last one of a partner that has to sign stays.
#[utoipa::path(
    delete,
    path = "/v1/admin/partners/{partner_id}/signature-keys/{key_id}",
    operation_id = "remove_partner_signature_key",
    tag = "admin",
    params(PartnerKeyPath),
    responses((status = 200, description = "The partner as it now is.", body = WirePartner), KeyRevokingRefusals),
    security(("api_key" = ["admin"]))
)]
pub async fn remove_signing(
    _caller: Caller<Admin>,
    request: HttpRequest,
    desk: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let (id, key_id) = (paths::partner(&request)?, key_id(&request));
    let changed = desk.change(&id, |partner| remove_signature_key(partner, key_id)).await?;
    answer(HttpResponse::Ok(), &desk, &changed_partner(changed)?).await
}

fn key_id(request: &HttpRequest) -> &str {
    request.match_info().query("key_id")
}

async fn answer(
    mut response: actix_web::HttpResponseBuilder,
    desk: &PartnerService,
    partner: &Partner,
) -> Result<HttpResponse, ApiError> {
    let scopes = desk.scopes_of(std::slice::from_ref(partner)).await?;
    Ok(response
        .insert_header((header::ETAG, respond::etag(partner)))
        .json(respond::partner(partner, &scopes)))
}

fn changed_partner(changed: Changed) -> Result<Partner, ApiError> {
    match changed {
        Changed::Done(partner) => Ok(partner),
        Changed::Unknown => Err(unknown()),
        Changed::Refused(unfit) => Err(refused(&unfit)),
    }
}

fn unknown() -> ApiError {
    ApiError::new(Code::PartnerUnknown, "List the partners to see which there are.")
}

fn shuts_itself_out(instead: &str) -> ApiError {
    let detail =
        format!("The request would shut out the key that it comes with. {instead}, or with postonce-web.");
    ApiError::new(Code::CallerShutOut, detail)
}

fn refused(unfit: &Unfit) -> ApiError {
    let text = unfit.to_string();
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    ApiError::new(unfit.code(), format!("{}{}.", first.unwrap_or_default(), characters.as_str()))
}
