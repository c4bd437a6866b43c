//! The published table of API errors: status, stable code and title.
//!
//! An [`ApiError`] carries two texts: `detail` is for the client, the cause is for the log. The cause is never
//! part of a response; the middleware in [`crate::edge::observe`] logs it once.

use std::borrow::Borrow;
use std::fmt;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};
use postonce_schemas::json::{Problem, Violation};
use postonce_shared::access::partner_cache::RightsChanged;
use postonce_shared::batches::BatchFault;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::ports::fault::{Cause, StoreFault};
use postonce_shared::posting::order_numbers::OrderNumberFault;
use postonce_shared::protocol::accept::AcceptFault;
use postonce_shared::protocol::dead_letters::DeadLetterFault;

use postonce_process::readiness::Part;

/// Media type of every error response.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Maximum number of violations in one response. Clients fix these first and then see the rest.
pub const VIOLATIONS_MAX: usize = 100;
/// Maximum length in characters of a text that may quote the request. It bounds the size of the response.
const TEXT_CHARS_MAX: usize = 300;

/// Declares the table: one row with code, status and title for each error.
macro_rules! published {
    ($($name:ident = $status:ident $code:literal $title:literal;)*) => {
        /// Kind of an API error. The codes are part of the contract and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// All codes, for the OpenAPI document and tests.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the row of the published table for this code.
            pub const fn published(self) -> Published {
                match self {
                    $(Self::$name => Published { status: StatusCode::$status, code: $code, title: $title },)*
                }
            }
        }
    };
}

/// Returns whether a client should repeat a request that got this status, with the same id: the request was not processed,
/// or its outcome is unknown. The README has the table for clients.
pub const fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// One row of the published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Code for programs; it never changes.
    pub code: &'static str,
    /// Human-readable summary of the problem type.
    pub title: &'static str,
}

