//! The HTTP API: accounts, deposits and withdrawals, with the paths and the bodies of the bank.

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::error::{
    ErrorBadRequest, ErrorNotFound, ErrorServiceUnavailable, ErrorUnauthorized, ErrorUnprocessableEntity,
};
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{Data, Json, Path, ServiceConfig, get, post, put};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use postonce_shared::testing::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::peers::classic::counts::{self, Counts};
use crate::peers::classic::entry::{Entry, Money};
use crate::peers::classic::storage::{Status, Storage, Written};

/// Longest idle time of a client's connection: the same as in the bank.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Default of most submissions at once; the others wait. A submission is two requests and a posting five: with
/// [`crate::peers::classic::worker::PARALLEL`], the worker keeps up. With more submissions the queue grows, and the emulator
/// becomes slower at receives and deletes.
pub const PARALLEL: usize = 12;

/// State of the handlers.
struct AppState {
    storage: Storage,
    slots: Semaphore,
    clock: SystemWorld,
    /// The only valid value of `Authorization`.
    authorization: String,
}

/// The account in a path.
type Account = Path<(Uuid, Uuid)>;

#[derive(Deserialize)]
struct OpenRequest {
    currency: String,
}

#[derive(Deserialize)]
struct SubmitRequest {
    amount: String,
    currency: String,
}

/// A transaction in a response.
#[derive(Serialize)]
struct Transaction {
    message_id: Uuid,
    user_id: Uuid,
    account_id: Uuid,
    r#type: &'static str,
    amount: String,
    currency: String,
    status: &'static str,
    accepted_at: String,
}

/// The kind of a transaction.
#[derive(Clone, Copy)]
enum Direction {
    Deposit,
    Withdrawal,
}

/// Starts the server on a bound address.
pub fn serve(
    storage: Storage,
    counts: Arc<Counts>,
    key: &str,
    parallel: usize,
    listener: TcpListener,
) -> std::io::Result<Server> {
    let authorization = format!("Bearer {key}");
    let state = Data::new(AppState {
        storage,
        slots: Semaphore::new(parallel),
        clock: SystemWorld::new(),
        authorization,
    });
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let server = HttpServer::new(move || {
        let counts = Data::from(Arc::clone(&counts));
        App::new().app_data(state.clone()).app_data(counts).configure(counts::configure).configure(routes)
    });
    Ok(server.workers(threads).keep_alive(KEEP_ALIVE).disable_signals().listen(listener)?.run())
}

fn routes(config: &mut ServiceConfig) {
    const ACCOUNT: &str = "/v1/users/{user}/accounts/{account}";
    config
        .route(ACCOUNT, put().to(open_account))
        .route(ACCOUNT, get().to(show_account))
        .route(&format!("{ACCOUNT}/deposits"), post().to(deposit))
        .route(&format!("{ACCOUNT}/withdrawals"), post().to(withdraw));
}

async fn open_account(
    state: Data<AppState>,
    request: HttpRequest,
    account: Account,
    body: Json<OpenRequest>,
) -> actix_web::Result<HttpResponse> {
    state.authorize(&request)?;
    let (user_id, account_id) = account.into_inner();
    let opened =
        state.storage.open_account(user_id, account_id, &body.currency).await.map_err(unavailable)?;
    let mut answer = match opened {
        Written::Done => HttpResponse::Created(),
        Written::Conflict => HttpResponse::Ok(),
    };
    Ok(answer.json(json!({"user_id": user_id, "account_id": account_id, "currency": body.currency})))
}

async fn show_account(
    state: Data<AppState>,
    request: HttpRequest,
    account: Account,
) -> actix_web::Result<HttpResponse> {
    state.authorize(&request)?;
    let (user_id, account_id) = account.into_inner();
    let read = state.storage.balance(user_id, account_id).await.map_err(unavailable)?;
    let read = read.ok_or_else(|| ErrorNotFound("account_unknown"))?;
    Ok(HttpResponse::Ok().json(json!({
        "user_id": user_id,
        "account_id": account_id,
        "currency": read.currency,
        "balance": read.balance.to_string(),
    })))
}

async fn deposit(
    state: Data<AppState>,
    request: HttpRequest,
    account: Account,
    body: Json<SubmitRequest>,
) -> actix_web::Result<HttpResponse> {
    state.submit(Direction::Deposit, &request, account, body).await
}

async fn withdraw(
    state: Data<AppState>,
    request: HttpRequest,
    account: Account,
    body: Json<SubmitRequest>,
) -> actix_web::Result<HttpResponse> {
    state.submit(Direction::Withdrawal, &request, account, body).await
}

impl AppState {
    /// Refuses requests without the key.
    fn authorize(&self, request: &HttpRequest) -> actix_web::Result<()> {
        let sent = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        if sent == Some(self.authorization.as_bytes()) {
            Ok(())
        } else {
            Err(ErrorUnauthorized("key_invalid"))
        }
    }

    /// Accepts a deposit or a withdrawal: a point read of the log, and one message.
    async fn submit(
        &self,
        direction: Direction,
        request: &HttpRequest,
        account: Account,
        body: Json<SubmitRequest>,
    ) -> actix_web::Result<HttpResponse> {
        self.authorize(request)?;
        let (user, account) = account.into_inner();
        let transaction = idempotency_key(request)?;
        let SubmitRequest { amount: written, currency } = body.into_inner();
        let amount: Money = written.parse().map_err(|_| ErrorUnprocessableEntity("amount"))?;
        if amount <= Money::ZERO {
            return Err(ErrorUnprocessableEntity("amount"));
        }
        let (kind, amount) = match direction {
            Direction::Deposit => ("deposit", amount),
            Direction::Withdrawal => ("withdrawal", amount.opposite()),
        };
        let entry = Entry { user, account, transaction, amount };
        let slot = self.slots.acquire().await.expect("the semaphore is never closed");
        let logged = self.storage.logged(&entry).await.map_err(unavailable)?;
        if logged.is_none() {
            self.storage.put(&entry).await.map_err(unavailable)?;
        }
        drop(slot);
        let (mut answer, status) = match logged {
            None => (HttpResponse::Accepted(), "accepted"),
            Some(Status::Posted) => (HttpResponse::Ok(), "posted"),
            Some(Status::Rejected) => (HttpResponse::Ok(), "rejected"),
        };
        Ok(answer.json(Transaction {
            message_id: transaction,
            user_id: user,
            account_id: account,
            r#type: kind,
            amount: written,
            currency,
            status,
            accepted_at: self.clock.now().to_string(),
        }))
    }
}

/// The idempotency key, quoted or bare.
fn idempotency_key(request: &HttpRequest) -> actix_web::Result<Uuid> {
    let value = request.headers().get("Idempotency-Key");
    let value = value.ok_or_else(|| ErrorBadRequest("idempotency_key_missing"))?;
    let text = value.to_str().unwrap_or_default();
    Uuid::parse_str(text.trim_matches('"')).map_err(|_| ErrorBadRequest("idempotency_key_invalid"))
}

fn unavailable(error: azure_core::Error) -> actix_web::Error {
    eprintln!("the storage failed: {error}");
    ErrorServiceUnavailable("storage_unavailable")
}
