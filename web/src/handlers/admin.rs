//! What operators look at: queues, order numbers, costs.

use actix_web::HttpResponse;
use actix_web::web::Data;
use postonce_schemas::json::{OrderNumbers, QueueList, StorageOperation, StorageOperations};

use crate::auth::Caller;
use crate::error::ApiError;
use crate::office::Office;
use crate::openapi::Refusals;
use crate::prices::{nano_usd, usd};
use crate::respond;
use crate::scopes::Admin;

/// Look at the work queues
#[utoipa::path(
    get,
    path = "/v1/admin/queues",
    operation_id = "list_queues",
    tag = "admin",
    responses((status = 200, description = "The queues, by name.", body = QueueList), Refusals),
    security(("api_key" = ["admin"]))
)]
pub async fn queues(_caller: Caller<Admin>, office: Data<Office>) -> Result<HttpResponse, ApiError> {
    let now = office.now();
    let reports = office.queues().await.map_err(ApiError::queue)?;
    let queues = reports.into_iter().map(|report| respond::queue(report, now)).collect();
    Ok(HttpResponse::Ok().json(QueueList { queues }))
}

/// Look at the order numbers
///
/// This process as it now is, others as they last reported: they do when they reserve a range.
#[utoipa::path(
    get,
    path = "/v1/admin/order-numbers",
    operation_id = "get_order_numbers",
    tag = "admin",
    responses((status = 200, description = "Where the numbers went.", body = OrderNumbers), Refusals),
    security(("api_key" = ["admin"]))
)]
pub async fn order_numbers(_caller: Caller<Admin>, office: Data<Office>) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(respond::order_numbers(office.order_numbers().await?)))
}

/// Look at the cost of storage
///
/// Requests of this process since it started, and their price on Azure at list prices.
#[utoipa::path(
    get,
    path = "/v1/admin/storage-operations",
    operation_id = "get_storage_operations",
    tag = "admin",
    responses((status = 200, description = "Counts and prices.", body = StorageOperations), Refusals),
    security(("api_key" = ["admin"]))
)]
pub async fn storage_operations(
    _caller: Caller<Admin>,
    office: Data<Office>,
) -> Result<HttpResponse, ApiError> {
    let counts = office.storage_operations();
    let total = counts.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let prices = counts.iter().map(|(operation, count)| nano_usd(operation.price, *count));
    let price_usd = usd(prices.fold(0, u64::saturating_add));
    let operations = counts.into_iter().map(|(operation, count)| StorageOperation {
        service: operation.service.code(),
        operation: operation.name,
        count,
        price_usd: usd(nano_usd(operation.price, count)),
    });
    let operations = operations.collect();
    Ok(HttpResponse::Ok().json(StorageOperations { operations, count: total, price_usd }))
}
