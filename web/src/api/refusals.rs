//! Responses in the OpenAPI document: the responses to submissions, and the error codes of each group of operations.

use std::collections::BTreeMap;

use postonce_schemas::json::Transaction;
use utoipa::IntoResponses;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::error::{Code, PROBLEM_JSON, Published};

/// Responses to an accepted deposit or withdrawal.
#[derive(IntoResponses)]
pub enum SubmissionAnswers {
    /// Accepted: it will be posted or rejected.
    #[response(status = 202, headers(
        ("Location" = String, description = "Path of the transaction."),
        ("Idempotent-Replayed" = String, description = "`true` if this request repeats an earlier one."),
    ))]
    Accepted(Transaction),
    /// The transaction is final.
    #[response(status = 200, headers(
        ("Location" = String, description = "Path of the transaction."),
        ("Idempotent-Replayed" = String, description = "`true` if this request repeats an earlier one."),
        ("Preference-Applied" = String, description = "`wait=N` and `handling=strict`, as far as they were applied."),
    ))]
    Final(Transaction),
}

/// Errors of every operation that reads a body.
const BODY: [Code; 7] = [
    Code::MediaTypeUnsupported,
    Code::BodyTooLarge,
    Code::RequestTimeout,
    Code::ContentDigestInvalid,
    Code::ContentDigestMismatch,
    Code::BodyInvalid,
    Code::ValidationFailed,
];

/// Declares the errors of each group of operations: errors before the body is read, the errors of [`BODY`] if the operations
/// have a body, and errors after it. The errors of all operations are added automatically.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident: $($code:ident)* $(+ $body:ident $($after:ident)*)?;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let always = [
                    Code::ApiKeyMissing,
                    Code::ApiKeyInvalid,
                    Code::SignatureMissing,
                    Code::SignatureInvalid,
                    Code::SignatureIncomplete,
                    Code::SignatureExpired,
                    Code::ScopeMissing,
                    Code::RateLimited,
                    Code::HeadersTooLarge,
                    Code::HeaderRepeated,
                    Code::QueryInvalid,
                    Code::Overloaded,
                    Code::InternalError,
                    Code::StorageUnavailable,
                ];
                let before: &[Code] = &[$(Code::$code,)*];
                let from_the_body_on: &[&[Code]] = &[$(&$body, &[$(Code::$after,)*])?];
                documented(&[&always, before, &from_the_body_on.concat()].concat())
            }
        }
    )*};
}

refusals! {
    /// Errors of every operation.
    Refusals:;
    /// Deposits and withdrawals.
    SubmissionRefusals:
        PathInvalid NotAcceptable + BODY
        IdempotencyKeyMissing IdempotencyKeyInvalid AccountUnknown CurrencyMismatch IdempotencyKeyReused
        TransactionRejected RightsChanged;
    /// Opening accounts.
    OpeningRefusals:
        SignatureUsed PathInvalid NotAcceptable + BODY AccountUnknown
        CreditCeilingExceeded PreconditionFailed AccountExists RightsChanged;
    /// Changing accounts.
    ChangingRefusals:
        SignatureUsed PathInvalid NotAcceptable + BODY AccountUnknown
        CreditCeilingExceeded PreconditionFailed AccountBalanceNotZero AccountBusy RightsChanged;
    /// Reading an account.
    ReadingRefusals: PathInvalid NotAcceptable AccountUnknown;
    /// Listing accounts.
    ListingRefusals: PathInvalid NotAcceptable CursorInvalid UserUnknown;
    /// Reading a transaction.
    TransactionRefusals: PathInvalid NotAcceptable TransactionUnknown;
    /// Reading a statement.
    StatementRefusals: PathInvalid NotAcceptable CursorInvalid AccountUnknown;
    /// Submitting a batch.
    BatchSubmitRefusals:
        + BODY
        IdempotencyKeyMissing IdempotencyKeyInvalid IdempotencyKeyReused RightsChanged;
    /// Listing batches.
    BatchListingRefusals: CursorInvalid;
    /// Reading a batch.
    BatchReadingRefusals: PathInvalid BatchUnknown;
    /// Cancelling a batch.
    BatchCancellingRefusals: SignatureUsed PathInvalid BatchUnknown BatchNotCancellable RightsChanged;
    /// Reading the results of a batch.
    BatchResultRefusals: PathInvalid NotAcceptable BatchUnknown BatchNotCompleted;
    /// Ringing for an ingest queue.
    IngestRefusals: IngestUnknown;
    /// Reading metrics.
    MetricsRefusals:;
    /// Changing the gate.
    GateRefusals: SignatureUsed + BODY PreconditionFailed RightsChanged;
    /// Listing partners.
    PartnerListingRefusals: CursorInvalid;
    /// Reading a partner.
    PartnerRefusals: PathInvalid PartnerUnknown;
    /// Creating and changing a partner.
    PartnerPuttingRefusals:
        SignatureUsed PathInvalid + BODY CallerShutOut
        SignatureKeyNeeded PreconditionFailed RightsChanged;
    /// Adding an API key.
    KeyAddingRefusals:
        SignatureUsed PathInvalid + BODY PartnerUnknown
        KeysTooMany RightsChanged;
    /// Revoking an API key, or removing a signature key.
    KeyRevokingRefusals:
        SignatureUsed PathInvalid PartnerUnknown KeyUnknown CallerShutOut SignatureKeyNeeded RightsChanged;
    /// Adding a signature key.
    SignatureKeyAddingRefusals:
        SignatureUsed PathInvalid + BODY PartnerUnknown
        KeysTooMany SignatureKeyExists RightsChanged;
    /// Listing the anchors.
    AnchorListingRefusals: CursorInvalid;
    /// Listing the audit trail.
    AuditListingRefusals: CursorInvalid;
    /// Listing dead letters.
    LetterListingRefusals: CursorInvalid;
    /// Reading a dead letter.
    DeadLetterRefusals: DeadLetterUnknown;
    /// Resolving a dead letter.
    DecisionRefusals: SignatureUsed DeadLetterUnknown DeadLetterResolved RightsChanged;
}

/// Returns the error responses of an operation for the OpenAPI document: one response per status, which lists the codes.
fn documented(codes: &[Code]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for code in codes {
        let Published { status, code, title } = code.published();
        by_status.entry(status.as_str().to_owned()).or_default().push(format!("`{code}`: {title}."));
    }
    let response = |lines: Vec<String>| {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        ResponseBuilder::new().description(lines.join("\n\n")).content(PROBLEM_JSON, problem)
    };
    let with_header = |status: String, lines: Vec<String>| {
        let header = match status.as_str() {
            "401" => Some(("WWW-Authenticate", "Authentication scheme.")),
            "503" => Some(("Retry-After", "Seconds to wait before a retry.")),
            _ => None,
        };
        let response = header.into_iter().fold(response(lines), |response, (name, description)| {
            response.header(name, HeaderBuilder::new().description(Some(description)).build())
        });
        (status, RefOr::T(response.build()))
    };
    by_status.into_iter().map(|(status, lines)| with_header(status, lines)).collect()
}
