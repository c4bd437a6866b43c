//! Administration of partners, their API keys and their signature keys.
//!
//! A caller without the scope `admin` acts within its [`ManagementRights`], which is checked together with each change. A request
//! that would revoke its own key or suspend its own partner is refused, so that callers cannot lock themselves out. Such a
//! change needs another key, or `postonce-web` on the command line.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{
    NewPartnerKey, Partner as WirePartner, PartnerKeyRequest, PartnerPage, PartnerSignatureKeyRequest,
    PartnerTerms,
};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, PartnerStatus};
use postonce_shared::ports::ledger::Listing;

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::management_rights::{Bounds, ManagementRights};
use crate::access::partner_service::{PartnerChangeOutcome, PartnerPutOutcome, PartnerService};
use crate::access::partner_terms::{PartnerChangeError, add_signature_key, remove_signature_key};
use crate::access::scopes::Partners;
use crate::api::arguments::{Headers, Path, Query};
use crate::api::operation_headers::PartnerPutHeaders;
use crate::api::pages::{PageParams, cursor, page_of_large};
use crate::api::paths::{PartnerKeyPath, PartnerPath};
use crate::api::refusals::{
    KeyAddingRefusals, KeyRevokingRefusals, PartnerListingRefusals, PartnerPuttingRefusals, PartnerRefusals,
    SignatureKeyAddingRefusals,
};
use crate::api::translate::{self, InboundDocument};
use crate::api::views;
use crate::error::{ApiError, Code};

/// List the partners
#[utoipa::path(
    get,
    path = "/v1/admin/partners",
    operation_id = "list_partners",
    tag = "admin",
    responses((status = 200, description = "A page of partners, by name.", body = PartnerPage), PartnerListingRefusals),
)]
pub async fn list(
    mut caller: Caller<Partners>,
    page: Query<PageParams>,
    request: HttpRequest,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    const LISTING: &str = "partners";
    let page = page.value()?;
    let position = page.position(LISTING)?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    let read = async |after: Option<&str>, count: usize| {
        let after = after.map(PartnerId::parse).transpose().map_err(|_| ApiError::cursor_invalid())?;
        // One more than requested, to know whether there is another page.
        let partners = service.list(after.as_ref(), count.saturating_add(1)).await?;
        let found = Listing::first_of(partners, count, |last: &Partner| last.id.to_string());
        let keys = service.keys_of(&found.items).await?;
        let items = found.items.iter().map(|partner| views::partner(partner, &keys)).collect();
        Ok::<_, ApiError>(Listing { items, next: found.next })
    };
    let Listing { items: partners, next } = page_of_large(page.limit, position, read).await?;
    caller.confirm(&request).await?;
    let next_cursor = next.map(|next| cursor(LISTING, &next));
    Ok(HttpResponse::Ok().json(PartnerPage { partners, next_cursor }))
}

/// Read a partner
///
/// The `ETag` of the response can be used in `If-Match`.
#[utoipa::path(
    get,
    path = "/v1/admin/partners/{partner_id}",
    operation_id = "get_partner",
    tag = "admin",
    responses(
        (status = 200, description = "The partner.", body = WirePartner, headers(
            ("ETag" = String, description = "Entity tag of the partner."),
        )),
        PartnerRefusals
    ),
)]
pub async fn find(
    _caller: Caller<Partners>,
    path: Path<PartnerPath>,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = path.value()?.partner_id;
    let partner = service.find(&id).await?.ok_or_else(unknown)?;
    answer(HttpResponse::Ok(), &service, &partner).await
}

