//! Reports for operators: queues, order numbers, single transactions, costs, the number of workers.

use actix_web::HttpResponse;
use actix_web::web::Data;
use postonce_schemas::json::{
    FoundTransactions, OrderNumbers, QueueList, Scale, Scrubber, StorageOperations,
};

use crate::access::authentication::Caller;
use crate::access::scopes::{Admin, Metrics, Operate, Scale as ReadScale};
use crate::admin::service::AdminService;
use crate::api::arguments::Query;
use crate::api::lookup_query::LookupParams;
use crate::api::refusals::Refusals;
use crate::api::views;
use crate::error::ApiError;

/// List the work queues
#[utoipa::path(
    get,
    path = "/v1/admin/queues",
    operation_id = "list_queues",
    tag = "admin",
    responses((status = 200, description = "The queues, by name.", body = QueueList), Refusals),
)]
pub async fn queues(_caller: Caller<Metrics>, admin: Data<AdminService>) -> Result<HttpResponse, ApiError> {
    let now = admin.now();
    let reports = admin.queues().await.map_err(ApiError::queue)?;
    Ok(HttpResponse::Ok().json(views::queues(reports, now)))
}

/// Read the register of order numbers
///
/// Contains the current state of this process. Other processes report their state when they reserve a range.
#[utoipa::path(
    get,
    path = "/v1/admin/order-numbers",
    operation_id = "get_order_numbers",
    tag = "admin",
    responses((status = 200, description = "The register of order numbers.", body = OrderNumbers), Refusals),
)]
pub async fn order_numbers(
    _caller: Caller<Admin>,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(views::order_numbers(admin.order_numbers().await?)))
}

/// Find a transaction
///
/// Finds the transaction with an order number, which people quote, or the transactions of all partners with a message id on an
/// account; with their partners, and their way through the bank. Accounts out of reach of the key are left out. With SQLite,
/// every order number is found. On Azure, numbers are recorded some seconds after their postings; if a process could not, the
/// scrubber does so in a later round. So search by message id if a number is not found.
#[utoipa::path(
    get,
    path = "/v1/admin/transactions",
    operation_id = "find_transactions",
    tag = "admin",
    responses((status = 200, description = "The transactions that were found.", body = FoundTransactions), Refusals),
)]
pub async fn transactions(
    caller: Caller<Admin>,
    wanted: Query<LookupParams>,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let mut found = admin.transactions(wanted.value()?).await?;
    found.retain(|stored| caller.within(stored.submission.key.account).is_ok());
    let transactions = found.into_iter().map(views::found_transaction).collect();
    Ok(HttpResponse::Ok().json(FoundTransactions { transactions }))
}

/// Read the cost of storage
///
/// Number of storage operations of each process in `processes` since its start, and their cost at the configured
/// prices. All operations count, including those that post nothing.
#[utoipa::path(
    get,
    path = "/v1/admin/storage-operations",
    operation_id = "get_storage_operations",
    tag = "admin",
    responses((status = 200, description = "Counts and prices.", body = StorageOperations), Refusals),
)]
pub async fn storage_operations(
    _caller: Caller<Operate>,
    admin: Data<AdminService>,
) -> Result<HttpResponse, ApiError> {
    let costs = admin.costs().await;
    Ok(HttpResponse::Ok().json(views::costs(&costs, admin.prices())))
}

/// Read the state of the scrubber
///
/// The scrubber checks all rows of the store again and again, with a limited number of storage operations per day, and
/// enqueues the work of accepted transactions that have no message. The state is as the process that scrubs last
/// wrote it: up to 15 minutes ago during a round. A round is the longest time for which a transaction can be forgotten.
#[utoipa::path(
    get,
    path = "/v1/admin/scrubber",
    operation_id = "get_scrubber",
    tag = "admin",
    responses((status = 200, description = "Progress and results.", body = Scrubber), Refusals),
)]
pub async fn scrubber(_caller: Caller<Operate>, admin: Data<AdminService>) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(views::scrubber(admin.scrubber().await?)))
}

/// Read the wanted number of workers
///
/// Computed from the backlog of queues and batches, the age target and the schedule. The backlog is read at most once in
/// 5 seconds. The number decreases at once with it; callers should wait before they stop workers, as Kubernetes
/// (`stabilizationWindowSeconds`) and `postonce-worker --scale` do.
///
/// KEDA can use this trigger. `postonce-scale` is a `TriggerAuthentication` whose parameter `token` comes from a
/// secret with an API key of scope `scale`:
///
/// ```yaml
/// triggers:
///   - type: metrics-api
///     metadata:
///       url: http://postonce-web:8080/v1/admin/scale
///       valueLocation: workers_wanted
///       targetValue: "1"
///       authMode: bearer
///     authenticationRef:
///       name: postonce-scale
/// ```
#[utoipa::path(
    get,
    path = "/v1/admin/scale",
    operation_id = "get_scale",
    tag = "admin",
    responses((status = 200, description = "The number and its reasons.", body = Scale), Refusals),
)]
pub async fn scale(_caller: Caller<ReadScale>, admin: Data<AdminService>) -> Result<HttpResponse, ApiError> {
    let report = admin.scale().await.map_err(ApiError::queue)?;
    Ok(HttpResponse::Ok().json(views::scale(report)))
}
