//! Reading transactions, one by one and as statements.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::{Transaction, TransactionPage};
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::domain::transaction::TransactionStatus;

use crate::access::authentication::Caller;
use crate::access::scopes::Read;
use crate::access::view::View;
use crate::api::account_service::AccountService;
use crate::api::negotiate::Reply;
use crate::api::pages::{PageQuery, cursor};
use crate::api::parameters::{AccountPath, PageParams, StatusParam, TransactionPath};
use crate::api::refusals::{StatementRefusals, TransactionRefusals};
use crate::api::{paths, respond};
use crate::error::ApiError;

/// Read a transaction
///
/// Whatever its status. Message ids are your own: those of other partners are not found here.
#[utoipa::path(
    get,
    path = "/v1/users/{user_id}/accounts/{account_id}/transactions/{message_id}",
    operation_id = "get_transaction",
    tag = "transactions",
    params(TransactionPath),
    responses((status = 200, description = "The transaction as it now is.", body = Transaction), TransactionRefusals),
    security(("api_key" = ["read"]))
)]
pub async fn find(
    caller: Caller<Read>,
    request: HttpRequest,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let (account, message) = paths::message(&request)?;
    // Out of reach, the answer is that of an account that does not exist, where there are no transactions.
    let account = caller.within(account).map_err(|_| ApiError::transaction_unknown())?;
    let key = TransactionKey { account, partner: caller.partner().clone(), message };
    let transaction = accounts_service.transaction(&key).await?.ok_or_else(ApiError::transaction_unknown)?;
    Ok(reply.with(HttpResponse::Ok(), respond::transaction(transaction)))
}

/// Read the statement of an account
///
/// Your posted transactions, oldest first. With `status`, those that are accepted and not final yet, or
/// rejected, by id. Those of other partners are not shown, except to a key with the scope `admin`. A page may
/// be short, or even empty, before the end: it ends where `next_cursor` is null.
#[utoipa::path(
    get,
    path = "/v1/users/{user_id}/accounts/{account_id}/transactions",
    operation_id = "get_statement",
    tag = "transactions",
    params(AccountPath, PageParams, StatusParam),
    responses((status = 200, description = "A page of transactions.", body = TransactionPage), StatementRefusals),
    security(("api_key" = ["read"]))
)]
pub async fn statement(
    caller: Caller<Read>,
    request: HttpRequest,
    accounts_service: Data<AccountService>,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let account = paths::account(&request)?;
    let page = PageQuery::of(&request)?;
    let view = caller.view();
    let listing = match view {
        View::Own(partner) => format!("{} of {account} by {partner}", page.status.code()),
        View::Everyones => format!("{} of {account}", page.status.code()),
    };
    let position = page.position(&listing)?;
    let account = caller.within(account)?;
    let (transactions, next) = match page.status {
        TransactionStatus::Posted => posted(&accounts_service, (account, view), position, page.limit).await?,
        status @ (TransactionStatus::Accepted | TransactionStatus::Rejected) => {
            let found =
                accounts_service.by_status((account, view), status, position.as_deref(), page.limit).await?;
            let found = found.ok_or_else(ApiError::account_unknown)?;
            let transactions = found.items.into_iter().map(|stored| respond::transaction(stored.transaction));
            (transactions.collect(), found.next)
        }
    };
    let next_cursor = next.map(|next| cursor(&listing, &next));
    Ok(reply.with(HttpResponse::Ok(), TransactionPage { transactions, next_cursor }))
}

async fn posted(
    accounts_service: &AccountService,
    (account, view): (AccountKey, View<'_>),
    position: Option<String>,
    limit: usize,
) -> Result<(Vec<Transaction>, Option<String>), ApiError> {
    let from = position.map_or(Ok(1), |sequence| sequence.parse()).map_err(|_| ApiError::cursor_invalid())?;
    let found = accounts_service
        .statement((account, view), from, limit)
        .await?
        .ok_or_else(ApiError::account_unknown)?;
    let transactions = found.items.into_iter().map(|entry| respond::entry(account, entry));
    Ok((transactions.collect(), found.next))
}
