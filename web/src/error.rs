//! Every error that the API answers with, in one published table: status, stable code, title.
//!
//! An [`ApiError`] carries two texts: `detail` is for the client, the cause is for the log. The cause
//! never reaches a response; the middleware in [`crate::edge::observe`] writes it down, once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};
use postonce_schemas::json::{Problem, Violation};
use postonce_shared::ports::fault::{Cause, StoreFault};
use postonce_shared::protocol::accept::AcceptFault;
use postonce_shared::protocol::dead_letters::DeadLetterFault;
use postonce_shared::protocol::order_numbers::OrderNumberFault;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use postonce_worker::readiness::Part;

/// The media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Most violations that are told; whoever makes more mends these first.
pub const VIOLATIONS_MAX: usize = 100;
/// Most characters of a text that may quote what a client sent: an answer must not be far larger than
/// its request, and a person should want to read it.
const TEXT_CHARS_MAX: usize = 300;

/// Declares the table: code, status and title stand together.
macro_rules! published {
    ($($name:ident = $status:ident $code:literal $title:literal;)*) => {
        /// The kind of an error. The codes are part of the contract and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// Every kind, for documents and tests.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is published about it.
            pub const fn published(self) -> Published {
                match self {
                    $(Self::$name => Published { status: StatusCode::$status, code: $code, title: $title },)*
                }
            }
        }
    };
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The HTTP status.
    pub status: StatusCode,
    /// The stable code.
    pub code: &'static str,
    /// The kind of problem, for people.
    pub title: &'static str,
}

published! {
    ApiKeyMissing = UNAUTHORIZED "api_key_missing" "The request carries no API key";
    ApiKeyInvalid = UNAUTHORIZED "api_key_invalid" "The API key is not known or was revoked";
    SignatureMissing = UNAUTHORIZED "signature_missing" "The request must be signed";
    SignatureInvalid = UNAUTHORIZED "signature_invalid" "The signature is not that of this request";
    SignatureIncomplete = UNAUTHORIZED "signature_incomplete" "The signature does not cover all that it must";
    SignatureExpired = UNAUTHORIZED "signature_expired" "The signature is not of this time";
    ScopeMissing = FORBIDDEN "scope_missing" "The API key does not allow this";
    RateLimited = TOO_MANY_REQUESTS "rate_limited" "Too many requests in a short time";
    HeadersTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE "headers_too_large" "The head of the request is too large";
    PathInvalid = BAD_REQUEST "path_invalid" "An id in the path is not valid";
    QueryInvalid = BAD_REQUEST "query_invalid" "A query parameter is not valid";
    CursorInvalid = BAD_REQUEST "cursor_invalid" "The cursor is not one of this listing";
    BodyInvalid = BAD_REQUEST "body_invalid" "The body cannot be read";
    ContentDigestInvalid = BAD_REQUEST "content_digest_invalid" "The digest of the body cannot be used";
    ContentDigestMismatch = BAD_REQUEST "content_digest_mismatch" "The body is not the one that the digest was made of";
    RequestTimeout = REQUEST_TIMEOUT "request_timeout" "The body did not arrive in time";
    BodyTooLarge = PAYLOAD_TOO_LARGE "body_too_large" "The body is too large";
    HeaderNotUnderstood = BAD_REQUEST "header_not_understood" "A header that must be understood is not known";
    NotAcceptable = NOT_ACCEPTABLE "not_acceptable" "No format that we write is accepted";
    MediaTypeUnsupported = UNSUPPORTED_MEDIA_TYPE "media_type_unsupported" "The media type is not supported";
    ValidationFailed = UNPROCESSABLE_ENTITY "validation_failed" "The request breaks the rules of its fields";
    IdempotencyKeyMissing = BAD_REQUEST "idempotency_key_missing" "The Idempotency-Key header is missing";
    IdempotencyKeyInvalid = BAD_REQUEST "idempotency_key_invalid" "The Idempotency-Key is not a UUID";
    IdempotencyKeyReused = UNPROCESSABLE_ENTITY "idempotency_key_reused" "The Idempotency-Key was used for other content";
    AccountUnknown = NOT_FOUND "account_unknown" "There is no such account";
    UserUnknown = NOT_FOUND "user_unknown" "There is no such user";
    PartnerUnknown = NOT_FOUND "partner_unknown" "There is no such partner";
    KeyUnknown = NOT_FOUND "key_unknown" "The partner has no such key";
    TransactionUnknown = NOT_FOUND "transaction_unknown" "There is no such transaction";
    DeadLetterUnknown = NOT_FOUND "dead_letter_unknown" "There is no such dead letter";
    NotFound = NOT_FOUND "not_found" "There is nothing at this path";
    MethodNotAllowed = METHOD_NOT_ALLOWED "method_not_allowed" "The path does not know this method";
    CurrencyMismatch = UNPROCESSABLE_ENTITY "currency_mismatch" "The currency is not the account's";
    KeysTooMany = CONFLICT "keys_too_many" "As many keys work as may at a time";
    SignatureKeyExists = CONFLICT "signature_key_exists" "There is another signature key of that id";
    SignatureKeyNeeded = CONFLICT "signature_key_needed" "Who has to sign needs a signature key";
    CallerShutOut = CONFLICT "caller_shut_out" "The request would shut its own sender out";
    PreconditionFailed = PRECONDITION_FAILED "precondition_failed" "It is not in the state that If-Match names";
    AccountExists = CONFLICT "account_exists" "The account exists with other content";
    AccountBalanceNotZero = CONFLICT "account_balance_not_zero" "The balance of the account is not zero";
    DeadLetterResolved = CONFLICT "dead_letter_resolved" "The dead letter was decided before";
    InternalError = INTERNAL_SERVER_ERROR "internal_error" "Something is wrong on our side";
    StorageUnavailable = SERVICE_UNAVAILABLE "storage_unavailable" "The store cannot be reached at the moment";
    Overloaded = SERVICE_UNAVAILABLE "overloaded" "Too many requests are in hand at the moment";
    AccountBusy = SERVICE_UNAVAILABLE "account_busy" "The account changes too fast at the moment";
}