/// Create a partner, or change its terms
///
/// `reach` is always replaced as a whole; other members that are missing keep their values. A change takes effect
/// in every process within a second, or within 5 minutes in a process that cannot be reached. With `If-Match`, the
/// change is made only if the partner still has this `ETag`. A new partner has no keys.
///
/// A key without the scope `admin` can set a reach and, with the scope `credit`, credit ceilings within its own ones. It
/// can change neither its own partner nor one with a wider reach or with a key of more scopes, and it cannot resume a partner
/// that was suspended with the scope `admin` (`resume_needs`).
#[utoipa::path(
    put,
    path = "/v1/admin/partners/{partner_id}",
    operation_id = "put_partner",
    tag = "admin",
    request_body(content = PartnerTerms, content_type = "application/json"),
    responses(
        (status = 201, description = "The partner was created.", body = WirePartner, headers(
            ("ETag" = String, description = "Entity tag of the partner."),
        )),
        (status = 200, description = "The partner was changed.", body = WirePartner, headers(
            ("ETag" = String, description = "Entity tag of the partner."),
        )),
        PartnerPuttingRefusals
    ),
)]
pub async fn put(
    mut caller: Caller<Partners>,
    path: Path<PartnerPath>,
    condition: Headers<PartnerPutHeaders>,
    request: HttpRequest,
    payload: Payload,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = path.value()?.partner_id;
    let document = InboundDocument::read(&mut caller, &request, payload).await?;
    let terms = translate::partner_terms(&document)?;
    if terms.status == Some(PartnerStatus::Suspended) && id == *caller.partner() {
        return Err(locks_itself_out("Suspend this partner with a key of another partner"));
    }
    // A caller that already signs its requests is not locked out.
    let is_signed = request.headers().contains_key("signature");
    if terms.signature_required == Some(true) && id == *caller.partner() && !is_signed {
        return Err(locks_itself_out("Require signatures with a signed request"));
    }
    let expected = condition.value()?.if_match;
    let is_expected = |partner: Option<&Partner>| match (&expected, partner) {
        (None, _) => true,
        (Some(expected), Some(partner)) => expected.list(&views::partner_etag(partner)),
        (Some(_), None) => false,
    };
    let service = service.acting_on(caller.standing());
    let bounds = service.bounds(&id, caller.grant()).await?;
    let rights = management_rights(bounds.as_ref());
    if let Some(status) = terms.status {
        audit::annotate(&request, "status", status.code());
        audit::annotate(&request, "with", rights.scope());
    }
    match service.put(&id, &terms, rights, is_expected).await? {
        PartnerPutOutcome::Created(partner) => {
            audit::annotate(&request, "is_new", true);
            answer(HttpResponse::Created(), &service, &partner).await
        }
        PartnerPutOutcome::Changed(partner) => answer(HttpResponse::Ok(), &service, &partner).await,
        PartnerPutOutcome::Refused(unfit) => Err(refused(&unfit)),
    }
}

/// Create an API key for a partner
///
/// The response contains the key, which is stored only as a hash. If the response is lost, revoke the new key in
/// the list of the partner. Two keys can be active at a time, for rotation; an expired one counts until it is revoked.
///
/// A key without the scope `admin` grants only scopes that it has itself, and only to partners that do not have more: no
/// wider reach, and no key of more scopes. If it expires, it creates no key that expires later.
#[utoipa::path(
    post,
    path = "/v1/admin/partners/{partner_id}/keys",
    operation_id = "add_partner_key",
    tag = "admin",
    request_body(content = PartnerKeyRequest, content_type = "application/json"),
    responses((status = 201, description = "The key, which is shown only once.", body = NewPartnerKey), KeyAddingRefusals),
)]
pub async fn add_key(
    mut caller: Caller<Partners>,
    path: Path<PartnerPath>,
    request: HttpRequest,
    payload: Payload,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = path.value()?.partner_id;
    let document = InboundDocument::read(&mut caller, &request, payload).await?;
    let terms = translate::key_terms(&document, service.now())?;
    let service = service.acting_on(caller.standing());
    let bounds = service.bounds(&id, caller.grant()).await?;
    let (key, changed) = service.add_key(&id, &terms, management_rights(bounds.as_ref())).await?;
    changed_partner(changed)?;
    audit::annotate(&request, "key_id", key.id());
    let scopes: Vec<&str> = terms.scopes.iter().map(|scope| scope.code()).collect();
    audit::annotate(&request, "scopes", scopes.join(","));
    if let Some(at) = terms.expires_at {
        audit::annotate(&request, "expires_at", at);
    }
    let new = NewPartnerKey {
        partner_id: id.to_string(),
        key_id: key.id(),
        key: key.expose().to_owned(),
        scopes: scopes.into_iter().map(Into::into).collect(),
        expires_at: terms.expires_at.map(|at| at.to_string()),
    };
    Ok(HttpResponse::Created().insert_header((header::CACHE_CONTROL, "no-store")).json(new))
}

/// Revoke an API key of a partner
///
/// Permanent. Every process refuses the key within a second; a process that cannot be reached, within 5 minutes.
/// A request cannot revoke its own key.
#[utoipa::path(
    delete,
    path = "/v1/admin/partners/{partner_id}/keys/{key_id}",
    operation_id = "revoke_partner_key",
    tag = "admin",
    responses((status = 200, description = "Revoked; the current partner.", body = WirePartner), KeyRevokingRefusals),
)]
pub async fn revoke_key(
    caller: Caller<Partners>,
    path: Path<PartnerKeyPath>,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let PartnerKeyPath { partner_id: id, key_id } = path.value()?;
    if key_id == caller.grant().key_id {
        return Err(locks_itself_out("Revoke this key with another key"));
    }
    let service = service.acting_on(caller.standing());
    let bounds = service.bounds(&id, caller.grant()).await?;
    let revoked = service.revoke_key(&id, &key_id, management_rights(bounds.as_ref())).await?;
    let partner = changed_partner(revoked)?;
    answer(HttpResponse::Ok(), &service, &partner).await
}

