//! Batches: submit, read, list, cancel, results.

use actix_web::http::header;
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures::stream;
use postonce_schemas::json::{Batch as WireBatch, BatchPage, BatchResult};
use postonce_shared::batches::intake::Cancelled;
use postonce_shared::batches::results::Results;
use postonce_shared::domain::batch::{Batch, BatchKey};
use postonce_shared::domain::ids::BatchId;
use postonce_shared::ports::fault::chain;

use crate::access::audit;
use crate::access::authentication::Caller;
use crate::access::rates::Rates;
use crate::access::scopes::{Batch as BatchScope, Permission};
use crate::api::batch_report::ResultFormat;
use crate::api::batch_service::{BatchService, Submission};
use crate::api::pages::{BatchQuery, PageQuery, cursor};
use crate::api::parameters::{
    BatchHeaders, BatchListParams, BatchPath, BatchSubmitParams, PageParams, ResultParams, WaitHeader,
};
use crate::api::paths;
use crate::api::refusals::{
    BatchCancellingRefusals, BatchListingRefusals, BatchReadingRefusals, BatchResultRefusals,
    BatchSubmitRefusals,
};
use crate::error::{ApiError, Code};
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
    params(BatchHeaders, BatchSubmitParams),
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
    security(("api_key" = ["batch"]))
)]
pub async fn submit(
    caller: Caller<BatchScope>,
    request: HttpRequest,
    payload: Payload,
    service: Data<BatchService>,
    rates: Data<Rates>,
) -> Result<HttpResponse, ApiError> {
    let submission = Submission::of(&caller, &request)?;
    audit::annotate(&request, "batch", submission.key.batch);
    let (batch, is_new) = service.submit(submission, &request, payload).await?;
    let mut response = HttpResponse::Accepted();
    response.insert_header((header::LOCATION, paths::of_batch(batch.key.batch)));
    if is_new {
        rates.owe(caller.partner(), caller.grant().partner.rate, batch.document.items());
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
    params(BatchPath, WaitHeader),
    responses(
        (status = 200, description = "The current state of the batch.", body = WireBatch, headers(
            ("Preference-Applied" = String, description = "`wait=N` if the preference was applied."),
        )),
        BatchReadingRefusals
    ),
    security(("api_key" = ["batch"]))
)]
pub async fn find(
    caller: Caller<BatchScope>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = key(&caller, &request)?;
    let (wait, _waiting) = caller.wait(&request, Wait::of(request.headers()))?;
    let batch =
        service.batches.find(&key, wait.map(Wait::duration)).await?.ok_or_else(ApiError::batch_unknown)?;
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
    params(PageParams, BatchListParams),
    responses((status = 200, description = "A page of batches.", body = BatchPage), BatchListingRefusals),
    security(("api_key" = ["batch"]))
)]
pub async fn list(
    caller: Caller<BatchScope>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let page = PageQuery::of(&request)?;
    let BatchQuery { phase, .. } = BatchQuery::of(&request)?;
    let listing = format!("batches of {} {}", caller.partner(), phase.unwrap_or_default());
    let after = page.position(&listing)?.map(|id| id.parse()).transpose();
    let after: Option<BatchId> = after.map_err(|_| ApiError::cursor_invalid())?;
    let _turn = caller.page_turn(&request).await?;
    let found = service.batches.records.list(caller.partner(), after, page.limit).await?;
    let is_last = found.len() < page.limit;
    let next = found.last().filter(|_| !is_last).map(|batch| batch.key.batch.to_string());
    let is_wanted = |batch: &&Batch| phase.is_none_or(|phase| batch.phase.code() == phase);
    Ok(HttpResponse::Ok().json(BatchPage {
        batches: found.iter().filter(is_wanted).map(|batch| service.report(batch)).collect(),
        next_cursor: next.map(|next| cursor(&listing, &next)),
    }))
}

/// Cancel a batch
///
/// Only a batch of which nothing is posted can be cancelled.
#[utoipa::path(
    delete,
    path = "/v1/batches/{batch_id}",
    operation_id = "cancel_batch",
    tag = "batches",
    params(BatchPath),
    responses((status = 200, description = "The batch is cancelled.", body = WireBatch), BatchCancellingRefusals),
    security(("api_key" = ["batch"]))
)]
pub async fn cancel(
    caller: Caller<BatchScope>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = key(&caller, &request)?;
    match service.batches.cancel(&key).await? {
        Cancelled::Done(batch) => Ok(HttpResponse::Ok().json(service.report(&batch))),
        Cancelled::TooLate(batch) => {
            let detail = format!("The batch is {}; it can only be cancelled before.", batch.phase.code());
            Err(ApiError::new(Code::BatchNotCancellable, detail))
        }
        Cancelled::Unknown => Err(ApiError::batch_unknown()),
    }
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
    params(BatchPath, ResultParams),
    responses(
        (status = 200, description = "One `BatchResult` on each line.", content(
            (BatchResult = "application/x-ndjson"),
            (String = "text/csv"),
        )),
        BatchResultRefusals
    ),
    security(("api_key" = ["batch"]))
)]
pub async fn results(
    caller: Caller<BatchScope>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = key(&caller, &request)?;
    let format = ResultFormat::of(request.headers())?;
    let after = BatchQuery::of(&request)?.after.unwrap_or(0);
    let batch = service.batches.find(&key, None).await?.ok_or_else(ApiError::batch_unknown)?;
    let Some(results) = service.batches.results(&batch, after).await? else {
        let detail = format!("The batch is {}; its results exist once it is completed.", batch.phase.code());
        return Err(ApiError::new(Code::BatchNotCompleted, detail));
    };
    let head = if after == 0 { format.head() } else { Bytes::new() };
    let pages =
        stream::unfold((Some(head), results), move |(head, results)| next_piece(format, head, results));
    Ok(HttpResponse::Ok()
        .insert_header((header::VARY, "Accept"))
        .content_type(format.media_type())
        .streaming(pages))
}

type Piece = Result<Bytes, std::io::Error>;

async fn next_piece(
    format: ResultFormat,
    head: Option<Bytes>,
    mut results: Results,
) -> Option<(Piece, (Option<Bytes>, Results))> {
    if let Some(head) = head.filter(|head| !head.is_empty()) {
        return Some((Ok(head), (None, results)));
    }
    let piece = match results.next().await {
        Ok(Some(lines)) => Ok(format.write(&lines)),
        Ok(None) => return None,
        // The response ends without its last part, which the client can see, and it continues with `after`.
        Err(fault) => {
            tracing::warn!("The results of a batch cannot be read: {}", chain(&fault));
            Err(std::io::Error::other("the store is not available"))
        }
    };
    Some((piece, (None, results)))
}

fn key<P: Permission>(caller: &Caller<P>, request: &HttpRequest) -> Result<BatchKey, ApiError> {
    Ok(BatchKey { partner: caller.partner().clone(), batch: paths::batch(request)? })
}
