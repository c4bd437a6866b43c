//! The audit trail of what came over HTTP: every administrative act, whatever came of it, and every request
//! that was refused because of who sent it.
//!
//! A handler has nothing to do for it: [`record`] stands around all of them and takes the act from
//! [`ACTS`], the ids from the path and the outcome from the answer. What a handler knows better it adds
//! with [`tell`].

use std::sync::Arc;

use actix_web::HttpMessage as _;
use actix_web::HttpRequest;
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use postonce_shared::domain::partner::Partner;
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome, UNKNOWN};
use postonce_worker::http::Refusal;
use uuid::Uuid;

use crate::access::api_keys;
use crate::access::authentication::credentials;
use crate::error::{ApiError, Published};

/// The act of any other request, where it is worth an event because it was refused.
pub const REQUEST: &str = "request";

/// Which requests are administrative acts: method, route, stable code. A test holds every route that
/// changes something against it.
pub const ACTS: &[(&str, &str, &str)] = &[
    ("PUT", "/v1/users/{user_id}/accounts/{account_id}", "account.open"),
    ("PATCH", "/v1/users/{user_id}/accounts/{account_id}", "account.change"),
    ("PUT", "/v1/admin/gate", "gate.change"),
    ("POST", "/v1/admin/dead-letters/{id}/replay", "dead_letter.replay"),
    ("DELETE", "/v1/admin/dead-letters/{id}", "dead_letter.discard"),
    ("PUT", "/v1/admin/partners/{partner_id}", "partner.change"),
    ("POST", "/v1/admin/partners/{partner_id}/keys", "key.add"),
    ("DELETE", "/v1/admin/partners/{partner_id}/keys/{key_id}", "key.revoke"),
    ("POST", "/v1/admin/partners/{partner_id}/signature-keys", "signature_key.add"),
    ("DELETE", "/v1/admin/partners/{partner_id}/signature-keys/{key_id}", "signature_key.remove"),
];

/// The act that a request is, if it is one.
pub fn act_of(method: &str, route: &str) -> Option<&'static str> {
    ACTS.iter().find(|(of, path, _)| *of == method && *path == route).map(|(_, _, act)| *act)
}

/// What handlers add to the event of their request.
#[derive(Default)]
struct Told(AuditTarget);

/// Adds something to the event of a request: a name of ours, and an id or a code, never what a client
/// wrote.
pub fn tell(request: &HttpRequest, name: &str, value: impl std::fmt::Display) {
    let mut extensions = request.extensions_mut();
    let Told(on) = extensions.remove::<Told>().unwrap_or_default();
    extensions.insert(Told(on.and(name, value)));
}

/// Records what came of a request, if the trail is for it.
pub fn record<B>(response: &ServiceResponse<B>, method: &'static str, route: &str) {
    let request = response.request();
    if response.response().error().is_some_and(|error| error.as_error::<Refusal>().is_some()) {
        // A call of another process: recorded where its signature is looked at.
        return;
    }
    let published = published(response);
    // An answer may have another status than its refusal, as faults of SOAP have.
    let status = published.map_or(response.status(), |published| published.status);
    let refused = because_of_the_caller(status);
    let act = match act_of(method, route) {
        Some(act) => act,
        None if refused => REQUEST,
        None => return,
    };
    let code = published.map_or("", |published| published.code);
    let outcome = match status {
        status if status.is_server_error() => Outcome::Failed(code),
        status if status.is_client_error() => Outcome::Refused(code),
        _ => Outcome::Done,
    };
    let mut on = ids(request, outcome);
    if act == REQUEST {
        on = on.and("method", method).and("route", route);
    }
    if let Some(Told(told)) = request.extensions_mut().remove::<Told>() {
        on = on.with(told);
    }
    let partner = request.extensions().get::<Arc<Partner>>().map(|partner| partner.id.to_string());
    let key = key_id(request, partner.is_some()).unwrap_or_default();
    let who = partner.unwrap_or_else(|| UNKNOWN.to_owned());
    let from = peer(request);
    Event { who: &who, key: &key, act, on, outcome, from: &from }.record();
}

const fn because_of_the_caller(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}

/// The refusal in an answer, if it is one.
fn published<B>(response: &ServiceResponse<B>) -> Option<Published> {
    let error = response.response().error().and_then(|error| error.as_error::<ApiError>())?;
    Some(error.code().published())
}

/// The ids in the path. What was not found to be something of ours may be anything, also a name, so then
/// only UUIDs are told.
fn ids(request: &HttpRequest, outcome: Outcome<'_>) -> AuditTarget {
    let known = |value: &str| outcome == Outcome::Done || Uuid::try_parse(value).is_ok();
    let ids = request.match_info().iter().filter(|(_, value)| known(value));
    ids.fold(AuditTarget::nothing(), |on, (name, value)| on.and(name, value))
}

/// The id of the key that was presented: of one that belongs to a partner, and of one that we may have
/// made. Of anything else not even that: it may be a password that somebody else could guess.
fn key_id(request: &HttpRequest, is_known: bool) -> Option<String> {
    let key = credentials(request).ok()?;
    (is_known || api_keys::is_of_ours(&key)).then(|| api_keys::id_of(&api_keys::hash(&key)))
}

/// Where the connection comes from. Behind a proxy that is the proxy: headers that say otherwise are a
/// client's word.
pub fn peer(request: &HttpRequest) -> String {
    request.peer_addr().map_or_else(|| UNKNOWN.to_owned(), |peer| peer.to_string())
}
