//! Responses: transactions and accounts as JSON, refusals as problems (RFC 9457).

use std::error::Error as _;
use std::fmt;
use std::time::SystemTime;

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use uuid::Uuid;

use crate::peers::postgres::accounts::Name;
use crate::peers::postgres::fault::Fault;
use crate::peers::postgres::money::Decimal;
use crate::peers::postgres::transaction::{Balance, Transaction};

/// A transaction in a response.
#[derive(Debug, Serialize)]
struct TransactionBody<'a> {
    message_id: Uuid,
    user_id: Uuid,
    account_id: Uuid,
    r#type: &'static str,
    amount: String,
    currency: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<&'a str>,
    accepted_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten)]
    posting: Option<PostingBody>,
}

/// The additional members of a posted transaction.
#[derive(Debug, Serialize)]
struct PostingBody {
    sequence: i64,
    balance_after: String,
    posted_at: String,
}

/// The response with a transaction in its final status.
pub fn transaction((user_id, account_id): Name, currency: &str, transaction: &Transaction) -> HttpResponse {
    let Transaction { instruction, posting } = transaction;
    let body = TransactionBody {
        message_id: instruction.message_id,
        user_id,
        account_id,
        r#type: if instruction.amount < 0 { "withdrawal" } else { "deposit" },
        amount: Decimal(instruction.amount.saturating_abs()).to_string(),
        currency,
        status: if posting.is_some() { "posted" } else { "rejected" },
        reference: instruction.reference.as_deref(),
        accepted_at: instant(instruction.accepted_at),
        reason: posting.is_none().then_some("insufficient_funds"),
        posting: posting.map(|posting| PostingBody {
            sequence: posting.sequence,
            balance_after: Decimal(posting.balance_after).to_string(),
            posted_at: instant(posting.posted_at),
        }),
    };
    HttpResponse::Ok().json(body)
}

/// The same response, for a repeated request.
pub fn replayed(mut response: HttpResponse) -> HttpResponse {
    let value = HeaderValue::from_static("true");
    response.headers_mut().insert(HeaderName::from_static("idempotent-replayed"), value);
    response
}

/// An account in a response.
#[derive(Debug, Serialize)]
struct AccountBody<'a> {
    user_id: Uuid,
    account_id: Uuid,
    currency: &'a str,
    balance: String,
    version: i64,
    opened_at: String,
}

/// The response with an account.
pub fn account((user_id, account_id): Name, balance: &Balance, status: StatusCode) -> HttpResponse {
    HttpResponseBuilder::new(status).json(AccountBody {
        user_id,
        account_id,
        currency: &balance.currency,
        balance: Decimal(balance.minor_units).to_string(),
        version: balance.version,
        opened_at: instant(balance.opened_at),
    })
}

/// In milliseconds; the database stores microseconds.
fn instant(at: SystemTime) -> String {
    const FORMAT: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    OffsetDateTime::from(at).format(FORMAT).expect("the clock is between the years 0 and 9999")
}

/// Reasons to refuse a request.
#[derive(Debug)]
pub enum Refusal {
    KeyMissing,
    KeyInvalid,
    IdempotencyKeyMissing,
    IdempotencyKeyInvalid,
    IdempotencyKeyReused,
    MediaType(&'static str),
    BodyMalformed(serde_json::Error),
    BodyBroken(actix_web::error::PayloadError),
    LineTooLong,
    FieldInvalid { field: &'static str, message: &'static str },
    CurrencyMismatch,
    BatchUnknown,
    AccountUnknown,
    AccountExists,
    AmountOutOfRange,
    StorageUnavailable(Fault),
}

impl Refusal {
    /// The status, and the code for programs.
    fn published(&self) -> (StatusCode, &'static str) {
        match self {
            Self::KeyMissing => (StatusCode::UNAUTHORIZED, "api_key_missing"),
            Self::KeyInvalid => (StatusCode::UNAUTHORIZED, "api_key_invalid"),
            Self::IdempotencyKeyMissing => (StatusCode::BAD_REQUEST, "idempotency_key_missing"),
            Self::IdempotencyKeyInvalid => (StatusCode::BAD_REQUEST, "idempotency_key_invalid"),
            Self::IdempotencyKeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
            Self::MediaType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type_unsupported"),
            Self::BodyMalformed(_) | Self::BodyBroken(_) | Self::LineTooLong => {
                (StatusCode::BAD_REQUEST, "body_malformed")
            }
            Self::FieldInvalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "validation_failed"),
            Self::CurrencyMismatch => (StatusCode::UNPROCESSABLE_ENTITY, "currency_mismatch"),
            Self::BatchUnknown => (StatusCode::NOT_FOUND, "batch_unknown"),
            Self::AccountUnknown => (StatusCode::NOT_FOUND, "account_unknown"),
            Self::AccountExists => (StatusCode::CONFLICT, "account_exists"),
            Self::AmountOutOfRange => (StatusCode::UNPROCESSABLE_ENTITY, "amount_out_of_range"),
            Self::StorageUnavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable"),
        }
    }
}

/// The text for clients.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BodyMalformed(error) => return write!(f, "The body can't be read: {error}."),
            Self::BodyBroken(error) => return write!(f, "The body can't be received: {error}."),
            Self::MediaType(expected) => return write!(f, "Send {expected}."),
            Self::FieldInvalid { field, message } => return write!(f, "{field} {message}."),
            Self::KeyMissing => "Send your key in \"Authorization: Bearer …\".",
            Self::KeyInvalid => "Check the key in the Authorization header.",
            Self::IdempotencyKeyMissing => "Send an Idempotency-Key.",
            Self::IdempotencyKeyInvalid => "The Idempotency-Key must be a UUID.",
            Self::IdempotencyKeyReused => "This Idempotency-Key belongs to other content.",
            Self::CurrencyMismatch => "The account is kept in another currency.",
            Self::LineTooLong => "A line has more than 64 KiB.",
            Self::BatchUnknown => "There is no such batch.",
            Self::AccountUnknown => "There is no such account.",
            Self::AccountExists => "The account exists, in another currency.",
            Self::AmountOutOfRange => "The balance would be too large.",
            Self::StorageUnavailable(_) => "The database did not answer. A retry with the same id is safe.",
        })
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::StorageUnavailable(fault)
    }
}

impl ResponseError for Refusal {
    fn status_code(&self) -> StatusCode {
        self.published().0
    }

    fn error_response(&self) -> HttpResponse {
        let (status, code) = self.published();
        let mut response = HttpResponseBuilder::new(status);
        if let Self::StorageUnavailable(fault) = self {
            // The cause is logged and not sent to the client.
            eprintln!("storage_unavailable: {fault}: {:?}", fault.source());
            response.insert_header((RETRY_AFTER, "1"));
        }
        response.insert_header((CONTENT_TYPE, "application/problem+json"));
        let title = status.canonical_reason();
        let problem = serde_json::json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": self.to_string(),
        });
        response.body(problem.to_string())
    }
}
