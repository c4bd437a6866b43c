//! Internal requests of the other processes of the bank: rings, replies, notifications and status. Not part of the API.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Query, ServiceConfig, get, post, put, resource};
use actix_web::{HttpRequest, HttpResponse};
use futures::FutureExt as _;
use postonce_shared::adapters::http::{
    COMPLETIONS_PATH, CONTENTION_PATH, GATE_PATH, GateEpoch, PARTNERS_PATH, PartnerChanged, RING_PATH, Ring,
    STATUS_PATH, decode_contended,
};
use postonce_shared::cluster::completions::reply_body;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::doorbell::Doorbell as _;

use super::signed::{CheckedBody, PeerRequestError, SignedBody};
use super::{PeerState, Status, StatusQuery};

/// Adds the routes to an application that has a [`PeerState`].
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource(RING_PATH).route(post().to(ring)))
        .service(resource(COMPLETIONS_PATH).route(post().to(complete)))
        .service(resource(CONTENTION_PATH).route(put().to(contention)))
        .service(resource(GATE_PATH).route(put().to(gate)))
        .service(resource(PARTNERS_PATH).route(put().to(partners)))
        .service(resource(STATUS_PATH).route(get().to(status)));
}

/// Handles rings. A draining process refuses them, because it starts no new work; the sender has to ring other processes.
async fn ring(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, PeerRequestError> {
    if callee.readiness.is_ending() {
        return Err(PeerRequestError::new(StatusCode::SERVICE_UNAVAILABLE, "This process is draining."));
    }
    let Ring { queues, ping } =
        Ring::decode(body.bytes()).map_err(|error| PeerRequestError::unreadable(&error))?;
    queues.iter().for_each(|queue| callee.bell.ring(queue));
    if let Some(ping) = ping {
        callee.pings.record_ping(ping.from);
        let process_gate = Arc::clone(&callee.process_gate);
        // The sender does not wait for the store.
        callee.world.spawn(async move { process_gate.catch_up(ping.gate_epoch).await }.boxed());
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Handles replies. A reply without a valid signature may still be true, because the secret of its sender may be outdated. So
/// the requests that wait for its transactions read their rows instead.
async fn complete(body: CheckedBody, callee: Data<PeerState>) -> Result<HttpResponse, PeerRequestError> {
    let body = match body {
        CheckedBody::Authentic(body) => body,
        CheckedBody::Refused { body, refusal } => {
            for completion in reply_body::decode(&body).unwrap_or_default() {
                callee.completions.hint(&completion.key);
            }
            return Err(refusal);
        }
    };
    for completion in
        reply_body::decode(body.bytes()).map_err(|error| PeerRequestError::unreadable(&error))?
    {
        callee.completions.complete(&completion.key, &completion.outcome);
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Handles a notification of accounts on which a worker could not commit: they are left to it for a second.
async fn contention(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, PeerRequestError> {
    for account in decode_contended(body.bytes()).map_err(|error| PeerRequestError::unreadable(&error))? {
        callee.immediate.leave_to_worker(account);
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Handles a notification of a change of the gate. Responds with the epoch that this process applies from now on.
async fn gate(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, PeerRequestError> {
    let notified: GateEpoch =
        serde_json::from_slice(body.bytes()).map_err(|error| PeerRequestError::unreadable(&error))?;
    let epoch = callee.process_gate.refresh(notified.epoch).await;
    Ok(HttpResponse::Ok().json(GateEpoch { epoch }))
}

/// Handles a notification of a changed partner. A draining process accepts it as well: until it ends, it must refuse requests
/// that the partner may no longer make.
async fn partners(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, PeerRequestError> {
    let PartnerChanged { partner } =
        serde_json::from_slice(body.bytes()).map_err(|error| PeerRequestError::unreadable(&error))?;
    // A name that is invalid in this version may be valid in a newer one.
    (callee.partners)(partner.and_then(|name| PartnerId::parse(&name).ok()).as_ref());
    Ok(HttpResponse::NoContent().finish())
}

/// Returns the status, with the activity of the requested number of seconds; an invalid query counts as the default one.
async fn status(_: SignedBody, request: HttpRequest, callee: Data<PeerState>) -> HttpResponse {
    let query = Query::<StatusQuery>::from_query(request.query_string());
    HttpResponse::Ok()
        .json(Status::of(&callee, query.map_or_else(|_| StatusQuery::default(), Query::into_inner)))
}