published! {
    ApiKeyMissing = UNAUTHORIZED "api_key_missing" "The request carries no API key";
    ApiKeyInvalid = UNAUTHORIZED "api_key_invalid" "The API key is unknown or was revoked";
    SignatureMissing = UNAUTHORIZED "signature_missing" "The request must be signed";
    SignatureInvalid = UNAUTHORIZED "signature_invalid" "The signature does not match the request";
    SignatureIncomplete = UNAUTHORIZED "signature_incomplete" "A required component is not signed";
    SignatureExpired = UNAUTHORIZED "signature_expired" "The signature is expired or not yet valid";
    SignatureUsed = UNAUTHORIZED "signature_used" "The signature was already used";
    ScopeMissing = FORBIDDEN "scope_missing" "The API key lacks the required scope";
    CreditCeilingExceeded = FORBIDDEN "credit_ceiling_exceeded" "The overdraft limit is above the ceiling of the partner";
    RateLimited = TOO_MANY_REQUESTS "rate_limited" "Too many requests in a short time";
    HeadersTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE "headers_too_large" "The request headers are too large";
    HeaderRepeated = BAD_REQUEST "header_repeated" "A header occurs more than once";
    PathInvalid = BAD_REQUEST "path_invalid" "An id in the path is not valid";
    QueryInvalid = BAD_REQUEST "query_invalid" "A query parameter is not valid";
    CursorInvalid = BAD_REQUEST "cursor_invalid" "The cursor does not belong to this listing";
    BodyInvalid = BAD_REQUEST "body_invalid" "The body cannot be read";
    ContentDigestInvalid = BAD_REQUEST "content_digest_invalid" "The Content-Digest header cannot be used";
    ContentDigestMismatch = BAD_REQUEST "content_digest_mismatch" "The body does not match its digest";
    RequestTimeout = REQUEST_TIMEOUT "request_timeout" "The body did not arrive in time";
    BodyTooLarge = PAYLOAD_TOO_LARGE "body_too_large" "The body is too large";
    HeaderNotUnderstood = BAD_REQUEST "header_not_understood" "A header marked mustUnderstand is not supported";
    ActionMismatch = BAD_REQUEST "action_mismatch" "The SOAP action is not that of the body";
    NotAcceptable = NOT_ACCEPTABLE "not_acceptable" "None of the accepted formats is available";
    MediaTypeUnsupported = UNSUPPORTED_MEDIA_TYPE "media_type_unsupported" "The media type is not supported";
    ValidationFailed = UNPROCESSABLE_ENTITY "validation_failed" "At least one field is not valid";
    IdempotencyKeyMissing = BAD_REQUEST "idempotency_key_missing" "The Idempotency-Key header is missing";
    IdempotencyKeyInvalid = BAD_REQUEST "idempotency_key_invalid" "The Idempotency-Key is not a UUID";
    IdempotencyKeyReused = UNPROCESSABLE_ENTITY "idempotency_key_reused" "The Idempotency-Key belongs to another request";
    AccountUnknown = NOT_FOUND "account_unknown" "The account does not exist";
    UserUnknown = NOT_FOUND "user_unknown" "The user does not exist";
    PartnerUnknown = NOT_FOUND "partner_unknown" "The partner does not exist";
    KeyUnknown = NOT_FOUND "key_unknown" "The partner has no such key";
    TransactionUnknown = NOT_FOUND "transaction_unknown" "The transaction does not exist";
    BatchUnknown = NOT_FOUND "batch_unknown" "The batch does not exist";
    DeadLetterUnknown = NOT_FOUND "dead_letter_unknown" "The dead letter does not exist";
    IngestUnknown = NOT_FOUND "ingest_unknown" "The ingest queue does not exist";
    NotFound = NOT_FOUND "not_found" "No resource exists at this path";
    MethodNotAllowed = METHOD_NOT_ALLOWED "method_not_allowed" "The resource does not support this method";
    CurrencyMismatch = UNPROCESSABLE_ENTITY "currency_mismatch" "The account has another currency";
    KeysTooMany = CONFLICT "keys_too_many" "The partner has the maximum number of active keys";
    SignatureKeyExists = CONFLICT "signature_key_exists" "Another signature key has the same id";
    SignatureKeyNeeded = CONFLICT "signature_key_needed" "At least one signature key must remain";
    CallerShutOut = CONFLICT "caller_shut_out" "The request would lock out its own caller";
    PreconditionFailed = PRECONDITION_FAILED "precondition_failed" "The state does not match If-Match or If-None-Match";
    AccountExists = CONFLICT "account_exists" "The account exists with different content";
    AccountBalanceNotZero = CONFLICT "account_balance_not_zero" "The balance of the account is not zero";
    BatchNotCancellable = CONFLICT "batch_not_cancellable" "The batch is already posting, completed or cancelled";
    BatchNotCompleted = CONFLICT "batch_not_completed" "The batch is not completed";
    TransactionRejected = UNPROCESSABLE_ENTITY "transaction_rejected" "The transaction was rejected";
    DeadLetterResolved = CONFLICT "dead_letter_resolved" "The dead letter was already resolved";
    InternalError = INTERNAL_SERVER_ERROR "internal_error" "An internal error occurred";
    StorageUnavailable = SERVICE_UNAVAILABLE "storage_unavailable" "The store is temporarily unavailable";
    Overloaded = SERVICE_UNAVAILABLE "overloaded" "Too many requests are in progress";
    RightsChanged = SERVICE_UNAVAILABLE "rights_changed" "The rights of the API key changed during the request";
    AccountBusy = SERVICE_UNAVAILABLE "account_busy" "Too many concurrent changes to the account";
    OutcomePending = SERVICE_UNAVAILABLE "outcome_pending" "The transaction is not final yet";
}

/// Error response of the API.
#[derive(Debug)]
pub struct ApiError {
    code: Code,
    detail: String,
    violations: Vec<Violation>,
    reason: Option<RejectReason>,
    fault: Option<Fault>,
    is_beyond_reach: bool,
}

/// Internal failure behind an error response.
#[derive(Debug)]
pub struct Fault {
    /// Cause, for the log only.
    pub cause: Cause,
    /// The failed part of the service, if it is known.
    pub part: Option<Part>,
}

