//! What the other processes of the bank ask: rings, replies, how this one is. Not part of the API.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Data, ServiceConfig, get, post, put, resource};
use postonce_shared::adapters::http::{
    COMPLETIONS_PATH, GATE_PATH, GateEpoch, PARTNERS_PATH, PartnerChanged, RING_PATH, STATUS_PATH,
    decode_ring,
};
use postonce_shared::cluster::completions::reply_body;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::doorbell::Doorbell as _;

use super::signed::{ClaimedBody, Refusal, SignedBody};
use super::{PeerState, Status};

/// Puts the routes into an application that has a [`PeerState`].
pub fn configure(config: &mut ServiceConfig) {
    config
        .service(resource(RING_PATH).route(post().to(ring)))
        .service(resource(COMPLETIONS_PATH).route(post().to(complete)))
        .service(resource(GATE_PATH).route(put().to(gate)))
        .service(resource(PARTNERS_PATH).route(put().to(partners)))
        .service(resource(STATUS_PATH).route(get().to(status)));
}

/// While it drains this process starts nothing new: whoever rings has to look for others.
async fn ring(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, Refusal> {
    if callee.readiness.is_ending() {
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "This process drains."));
    }
    for queue in decode_ring(body.bytes()).map_err(|error| Refusal::unreadable(&error))? {
        callee.bell.ring(&queue);
    }
    Ok(HttpResponse::NoContent().finish())
}

/// An unproven note may still be true: its sender may have an outdated secret or run an older program. So the
/// requests that wait for the transactions in it read the rows.
async fn complete(body: ClaimedBody, callee: Data<PeerState>) -> Result<HttpResponse, Refusal> {
    let body = match body {
        ClaimedBody::Proven(body) => body,
        ClaimedBody::Refused { unproven, refusal } => {
            for completion in reply_body::decode(&unproven).unwrap_or_default() {
                callee.completions.hint(&completion.key);
            }
            return Err(refusal);
        }
    };
    for completion in reply_body::decode(body.bytes()).map_err(|error| Refusal::unreadable(&error))? {
        callee.completions.complete(&completion.key, &completion.outcome);
    }
    Ok(HttpResponse::NoContent().finish())
}

/// Told of the gate: the answer is the epoch that is obeyed from now on.
async fn gate(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, Refusal> {
    let told: GateEpoch =
        serde_json::from_slice(body.bytes()).map_err(|error| Refusal::unreadable(&error))?;
    let epoch = match &callee.gatekeeper {
        Some(gatekeeper) => gatekeeper.heard(told.epoch).await,
        // Nobody listens here.
        None => 0,
    };
    Ok(HttpResponse::Ok().json(GateEpoch { epoch }))
}

/// Told of a partner, also while it drains: until its end it must not let in who may not call any more.
async fn partners(body: SignedBody, callee: Data<PeerState>) -> Result<HttpResponse, Refusal> {
    let PartnerChanged { partner } =
        serde_json::from_slice(body.bytes()).map_err(|error| Refusal::unreadable(&error))?;
    // A name that is none here may be one to a newer program.
    (callee.partners)(partner.and_then(|name| PartnerId::parse(&name).ok()).as_ref());
    Ok(HttpResponse::NoContent().finish())
}

async fn status(_: SignedBody, callee: Data<PeerState>) -> HttpResponse {
    HttpResponse::Ok().json(Status::of(&callee))
}
