//! The gate, which holds and releases all posting.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{Gate, GateChange, GateChanged};
use postonce_shared::cluster::gate::EpochError;
use postonce_shared::cluster::gate::change::GateAct;
use postonce_shared::oversight::audit::AuditTarget;

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::scopes::{Metrics, Operate};
use crate::admin::gate::GateService;
use crate::api::arguments::Headers;
use crate::api::operation_headers::GatePutHeaders;
use crate::api::refusals::{GateRefusals, Refusals};
use crate::api::translate::{self, InboundDocument};
use crate::api::views;
use crate::error::{ApiError, Code};

/// Read the gate
#[utoipa::path(
    get,
    path = "/v1/admin/gate",
    operation_id = "get_gate",
    tag = "admin",
    responses(
        (status = 200, description = "The current state of the gate.", body = Gate, headers(
            ("ETag" = String, description = "Entity tag of the gate: its epoch."),
        )),
        Refusals
    ),
)]
pub async fn find(_caller: Caller<Metrics>, service: Data<GateService>) -> Result<HttpResponse, ApiError> {
    let mut found = views::gate(service.read().await?);
    if found.release_at.is_some() {
        found.clock_problem = service.untrusted_clock().map(|problem| problem.to_string());
    }
    Ok(HttpResponse::Ok().insert_header((header::ETAG, etag(found.epoch))).json(found))
}

/// Hold or release the work
///
/// While the gate is held, nothing is posted: neither requests, nor work of messages that were received before, nor the rest of
/// batches. A process acknowledges it when its commits in progress have ended. Requests are still accepted. On release, all
/// listeners start at once. With `release_at`, a held gate is released at that time. Repeating the request changes nothing, not
/// even `since`, `by` and `reason`, and notifies the processes again. With `If-Match`, the change is made only if the gate still
/// has this `ETag`, so that two operators cannot undo each other's acts unknowingly.
#[utoipa::path(
    put,
    path = "/v1/admin/gate",
    operation_id = "change_gate",
    tag = "admin",
    request_body(content = GateChange, content_type = "application/json"),
    responses(
        (status = 200, description = "The current gate, and the answers of all processes.", body = GateChanged),
        GateRefusals
    ),
)]
pub async fn change(
    mut caller: Caller<Operate>,
    condition: Headers<GatePutHeaders>,
    request: HttpRequest,
    payload: Payload,
    service: Data<GateService>,
) -> Result<HttpResponse, ApiError> {
    let document = InboundDocument::read(&mut caller, &request, payload).await?;
    let (state, reason) = translate::gate_change(&document, service.now())?;
    let by = AuditTarget::one("partner", caller.partner()).and("key", &caller.grant().key_id);
    let expected = condition.value()?.if_match;
    let act = GateAct { by: by.to_string(), reason };
    let change = async |caller: &Caller<Operate>| {
        let (rights, expected) = (caller.standing().clone(), expected.clone());
        // Asked before each attempt.
        let is_expected = move |epoch| {
            rights.is_unchanged() && expected.as_ref().is_none_or(|expected| expected.list(&etag(epoch)))
        };
        let set = service.set(state, act.clone(), is_expected).await?;
        set.map_err(|EpochError { epoch }| {
            if !caller.standing().is_unchanged() {
                return ApiError::rights_changed(true);
            }
            let detail = format!("The gate has the epoch {epoch} by now. Read it again, and decide anew.");
            ApiError::new(Code::PreconditionFailed, detail)
        })
    };
    let changed = views::changed_gate(caller.under_present_rights(&request, change).await?);
    // Omits the reason, which is text of the client.
    audit::annotate(&request, "state", &changed.state);
    audit::annotate(&request, "epoch", changed.epoch);
    Ok(HttpResponse::Ok().json(changed))
}

/// Returns the entity tag of the gate. It depends on the epoch only, and not on details such as clock problems.
fn etag(epoch: u64) -> String {
    format!("\"{epoch}\"")
}
