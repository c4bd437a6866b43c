//! The routes and their handlers.

use actix_web::http::StatusCode;
use actix_web::http::header::LOCATION;
use actix_web::web::{Bytes, Data, Path, Payload, ServiceConfig, get, post, put, resource};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use uuid::Uuid;

use crate::peers::postgres::accounts::Name;
use crate::peers::postgres::answer::{self, Refusal};
use crate::peers::postgres::batch::{Batches, Submitted};
use crate::peers::postgres::counts::Counts;
use crate::peers::postgres::credentials::Credentials;
use crate::peers::postgres::ledger::Ledger;
use crate::peers::postgres::request::{self, Direction};
use crate::peers::postgres::transaction::Outcome;

/// The part of the bank's API that the benchmark uses, and the counts.
pub fn all(routes: &mut ServiceConfig) {
    let account = "/v1/users/{user}/accounts/{account}";
    routes
        .service(resource(format!("{account}/deposits")).route(post().to(deposit)))
        .service(resource(format!("{account}/withdrawals")).route(post().to(withdraw)))
        .service(resource(account).route(put().to(open)).route(get().to(show)))
        .service(resource("/v1/batches").route(post().to(submit_batch)))
        .service(resource("/v1/batches/{batch}").route(get().to(show_batch)))
        .service(resource("/bench/counts").route(get().to(count)));
}

async fn deposit(
    request: HttpRequest,
    body: Bytes,
    name: Path<Name>,
    credentials: Data<Credentials>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, Refusal> {
    credentials.check(request.headers())?;
    submit(&request, &body, Direction::Deposit, *name, &ledger).await
}

async fn withdraw(
    request: HttpRequest,
    body: Bytes,
    name: Path<Name>,
    credentials: Data<Credentials>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, Refusal> {
    credentials.check(request.headers())?;
    submit(&request, &body, Direction::Withdrawal, *name, &ledger).await
}

async fn submit(
    request: &HttpRequest,
    body: &[u8],
    direction: Direction,
    name: Name,
    ledger: &Ledger,
) -> Result<HttpResponse, Refusal> {
    let (instruction, currency) = request::instruction(request.headers(), body, direction)?;
    let account = ledger.account(name).await?.ok_or(Refusal::AccountUnknown)?;
    if currency != *account.currency {
        return Err(Refusal::CurrencyMismatch);
    }
    match ledger.post(&account, instruction).await? {
        Outcome::Final(transaction) => Ok(answer::transaction(name, &account.currency, &transaction)),
        Outcome::Replayed(transaction) => {
            Ok(answer::replayed(answer::transaction(name, &account.currency, &transaction)))
        }
        Outcome::Reused => Err(Refusal::IdempotencyKeyReused),
        Outcome::OutOfRange => Err(Refusal::AmountOutOfRange),
    }
}

async fn open(
    request: HttpRequest,
    body: Bytes,
    name: Path<Name>,
    credentials: Data<Credentials>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, Refusal> {
    credentials.check(request.headers())?;
    let currency = request::currency(request.headers(), &body)?;
    let status = if ledger.open(*name, &currency).await? { StatusCode::CREATED } else { StatusCode::OK };
    let balance = ledger.balance(*name).await?.ok_or(Refusal::AccountUnknown)?;
    if balance.currency == currency {
        Ok(answer::account(*name, &balance, status))
    } else {
        Err(Refusal::AccountExists)
    }
}

async fn show(
    request: HttpRequest,
    name: Path<Name>,
    credentials: Data<Credentials>,
    ledger: Data<Ledger>,
) -> Result<HttpResponse, Refusal> {
    credentials.check(request.headers())?;
    let balance = ledger.balance(*name).await?.ok_or(Refusal::AccountUnknown)?;
    Ok(answer::account(*name, &balance, StatusCode::OK))
}

async fn submit_batch(
    request: HttpRequest,
    body: Payload,
    credentials: Data<Credentials>,
    batches: Data<Batches>,
) -> Result<HttpResponse, Refusal> {
    credentials.check(request.headers())?;
    let (id, at) = request::batch(request.headers())?;
    let submitted = batches.submit(id, at, body).await?;
    let answer =
        |batch| HttpResponse::Accepted().insert_header((LOCATION, format!("/v1/batches/{id}"))).json(batch);
    Ok(match submitted {
        Submitted::Posted(batch) => answer(batch),
        Submitted::Replayed(batch) => answer::replayed(answer(batch)),
    })
}

async fn show_batch(
    request: HttpRequest,
    id: Path<Uuid>,
    credentials: Data<Credentials>,
    batches: Data<Batches>,
) -> Result<HttpResponse, Refusal> {
    credentials.check(request.headers())?;
    let batch = batches.find(*id).await?.ok_or(Refusal::BatchUnknown)?;
    Ok(HttpResponse::Ok().json(batch))
}

async fn count(counts: Data<Counts>) -> HttpResponse {
    let (posted, round_trips) = counts.read();
    HttpResponse::Ok().json(json!({ "posted": posted, "storage_operations": round_trips }))
}
