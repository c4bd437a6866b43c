//! Deposits and withdrawals.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use postonce_schemas::json::TransactionRequest;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::protocol::accept::Acceptor;

use crate::access::authentication::Caller;
use crate::access::scopes::{Deposit, Permission, Withdraw};
use crate::api::account_service::AccountService;
use crate::api::arguments::{Headers, Path, Preferences};
use crate::api::negotiate::Reply;
use crate::api::operation_headers::SubmissionHeaders;
use crate::api::paths::AccountPath;
use crate::api::refusals::{SubmissionAnswers, SubmissionRefusals};
use crate::api::translate::{self, InboundDocument};
use crate::api::{respond, submission};
use crate::error::ApiError;
use crate::headers::Wait;
use crate::metrics::Metrics;

/// Parts of the application that a submission needs.
type Services = (Data<Acceptor>, Data<AccountService>, Data<Metrics>);

/// Accept a deposit
///
/// Credits the account. Repeat the request with the same `Idempotency-Key` until you receive a response: it is
/// posted at most once, and a repeated request returns the current state of the transaction.
#[utoipa::path(
    post,
    path = "/v1/users/{user_id}/accounts/{account_id}/deposits",
    operation_id = "submit_deposit",
    tag = "transactions",
    request_body(content = TransactionRequest, content_type = "application/json"),
    responses(SubmissionAnswers, SubmissionRefusals),
)]
pub async fn deposit(
    mut caller: Caller<Deposit>,
    path: Path<AccountPath>,
    headers: Headers<SubmissionHeaders>,
    request: HttpRequest,
    payload: Payload,
    services: Services,
) -> Result<HttpResponse, ApiError> {
    submit(TransactionKind::Deposit, &mut caller, (path, headers), (request, payload), services).await
}

/// Accept a withdrawal
///
/// Debits the account. A withdrawal that exceeds the balance plus the overdraft limit is accepted and becomes
/// `rejected` with `insufficient_funds`. Repeat the request with the same `Idempotency-Key` until you receive a
/// response.
#[utoipa::path(
    post,
    path = "/v1/users/{user_id}/accounts/{account_id}/withdrawals",
    operation_id = "submit_withdrawal",
    tag = "transactions",
    request_body(content = TransactionRequest, content_type = "application/json"),
    responses(SubmissionAnswers, SubmissionRefusals),
)]
pub async fn withdrawal(
    mut caller: Caller<Withdraw>,
    path: Path<AccountPath>,
    headers: Headers<SubmissionHeaders>,
    request: HttpRequest,
    payload: Payload,
    services: Services,
) -> Result<HttpResponse, ApiError> {
    submit(TransactionKind::Withdrawal, &mut caller, (path, headers), (request, payload), services).await
}

async fn submit<P: Permission>(
    kind: TransactionKind,
    caller: &mut Caller<P>,
    (path, headers): (Path<AccountPath>, Headers<SubmissionHeaders>),
    (request, payload): (HttpRequest, Payload),
    (acceptor, accounts_service, metrics): Services,
) -> Result<HttpResponse, ApiError> {
    let reply = Reply::to(&request)?;
    let account = path.value()?.key();
    // The document is dropped here, so that a request that waits for the result does not hold its body in memory.
    let instruction = translate::instruction(kind, &InboundDocument::read(caller, &request, payload).await?)?;
    let SubmissionHeaders { message, preferences: Preferences { wait, handling }, .. } = headers.value()?;
    let (wait, _waiting) = caller.wait(&request, wait)?;
    let account = caller.within(account).map_err(|_| ApiError::account_to_open().beyond_reach())?;
    let payment = (account, message, instruction);
    let services = (&**acceptor, &**accounts_service, &**metrics);
    let acceptance =
        submission::submit(caller, &request, services, payment, wait.map(Wait::duration)).await?;
    respond::acceptance(acceptance, (wait, handling), reply)
}
