//! Batches of all partners, for operators: list, read, cancel, results.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{BatchResult, PartnerBatch, PartnerBatchPage};

use crate::access::authentication::Caller;
use crate::access::scopes::{Admin, Operate};
use crate::api::arguments::{Path, Query};
use crate::api::batch_query::{BatchListParams, BatchPartnerParam, ResultParams};
use crate::api::batch_report::WantedResults;
use crate::api::batch_service::BatchService;
use crate::api::pages::PageParams;
use crate::api::paths::PartnerBatchPath;
use crate::api::refusals::{
    BatchCancellingRefusals, BatchListingRefusals, BatchReadingRefusals, BatchResultRefusals,
};
use crate::error::{ApiError, Code};

/// List batches of all partners
///
/// Lists the open batches of all partners, or with `partner_id` all batches of that partner; with `phase`, those in that phase.
/// A batch whose record is damaged is not among the open ones. A page can be short, or even empty, before the end. On the last
/// page, `next_cursor` is null.
#[utoipa::path(
    get,
    path = "/v1/admin/batches",
    operation_id = "list_batches_of_partners",
    tag = "admin",
    responses((status = 200, description = "A page of batches.", body = PartnerBatchPage), BatchListingRefusals),
)]
pub async fn list(
    mut caller: Caller<Operate>,
    query: Query<(PageParams, (BatchListParams, BatchPartnerParam))>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let (page, (phase, partner)) = query.value()?;
    let _turn = caller.page_turn(&request, page.limit).await?;
    let (batches, next_cursor) = match partner {
        None => service.page_of_open(&page, phase).await?,
        Some(partner) => {
            let (batches, next_cursor) = service.page_of(&partner, &page, phase).await?;
            let of_partner = |batch| PartnerBatch { partner_id: partner.to_string(), batch };
            (batches.into_iter().map(of_partner).collect(), next_cursor)
        }
    };
    caller.confirm(&request).await?;
    Ok(HttpResponse::Ok().json(PartnerBatchPage { batches, next_cursor }))
}

/// Read a batch of a partner
#[utoipa::path(
    get,
    path = "/v1/admin/batches/{partner_id}/{batch_id}",
    operation_id = "get_batch_of_partner",
    tag = "admin",
    responses((status = 200, description = "The current state of the batch.", body = PartnerBatch), BatchReadingRefusals),
)]
pub async fn find(
    _caller: Caller<Operate>,
    path: Path<PartnerBatchPath>,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = path.value()?.key();
    let batch = service.batches.find(&key, None).await?.ok_or_else(unknown)?;
    Ok(HttpResponse::Ok().json(service.report_of_partner(&batch)))
}

/// Cancel a batch of a partner
///
/// Only a batch of which nothing is posted can be cancelled. The partner reads that it is cancelled.
#[utoipa::path(
    delete,
    path = "/v1/admin/batches/{partner_id}/{batch_id}",
    operation_id = "cancel_batch_of_partner",
    tag = "admin",
    responses((status = 200, description = "The batch is cancelled.", body = PartnerBatch), BatchCancellingRefusals),
)]
pub async fn cancel(
    mut caller: Caller<Operate>,
    path: Path<PartnerBatchPath>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = path.value()?.key();
    let act = async |caller: &Caller<Operate>| service.cancel(&key, caller.standing()).await;
    let cancelled = caller.under_present_rights(&request, act).await?.ok_or_else(unknown)?;
    Ok(HttpResponse::Ok().json(service.report_of_partner(&cancelled)))
}

/// Read the results of a batch of a partner
///
/// Returns the result of each item in the order of the document, once the batch is completed: as NDJSON, or with `Accept:
/// text/csv` as CSV. After an interruption, continue with `after`, the last line that you received. The results contain
/// balances, so they need the scope `admin`.
#[utoipa::path(
    get,
    path = "/v1/admin/batches/{partner_id}/{batch_id}/results",
    operation_id = "get_results_of_partner",
    tag = "admin",
    responses(
        (status = 200, description = "One `BatchResult` on each line.", content(
            (BatchResult = "application/x-ndjson"),
            (String = "text/csv"),
        )),
        BatchResultRefusals
    ),
)]
pub async fn results(
    caller: Caller<Admin>,
    path: Path<PartnerBatchPath>,
    after: Query<ResultParams>,
    request: HttpRequest,
    service: Data<BatchService>,
) -> Result<HttpResponse, ApiError> {
    let key = path.value()?.key();
    let wanted = WantedResults::of(&request, after)?;
    let batch = service.batches.find(&key, None).await?.ok_or_else(unknown)?;
    wanted.answer(&service.batches, &batch, caller).await
}

fn unknown() -> ApiError {
    ApiError::new(Code::BatchUnknown, "This partner has no batch with this id.")
}