/// A request that was not answered as its sender hoped.
#[derive(Debug)]
pub struct ApiError {
    code: Code,
    detail: String,
    violations: Vec<Violation>,
    fault: Option<Fault>,
}

/// What failed on our side.
#[derive(Debug)]
pub struct Fault {
    /// For the log.
    pub cause: Cause,
    /// The part of the service that did not do its work, if that can be told.
    pub part: Option<Part>,
}

impl ApiError {
    /// An error with what the client should know about it.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: shortened(detail.into()), violations: Vec::new(), fault: None }
    }

    /// Input that breaks rules, all of them at once, up to a number that nobody reads to the end.
    pub fn violations(code: Code, violations: Vec<Violation>) -> Self {
        let detail = match violations.len() {
            1 => "One field is not valid; see violations.".to_owned(),
            count @ 0..=VIOLATIONS_MAX => format!("{count} fields are not valid; see violations."),
            count => {
                format!("{count} fields are not valid; see violations for the first {VIOLATIONS_MAX}.")
            }
        };
        let told = violations.into_iter().take(VIOLATIONS_MAX).map(|Violation { field, message }| {
            Violation { field: shortened(field), message: shortened(message) }
        });
        Self { violations: told.collect(), ..Self::new(code, detail) }
    }

    /// There is no such account, or the partner may not access it.
    pub fn account_unknown() -> Self {
        let detail = "Open the account first, with PUT. The id of the request is not used up.";
        Self::new(Code::AccountUnknown, detail)
    }

    /// The user has no account that the partner may access.
    pub fn user_unknown() -> Self {
        Self::new(Code::UserUnknown, "This user has no account that your key may access.")
    }

    /// There is no such transaction of this partner.
    pub fn transaction_unknown() -> Self {
        let detail = "No transaction of yours with this id was accepted on this account.";
        Self::new(Code::TransactionUnknown, detail)
    }

    /// The cursor was changed, or belongs to another listing.
    pub fn cursor_invalid() -> Self {
        let detail = "Pass the next_cursor of the page before, unchanged, to the same listing.";
        Self::new(Code::CursorInvalid, detail)
    }

    /// A failure of ours that trying again does not help.
    pub fn internal(cause: impl Into<Cause>) -> Self {
        let detail = "The request could not be carried out. The error was recorded.";
        let fault = Some(Fault { cause: cause.into(), part: None });
        Self { fault, ..Self::new(Code::InternalError, detail) }
    }

    /// A failure of the store that passes.
    fn unavailable(cause: impl Into<Cause>, part: Part) -> Self {
        let detail = "Try again later, with the same Idempotency-Key where there is one: what was asked may \
                      have happened, and asking again with the same id is always safe.";
        let fault = Some(Fault { cause: cause.into(), part: Some(part) });
        Self { fault, ..Self::new(Code::StorageUnavailable, detail) }
    }

    fn store(cause: impl Into<Cause>, is_transient: bool, part: Part) -> Self {
        if is_transient { Self::unavailable(cause, part) } else { Self::internal(cause) }
    }

    /// A failure of the queue, where [`From`] would say the ledger.
    pub fn queue(fault: StoreFault) -> Self {
        let is_transient = fault.is_transient();
        Self::store(fault, is_transient, Part::Queue)
    }

    /// As [`Self::queue`], for a failure that many requests share.
    pub fn shared_queue(fault: Arc<StoreFault>) -> Self {
        let is_transient = fault.is_transient();
        Self::store(fault, is_transient, Part::Queue)
    }

    /// The same with other names for the fields.
    #[must_use]
    pub fn with_fields(mut self, name: impl Fn(&str) -> String) -> Self {
        for violation in &mut self.violations {
            violation.field = shortened(name(&violation.field));
        }
        self
    }

    /// What the client is told.
    pub fn problem(&self) -> Problem {
        let Published { status, code, title } = self.code.published();
        Problem {
            r#type: format!("urn:postonce:problem:{code}"),
            title: title.into(),
            status: status.as_u16(),
            detail: self.detail.clone(),
            code: code.into(),
            violations: self.violations.clone(),
        }
    }

    /// Its kind.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The fields that break rules.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.violations.iter().map(|violation| violation.field.as_str())
    }

    /// What failed on our side, if something did.
    pub const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