impl ApiError {
    /// Creates an error with a detail for the client.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail = shortened(detail.into());
        Self { code, detail, violations: Vec::new(), reason: None, fault: None, is_beyond_reach: false }
    }

    /// Creates an error with all violations of the input, of which the response lists at most [`VIOLATIONS_MAX`].
    pub fn violations(code: Code, violations: Vec<Violation>) -> Self {
        let count = violations.len();
        Self::first_violations(code, violations, count)
    }

    /// Creates an error with the violations that were kept, out of `count` in total.
    pub fn first_violations(code: Code, violations: Vec<Violation>, count: usize) -> Self {
        let detail = match count {
            1 => "One field is not valid; see violations.".to_owned(),
            count @ 0..=VIOLATIONS_MAX => format!("{count} fields are not valid; see violations."),
            count => {
                format!("{count} fields are not valid; see violations for the first {VIOLATIONS_MAX}.")
            }
        };
        let listed = violations.into_iter().take(VIOLATIONS_MAX).map(|Violation { field, message }| {
            Violation { field: shortened(field), message: shortened(message) }
        });
        Self { violations: listed.collect(), ..Self::new(code, detail) }
    }

    /// Error for an account that does not exist, or that the partner may not access.
    pub fn account_unknown() -> Self {
        Self::new(Code::AccountUnknown, "Your key may access no account with these ids. Check both.")
    }

    /// Like [`Self::account_unknown`], for a deposit or a withdrawal: the detail says how to open an account.
    pub fn account_to_open() -> Self {
        let detail = "Your key may access no account with these ids. Check both; if the account is new, open it first, \
                      with PUT. The id of the request can be used again.";
        Self::new(Code::AccountUnknown, detail)
    }

    /// Error for a rejected transaction, for clients that prefer `handling=strict`.
    pub fn rejected(reason: RejectReason) -> Self {
        let detail = format!(
            "The transaction is final: it was rejected with the reason {}. A retry does not change that; a new attempt \
             needs a new id.",
            reason.code()
        );
        Self { reason: Some(reason), ..Self::new(Code::TransactionRejected, detail) }
    }

    /// Marks an error of a request for a resource outside of the partner's reach. The response does not show the mark.
    #[must_use]
    pub fn beyond_reach(self) -> Self {
        Self { is_beyond_reach: true, ..self }
    }

    /// Returns whether the request was for a resource outside of the partner's reach.
    pub const fn is_beyond_reach(&self) -> bool {
        self.is_beyond_reach
    }

    /// Error for an accepted transaction that is not final, in a contract whose answers are about final ones only.
    pub fn outcome_pending() -> Self {
        let detail = "The transaction is accepted, and is posted or rejected later. Repeat the request with the same \
                      MessageID to learn its outcome: it is posted at most once. A new id is a new payment.";
        Self::new(Code::OutcomePending, detail)
    }

    /// Error for a user without an account that the partner may access.
    pub fn user_unknown() -> Self {
        Self::new(Code::UserUnknown, "This user has no account that your key may access.")
    }

    /// Error for an id with which the partner has no transaction on the account.
    pub fn transaction_unknown() -> Self {
        let detail = "This account has no accepted transaction of yours with this id.";
        Self::new(Code::TransactionUnknown, detail)
    }

    /// Error for an id with which the partner has no batch.
    pub fn batch_unknown() -> Self {
        Self::new(Code::BatchUnknown, "You have no batch with this id.")
    }

    /// Error for a cursor that was changed or belongs to another listing.
    pub fn cursor_invalid() -> Self {
        let detail = "Pass next_cursor of the previous page unchanged to the same listing.";
        Self::new(Code::CursorInvalid, detail)
    }

    /// The rights of the caller changed during a submission or an act, of which nothing was stored, unless it `is_in_doubt`.
    pub fn rights_changed(is_in_doubt: bool) -> Self {
        let detail = if is_in_doubt {
            "The rights of the API key changed during the request: what it asks for may be done. To learn that, repeat it with the \
             same id, if it has one, and a valid key of the same partner."
        } else {
            "The rights of partners are being changed. Try again: nothing was stored."
        };
        Self::new(Code::RightsChanged, detail)
    }

    /// Permanent internal failure, which a retry does not fix.
    pub fn internal(cause: impl Into<Cause>) -> Self {
        let detail = "The request failed, and the error was logged. If it moves money, it may have been carried out: \
                      repeat it later with the same Idempotency-Key.";
        let fault = Some(Fault { cause: cause.into(), part: None });
        Self { fault, ..Self::new(Code::InternalError, detail) }
    }

    /// Transient failure of the store.
    fn unavailable(cause: impl Into<Cause>, part: Part) -> Self {
        let detail = "Retry later, with the same Idempotency-Key if the request has one: it may already \
                      have been applied, and a retry with the same id is always safe.";
        let fault = Some(Fault { cause: cause.into(), part: Some(part) });
        Self { fault, ..Self::new(Code::StorageUnavailable, detail) }
    }

    fn store(cause: impl Into<Cause>, is_transient: bool, part: Part) -> Self {
        let cause = cause.into();
        if RightsChanged::is_cause_of(&*cause) {
            return Self::rights_changed(true);
        }
        if is_transient { Self::unavailable(cause, part) } else { Self::internal(cause) }
    }

    /// Failure of the queue. The `From` implementation would attribute it to the ledger.
    pub fn queue(fault: impl Into<Cause> + Borrow<StoreFault>) -> Self {
        let is_transient = Borrow::<StoreFault>::borrow(&fault).is_transient();
        Self::store(fault, is_transient, Part::Queue)
    }

    /// Renames the fields of the violations.
    #[must_use]
    pub fn with_fields(mut self, name: impl Fn(&str) -> String) -> Self {
        for violation in &mut self.violations {
            violation.field = shortened(name(&violation.field));
        }
        self
    }

    /// Returns the problem document for the client.
    pub fn problem(&self) -> Problem {
        let Published { status, code, title } = self.code.published();
        Problem {
            r#type: format!("urn:postonce:problem:{code}"),
            title: title.into(),
            status: status.as_u16(),
            detail: self.detail.clone(),
            code: code.into(),
            reason: self.reason.map(|reason| reason.code().into()),
            violations: self.violations.clone(),
            // Both ids are added by the middleware.
            request_id: None,
            trace_id: None,
        }
    }

    /// Returns the code of the error.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Returns the names of the fields with violations.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.violations.iter().map(|violation| violation.field.as_str())
    }

    /// Returns the internal failure behind the error, if there is one.
    pub const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

