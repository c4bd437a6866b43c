//! Audit trail of HTTP requests: every administrative act with its outcome, and every request that was refused
//! because of its caller. Requests outside the reach of their partner are logged at a limited rate.
//!
//! [`record`] runs for all requests. It takes the act from [`acts`], the ids from the path, and the outcome from the
//! response. A handler can add more with [`annotate`]. An act that succeeded is also stored as a row, except the
//! submission of a batch, which is stored anyway.

use std::sync::Arc;

use actix_web::HttpMessage as _;
use actix_web::HttpRequest;
use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use postonce_process::http::PeerRequestError;
use postonce_shared::domain::partner::Partner;
use postonce_shared::oversight::audit::{AuditTarget, AuditTrail, Event, Outcome, UNKNOWN};
use uuid::Uuid;

use crate::access::acts::{self, WITH_OWN_ID};
use crate::access::api_keys;
use crate::access::authentication::credentials;
use crate::access::client_address::client_address;
use crate::access::console_request::{SessionKey, ToConsole};
use crate::access::rates::Rates;
use crate::error::{ApiError, Published};

/// Act that is recorded for a refused request that is not an administrative act.
pub const REQUEST: &str = "request";

/// Ids and codes that a handler adds to the event of its request.
#[derive(Default)]
struct Annotations(AuditTarget);

/// Adds an id or a code to the audit event of a request. The value must never be text from the client.
pub fn annotate(request: &HttpRequest, name: &str, value: impl std::fmt::Display) {
    let mut extensions = request.extensions_mut();
    let Annotations(on) = extensions.remove::<Annotations>().unwrap_or_default();
    extensions.insert(Annotations(on.and(name, value)));
}

/// Records the outcome of a request if it belongs to the audit trail. Waits until the row of a successful act is stored.
pub async fn record<B>(response: &ServiceResponse<B>, method: &'static str, route: &str) {
    let request = response.request();
    if response.response().error().is_some_and(|error| error.as_error::<PeerRequestError>().is_some()) {
        // Calls between processes are recorded where their signature is verified.
        return;
    }
    let to_console = ToConsole::of(request);
    if to_console.is_refused_by_api {
        return;
    }
    let published = published(response);
    // The status of a SOAP fault can differ from the status of its error.
    let status = published.map_or(response.status(), |published| published.status);
    let refused = because_of_the_caller(status);
    let is_beyond_reach = error_of(response).is_some_and(ApiError::is_beyond_reach);
    let act = match acts::act_of(method, route) {
        Some(act) => act,
        None if refused || (is_beyond_reach && may_log_beyond_reach(request)) => REQUEST,
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
    if let Some(Annotations(added)) = request.extensions_mut().remove::<Annotations>() {
        on = on.with(added);
    }
    let (partner, key) = match to_console.key {
        Some(SessionKey { partner, id }) => (Some(partner), id),
        None => {
            let partner = request.extensions().get::<Arc<Partner>>().map(|partner| partner.id.to_string());
            let key = key_id(request, partner.is_some()).unwrap_or_default();
            (partner, key)
        }
    };
    let who = partner.unwrap_or_else(|| UNKNOWN.to_owned());
    let from = origin(request);
    let event = Event { who: &who, key: &key, act, on, outcome, from: &from };
    match request.app_data::<Data<AuditTrail>>().filter(|_| act != WITH_OWN_ID) {
        Some(trail) => Arc::clone(trail).record(&event).await,
        None => event.log(),
    }
}

/// Returns whether a request with this status was refused because of its caller: its key, its rights or its rate.
pub const fn because_of_the_caller(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}

/// Returns whether to log another request outside the reach of its partner. A client can send any number of them.
fn may_log_beyond_reach(request: &HttpRequest) -> bool {
    let extensions = request.extensions();
    let partner = extensions.get::<Arc<Partner>>();
    let rates = request.app_data::<Data<Rates>>();
    partner.zip(rates).is_none_or(|(partner, rates)| rates.logs_refusal_of(&partner.id))
}

fn published<B>(response: &ServiceResponse<B>) -> Option<Published> {
    Some(error_of(response)?.code().published())
}

fn error_of<B>(response: &ServiceResponse<B>) -> Option<&ApiError> {
    response.response().error()?.as_error::<ApiError>()
}

/// Returns the ids in the path. Unless the request succeeded, only UUIDs are included: other values could be
/// arbitrary text, such as personal names.
fn ids(request: &HttpRequest, outcome: Outcome<'_>) -> AuditTarget {
    let known = |value: &str| outcome == Outcome::Done || Uuid::try_parse(value).is_ok();
    let ids = request.match_info().iter().filter(|(_, value)| known(value));
    ids.fold(AuditTarget::nothing(), |on, (name, value)| on.and(name, value))
}

/// Returns the id of the presented key if the key is known or has the form of a generated key. Other values may be
/// passwords, which could be guessed from the id.
fn key_id(request: &HttpRequest, is_known: bool) -> Option<String> {
    let key = credentials(request).ok()?;
    (is_known || api_keys::is_generated_key(&key)).then(|| api_keys::id_of(&api_keys::hash(&key)))
}

/// Returns the address of the client, with the port unless the request came through a trusted proxy.
pub fn origin(request: &HttpRequest) -> String {
    let (peer, client) = (request.peer_addr(), client_address(request));
    match (peer, client) {
        (Some(peer), Some(client)) if peer.ip().to_canonical() == client => peer.to_string(),
        (_, Some(client)) => client.to_string(),
        (_, None) => UNKNOWN.to_owned(),
    }
}