/// Add a signature key to a partner
///
/// Adding the same key again changes nothing. A partner can have two keys, for rotation.
#[utoipa::path(
    post,
    path = "/v1/admin/partners/{partner_id}/signature-keys",
    operation_id = "add_partner_signature_key",
    tag = "admin",
    request_body(content = PartnerSignatureKeyRequest, content_type = "application/json"),
    responses((status = 200, description = "The current partner.", body = WirePartner), SignatureKeyAddingRefusals),
)]
pub async fn add_signing(
    mut caller: Caller<Partners>,
    path: Path<PartnerPath>,
    request: HttpRequest,
    payload: Payload,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let id = path.value()?.partner_id;
    let document = InboundDocument::read(&mut caller, &request, payload).await?;
    let key = translate::signature_key(&document)?;
    let service = service.acting_on(caller.standing());
    let bounds = service.bounds(&id, caller.grant()).await?;
    let changed = service.change(&id, |partner| {
        management_rights(bounds.as_ref()).check_partner(partner)?;
        add_signature_key(partner, &key)
    });
    let changed = changed.await?;
    let partner = changed_partner(changed)?;
    // Recorded after validation, because the id is arbitrary text before.
    audit::annotate(&request, "key_id", &key.id);
    audit::annotate(&request, "algorithm", key.algorithm.code());
    answer(HttpResponse::Ok(), &service, &partner).await
}

/// Remove a signature key of a partner
///
/// Requests signed with it are refused from then on. The last key of a partner that must sign cannot be removed.
#[utoipa::path(
    delete,
    path = "/v1/admin/partners/{partner_id}/signature-keys/{key_id}",
    operation_id = "remove_partner_signature_key",
    tag = "admin",
    responses((status = 200, description = "The current partner.", body = WirePartner), KeyRevokingRefusals),
)]
pub async fn remove_signing(
    caller: Caller<Partners>,
    path: Path<PartnerKeyPath>,
    service: Data<PartnerService>,
) -> Result<HttpResponse, ApiError> {
    let PartnerKeyPath { partner_id: id, key_id } = path.value()?;
    let service = service.acting_on(caller.standing());
    let bounds = service.bounds(&id, caller.grant()).await?;
    let changed = service.change(&id, |partner| {
        management_rights(bounds.as_ref()).check_partner(partner)?;
        remove_signature_key(partner, &key_id)
    });
    answer(HttpResponse::Ok(), &service, &changed_partner(changed.await?)?).await
}

/// Returns the management rights of a caller; without bounds, all of them.
fn management_rights<'a>(bounds: Option<&'a Bounds<'a>>) -> ManagementRights<'a> {
    bounds.map_or(ManagementRights::Full, ManagementRights::Within)
}

async fn answer(
    mut response: actix_web::HttpResponseBuilder,
    service: &PartnerService,
    partner: &Partner,
) -> Result<HttpResponse, ApiError> {
    let keys = service.keys_of(std::slice::from_ref(partner)).await?;
    Ok(response
        .insert_header((header::ETAG, views::partner_etag(partner)))
        .json(views::partner(partner, &keys)))
}

fn changed_partner(changed: PartnerChangeOutcome) -> Result<Partner, ApiError> {
    match changed {
        PartnerChangeOutcome::Done(partner) => Ok(partner),
        PartnerChangeOutcome::Unknown => Err(unknown()),
        PartnerChangeOutcome::Refused(unfit) => Err(refused(&unfit)),
    }
}

fn unknown() -> ApiError {
    ApiError::new(Code::PartnerUnknown, "List the partners to find their ids.")
}

fn locks_itself_out(instead: &str) -> ApiError {
    let detail = format!("The request would lock out its own API key. {instead}, or with postonce-web.");
    ApiError::new(Code::CallerShutOut, detail)
}

fn refused(unfit: &PartnerChangeError) -> ApiError {
    let text = unfit.to_string();
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    ApiError::new(unfit.code(), format!("{}{}.", first.unwrap_or_default(), characters.as_str()))
}