/// Truncates a text that may quote the request.
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
            // A background task was aborted, for example at shutdown. The client should retry.
            AcceptFault::Abandoned(_) => (true, Part::Ledger),
            AcceptFault::RightsChanged { is_in_doubt } => return Self::rights_changed(*is_in_doubt),
        };
        Self::store(fault, is_transient, part)
    }
}

impl From<BatchFault> for ApiError {
    fn from(fault: BatchFault) -> Self {
        let is_transient = fault.is_transient();
        Self::store(fault, is_transient, Part::Ledger)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_titles_have_no_full_stop() {
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.published().code).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in Code::ALL {
            let Published { status, code, title } = code.published();
            assert!(status.is_client_error() || status.is_server_error(), "{code}");
            assert!(!title.ends_with('.'), "{code}");
        }
    }

    #[test]
    fn a_request_that_may_have_been_carried_out_or_was_not_processed_is_repeated() {
        let temporary =
            Code::ALL.iter().map(|code| code.published()).filter(|it| is_temporary(it.status.as_u16()));
        let codes: BTreeSet<&str> = temporary.map(|it| it.code).collect();
        let expected = [
            "account_busy",
            "internal_error",
            "outcome_pending",
            "overloaded",
            "rate_limited",
            "request_timeout",
            "rights_changed",
            "storage_unavailable",
        ];
        assert_eq!(codes, BTreeSet::from(expected));
    }

    #[actix_web::test]
    async fn an_error_response_is_bounded_in_size() {
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
    async fn the_cause_is_not_part_of_the_response() {
        let error = ApiError::internal("secret detail of the store");
        let body = actix_web::body::to_bytes(error.error_response().into_body()).await.unwrap();
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
    }
}