/// The start of a text that somebody else may have made long.
fn shortened(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.published().code, self.detail)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        self.code.published().status
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.status_code();
        let mut response = HttpResponse::build(status);
        response.content_type(PROBLEM_JSON);
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, r#"Bearer realm="postonce""#));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((header::RETRY_AFTER, "1"));
        }
        response.json(self.problem())
    }
}

impl From<StoreFault> for ApiError {
    fn from(fault: StoreFault) -> Self {
        if matches!(fault, StoreFault::ForeignCursor { .. }) {
            return Self::cursor_invalid();
        }
        let is_transient = fault.is_transient();
        Self::store(fault, is_transient, Part::Ledger)
    }
}

impl From<AcceptFault> for ApiError {
    fn from(fault: AcceptFault) -> Self {
        let (is_transient, part) = match &fault {
            AcceptFault::Account(store) | AcceptFault::Log(store) => (store.is_transient(), Part::Ledger),
            AcceptFault::Queue(store) => (store.is_transient(), Part::Queue),
            // A task of ours ended early, as at a shutdown; the client should come back.
            AcceptFault::Abandoned(_) => (true, Part::Ledger),
        };
        Self::store(fault, is_transient, part)
    }
}

impl From<DeadLetterFault> for ApiError {
    fn from(fault: DeadLetterFault) -> Self {
        let is_transient = fault.is_transient();
        Self::store(fault, is_transient, Part::Ledger)
    }
}

impl From<OrderNumberFault> for ApiError {
    fn from(fault: OrderNumberFault) -> Self {
        let is_transient = match &fault {
            OrderNumberFault::Unavailable(store) => store.is_transient(),
            OrderNumberFault::Contended | OrderNumberFault::Abandoned | OrderNumberFault::Closed => true,
            OrderNumberFault::Unsound(_) => false,
        };
        Self::store(fault, is_transient, Part::Ledger)
    }
}

/// The refusals of an operation as its OpenAPI document lists them: one response for each status,
/// which names the codes.
pub fn documented(codes: &[Code]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for code in codes {
        let Published { status, code, title } = code.published();
        by_status.entry(status.as_str().to_owned()).or_default().push(format!("`{code}`: {title}."));
    }
    let response = |lines: Vec<String>| {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        ResponseBuilder::new().description(lines.join("\n\n")).content(PROBLEM_JSON, problem)
    };
    let headed = |status: String, lines: Vec<String>| {
        let header = match status.as_str() {
            "401" => Some(("WWW-Authenticate", "The scheme of the key.")),
            "503" => Some(("Retry-After", "Seconds after which trying again makes sense.")),
            _ => None,
        };
        let response = header.into_iter().fold(response(lines), |response, (name, description)| {
            response.header(name, HeaderBuilder::new().description(Some(description)).build())
        });
        (status, RefOr::T(response.build()))
    };
    by_status.into_iter().map(|(status, lines)| headed(status, lines)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_titles_are_phrases() {
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.published().code).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in Code::ALL {
            let Published { status, code, title } = code.published();
            assert!(status.is_client_error() || status.is_server_error(), "{code}");
            assert!(!title.ends_with('.'), "{code}");
        }
    }

    #[actix_web::test]
    async fn a_refusal_is_short_however_much_was_wrong() {
        let violation = |_| Violation { field: "ü".repeat(60_000), message: "must\u{1F980}".repeat(9000) };
        let error = ApiError::violations(Code::ValidationFailed, (0..10_000).map(violation).collect());
        let body = actix_web::body::to_bytes(error.error_response().into_body()).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["detail"], "10000 fields are not valid; see violations for the first 100.");
        assert_eq!(problem["violations"].as_array().unwrap().len(), 100);
        assert!(body.len() < 256 * 1024, "{} bytes", body.len());
        let error = ApiError::new(Code::BodyInvalid, "x".repeat(60_000));
        assert_eq!(error.to_string(), format!("body_invalid: {}…", "x".repeat(300)));
    }

    #[actix_web::test]
    async fn the_cause_stays_inside() {
        let error = ApiError::internal("secret detail of the store");
        let body = actix_web::body::to_bytes(error.error_response().into_body()).await.unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
    }
}
