//! Ingest queues.

use actix_web::HttpResponse;
use actix_web::web::Data;
use postonce_shared::domain::scope::Scope;

use crate::access::authentication::Caller;
use crate::access::scopes::Ring;
use crate::api::arguments::Path;
use crate::api::ingest_bells::IngestBells;
use crate::api::paths::IngestPath;
use crate::api::refusals::IngestRefusals;
use crate::error::{ApiError, Code};

/// Ring for an ingest queue
///
/// A worker polls the queue at once instead of at its next poll. A ring can be lost, which only delays the poll. A partner rings for its
/// own queues, and a key with the scope `operate` for all.
#[utoipa::path(
    post,
    path = "/v1/ingest/{name}/ring",
    operation_id = "ring_ingest_queue",
    tag = "transactions",
    responses((status = 204, description = "The queue is polled."), IngestRefusals),
)]
pub async fn ring(
    caller: Caller<Ring>,
    path: Path<IngestPath>,
    bells: Data<IngestBells>,
) -> Result<HttpResponse, ApiError> {
    let name = path.value()?.name;
    let only_of = (!caller.grant().allows(Scope::Operate)).then(|| caller.partner());
    if bells.ring(&name, only_of) {
        return Ok(HttpResponse::NoContent().finish());
    }
    let detail = "Check the name: it is NAME of the settings ingest.NAME in the configuration of the bank, which the operator \
                  tells you, and not that of the queue.";
    Err(ApiError::new(Code::IngestUnknown, detail))
}
