//! Responses of the operations as the OpenAPI document lists them: the answers to submissions, and the codes
//! that each group of operations can refuse a request with.

use std::collections::BTreeMap;

use postonce_schemas::json::Transaction;
use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

use crate::error::{Code, documented};

/// What a deposit or a withdrawal is answered with, unless it is refused.
#[derive(IntoResponses)]
pub enum SubmissionAnswers {
    /// Accepted: it will be posted or rejected.
    #[response(status = 202, headers(
        ("Location" = String, description = "Path of the transaction."),
        ("Idempotent-Replayed" = String, description = "`true` when this request repeats an earlier one."),
    ))]
    Accepted(Transaction),
    /// It is final.
    #[response(status = 200, headers(
        ("Location" = String, description = "Path of the transaction."),
        ("Idempotent-Replayed" = String, description = "`true` when this request repeats an earlier one."),
        ("Preference-Applied" = String, description = "`wait=N` when the wait was granted."),
    ))]
    Final(Transaction),
}

/// What every operation that reads a body can refuse about it.
const BODY: [Code; 7] = [
    Code::MediaTypeUnsupported,
    Code::BodyTooLarge,
    Code::RequestTimeout,
    Code::ContentDigestInvalid,
    Code::ContentDigestMismatch,
    Code::BodyInvalid,
    Code::ValidationFailed,
];

/// Declares the refusals of a group of operations: before the body, those of the [`BODY`] where there is one,
/// and after it. Those that every operation has come by themselves.
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
    /// What every operation can refuse.
    Refusals:;
    /// Deposits and withdrawals.
    SubmissionRefusals:
        PathInvalid NotAcceptable + BODY
        IdempotencyKeyMissing IdempotencyKeyInvalid AccountUnknown CurrencyMismatch IdempotencyKeyReused;
    /// Opening accounts.
    OpeningRefusals:
        PathInvalid NotAcceptable + BODY AccountUnknown
        AccountExists;
    /// Changing accounts.
    ChangingRefusals:
        PathInvalid NotAcceptable + BODY AccountUnknown
        AccountBalanceNotZero AccountBusy;
    /// Reading an account.
    ReadingRefusals: PathInvalid NotAcceptable AccountUnknown;
    /// Listing accounts.
    ListingRefusals: PathInvalid NotAcceptable QueryInvalid CursorInvalid UserUnknown;
    /// Reading a transaction.
    TransactionRefusals: PathInvalid NotAcceptable TransactionUnknown;
    /// Reading a statement.
    StatementRefusals: PathInvalid NotAcceptable QueryInvalid CursorInvalid AccountUnknown;
    /// Reading metrics.
    MetricsRefusals:;
    /// Changing the gate.
    GateRefusals: + BODY;
    /// Listing partners.
    PartnerListingRefusals: QueryInvalid CursorInvalid;
    /// Reading a partner.
    PartnerRefusals: PathInvalid PartnerUnknown;
    /// Making and changing a partner.
    PartnerPuttingRefusals:
        PathInvalid + BODY CallerShutOut
        SignatureKeyNeeded PreconditionFailed;
    /// Adding an API key.
    KeyAddingRefusals:
        PathInvalid + BODY PartnerUnknown
        KeysTooMany;
    /// Ending a key.
    KeyRevokingRefusals: PathInvalid PartnerUnknown KeyUnknown CallerShutOut SignatureKeyNeeded;
    /// Adding a key to sign with.
    SignatureKeyAddingRefusals:
        PathInvalid + BODY PartnerUnknown
        KeysTooMany SignatureKeyExists;
    /// Listing dead letters.
    LetterListingRefusals: QueryInvalid CursorInvalid;
    /// Reading a dead letter.
    DeadLetterRefusals: DeadLetterUnknown;
    /// Deciding about a dead letter.
    DecisionRefusals: DeadLetterUnknown DeadLetterResolved;
}
