//! Batches: submit, read, list, cancel, results.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{Batch as WireBatch, BatchPage, BatchResult};
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::protocol::accept::Acceptor;

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::scopes::{Batch as BatchScope, Permission};
use crate::api::arguments::{Headers, Path, Query};
use crate::api::batch_query::{BatchListParams, BatchSubmitParams, ResultParams};
use crate::api::batch_report::WantedResults;
use crate::api::batch_service::{BatchService, Submission};
use crate::api::operation_headers::{BatchHeaders, WaitHeader};
use crate::api::pages::PageParams;
use crate::api::paths::{self, BatchPath};
use crate::api::refusals::{
    BatchCancellingRefusals, BatchListingRefusals, BatchReadingRefusals, BatchResultRefusals,
    BatchSubmitRefusals,
};
use crate::error::ApiError;
use crate::headers::{IDEMPOTENT_REPLAYED, PREFERENCE_APPLIED, Wait};

/// Submit a batch
///
/// Stores a document of many deposits and withdrawals, which are then posted side by side; those of one account in
/// their order. `Idempotency-Key` is the id of the batch: repeat the request with it until you receive a response. An
/// item has the same id space as a single request: one that was sent before, alone or in another batch, is not posted
/// again. With the headers `Batch-Count` and `Batch-Sums`, or a `BatchControl` as the first record, a document with other
/// totals is refused.
#[utoipa::path(
    post,
    path = "/v1/batches",
    operation_id = "submit_batch",
    tag = "batches",
    request_body(content = String, content_type = "application/x-ndjson", description = "One JSON object on each line: \
        a `BatchItem` with the members of a `TransactionRequest`. Also `text/csv` with a header line, with the same names \
        as columns and `metadata.NAME` for metadata, or `application/xml`: a `BatchRequest` of the canonical XML, with a \
        `TransactionRequest` for each item. The first record can be a `BatchControl` (in CSV the columns `control.count` and \
        `control.sums.CURRENCY`, in XML an element `Control`) instead of an item. A document of the type `application/octet-stream` is \
        JSON if it begins with `{`, XML with `<`, and otherwise CSV. An item has at most 64 KiB. May be compressed with gzip or \
        zstd. At most 1 GiB and 1,000,000 items."),
    responses(
        (status = 202, description = "The batch is stored and will be posted.", body = WireBatch, headers(
            ("Location" = String, description = "Path of the batch."),
            ("Idempotent-Replayed" = String, description = "`true` if this request repeats an earlier one."),
        )),
        BatchSubmitRefusals
    ),
)]
pub async fn submit(
    mut caller: Caller<BatchScope>,
    headers: Headers<BatchHeaders>,
    on_invalid: Query<BatchSubmitParams>,
    request: HttpRequest,
    payload: Payload,
    service: Data<BatchService>,
    acceptor: Data<Acceptor>,
) -> Result<HttpResponse, ApiError> {
    let submission = Submission::of(&caller, &request, on_invalid, headers)?;
    audit::annotate(&request, "batch", submission.key.batch);
    let (batch, is_new) = service.submit(submission, &mut caller, &request, payload).await?;
    let mut response = HttpResponse::Accepted();
    response.insert_header((header::LOCATION, paths::of_batch(batch.key.batch)));
    if is_new {
        acceptor.served().accept(batch.document.valid.count);
    } else {
        response.insert_header((IDEMPOTENT_REPLAYED, "true"));
    }
    Ok(response.json(service.report(&batch)))
}

/// Read a batch
///
/// With `Prefer: wait=N`, waits for the completion for at most N seconds.
#[utoipa::path(
    get,
    path = "/v1/batches/{batch_id}",
    operation_id = "get_batch",
    tag = "batches",
    responses(
        (status = 200, description = "The current state of the batch.", body = WireBatch, headers(
            ("Preference-Applied" = String, description = "`wait=N` if the preference was applied."),
        )),
        BatchReadingRefusals
    ),
)]
pub async fn find(
    mut caller: Caller<BatchScope>,
    path: Path<BatchPath>,
    headers: Headers<WaitHeader>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = key(&caller, path)?;
    let (wait, _waiting) = caller.wait(&request, headers.value()?.wait)?;
    let batch =
        service.batches.find(&key, wait.map(Wait::duration)).await?.ok_or_else(ApiError::batch_unknown)?;
    caller.confirm(&request).await?;
    let mut response = HttpResponse::Ok();
    if let Some(wait) = wait.filter(|_| batch.phase.is_final()) {
        response.insert_header((PREFERENCE_APPLIED, wait.applied()));
    }
    Ok(response.json(service.report(&batch)))
}

/// List batches
///
/// Lists your batches by id; with `phase`, those in that phase. A page can be short, or even empty, before the end. On the
/// last page, `next_cursor` is null.
#[utoipa::path(
    get,
    path = "/v1/batches",
    operation_id = "list_batches",
    tag = "batches",
    responses((status = 200, description = "A page of batches.", body = BatchPage), BatchListingRefusals),
)]
pub async fn list(
    mut caller: Caller<BatchScope>,
    query: Query<(PageParams, BatchListParams)>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let (page, phase) = query.value()?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    let (batches, next_cursor) = service.page_of(caller.partner(), &page, phase).await?;
    caller.confirm(&request).await?;
    Ok(HttpResponse::Ok().json(BatchPage { batches, next_cursor }))
}

/// Cancel a batch
///
/// Only a batch of which nothing is posted can be cancelled.
#[utoipa::path(
    delete,
    path = "/v1/batches/{batch_id}",
    operation_id = "cancel_batch",
    tag = "batches",
    responses((status = 200, description = "The batch is cancelled.", body = WireBatch), BatchCancellingRefusals),
)]
pub async fn cancel(
    mut caller: Caller<BatchScope>,
    path: Path<BatchPath>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = key(&caller, path)?;
    let act = async |caller: &Caller<BatchScope>| service.cancel(&key, caller.standing()).await;
    let cancelled = caller.under_present_rights(&request, act).await?.ok_or_else(ApiError::batch_unknown)?;
    Ok(HttpResponse::Ok().json(service.report(&cancelled)))
}

/// Read the results of a batch
///
/// Returns the result of each item in the order of the document, once the batch is completed: as NDJSON, or with `Accept:
/// text/csv` as CSV. After an interruption, continue with `after`, the last line that you received.
#[utoipa::path(
    get,
    path = "/v1/batches/{batch_id}/results",
    operation_id = "get_batch_results",
    tag = "batches",
    responses(
        (status = 200, description = "One `BatchResult` on each line.", content(
            (BatchResult = "application/x-ndjson"),
            (String = "text/csv"),
        )),
        BatchResultRefusals
    ),
)]
pub async fn results(
    caller: Caller<BatchScope>,
    path: Path<BatchPath>,
    after: Query<ResultParams>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = key(&caller, path)?;
    let wanted = WantedResults::of(&request, after)?;
    let batch = service.batches.find(&key, None).await?.ok_or_else(ApiError::batch_unknown)?;
    wanted.answer(&service.batches, &batch, caller).await
}

fn key<P: Permission>(caller: &Caller<P>, path: Path<BatchPath>) -> Result<BatchKey, ApiError> {
    Ok(BatchKey { partner: caller.partner().clone(), batch: path.value()?.batch_id })
}
