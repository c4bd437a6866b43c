//! The gate: hold the work, and release it to all listeners at once.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{Gate, GateChange, GateChanged, GateListener};
use postonce_shared::cluster::gate::{GateState, GateValue};

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::scopes::Admin;
use crate::admin::gate::{Acknowledgment, GateService};
use crate::api::refusals::{GateRefusals, Refusals};
use crate::api::translate::{self, InboundDocument};
use crate::error::ApiError;

/// Look at the gate
#[utoipa::path(
    get,
    path = "/v1/admin/gate",
    operation_id = "get_gate",
    tag = "admin",
    responses((status = 200, description = "The gate as it now is.", body = Gate), Refusals),
    security(("api_key" = ["admin"]))
)]
pub async fn find(_caller: Caller<Admin>, desk: Data<GateService>) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(gate(desk.read().await?)))
}

/// Hold or release the work
///
/// Held, listeners receive no more; what they have in hand is finished. Requests are accepted all the
/// same. Released, all listeners start at once. With `release_at` a held gate is released at that
/// time. The same again changes nothing, and asks the listeners again.
#[utoipa::path(
    put,
    path = "/v1/admin/gate",
    operation_id = "change_gate",
    tag = "admin",
    request_body(content = GateChange, content_type = "application/json"),
    responses(
        (status = 200, description = "The gate as it now is, and who obeys it.", body = GateChanged),
        GateRefusals
    ),
    security(("api_key" = ["admin"]))
)]
pub async fn change(
    _caller: Caller<Admin>,
    request: HttpRequest,
    payload: Payload,
    desk: Data<GateService>,
) -> Result<HttpResponse, ApiError> {
    let document = InboundDocument::read(&request, payload).await?;
    let state = translate::gate_state(&document, desk.now())?;
    let (order, told) = desk.set(state).await?;
    audit::tell(&request, "state", gate(order).state);
    audit::tell(&request, "epoch", order.epoch);
    let listener = |Acknowledgment { listener, epoch }| GateListener {
        listener: listener.to_string(),
        acknowledged: epoch == Some(order.epoch),
        epoch,
    };
    let listeners = told.into_iter().map(listener).collect();
    let Gate { state, epoch, release_at } = gate(order);
    Ok(HttpResponse::Ok().json(GateChanged { state, epoch, release_at, listeners }))
}

fn gate(order: GateValue) -> Gate {
    let (state, release_at) = match order.state {
        GateState::Released => ("released", None),
        GateState::Held { release_at } => ("held", release_at.map(|at| at.to_string())),
    };
    Gate { state: state.into(), epoch: order.epoch, release_at }
}
