//! The OpenAPI document, put together from the annotations of the handlers, the wire structs and the
//! error table. `schemas/openapi/postonce.json` is its copy for readers; a test compares them.

use std::collections::BTreeMap;

use postonce_schemas::json::Transaction;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi as Document, RefOr, Response};
use utoipa::{IntoParams, IntoResponses, Modify, OpenApi};

mod headers;

use self::headers::Headers;
use crate::access::scopes::Scope;
use crate::api::handlers::{accounts, admin, dead_letters, gate, health, partners, submit, transactions};
use crate::error::{Code, documented};

mod exact;
mod links;
mod xml;

/// The document as it stands in `schemas`, without the line break at the end of that file.
pub fn openapi_json() -> String {
    let document = serde_json::to_value(ApiDocument::openapi()).expect("the document is JSON");
    serde_json::to_string_pretty(&exact::finish(document)).expect("a value can be written")
}

/// The schemas of the JSON bodies as a document of JSON Schema, without the line break at the end of the
/// file in `schemas`.
pub fn json_schema() -> String {
    let document = serde_json::to_value(ApiDocument::openapi()).expect("the document is JSON");
    serde_json::to_string_pretty(&exact::json_schema(document)).expect("a value can be written")
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postonce",
        version = "1",
        description = "Deposits and withdrawals, posted exactly once.\n\nEvery request that moves money carries \
            an id of your own in `Idempotency-Key`. Repeat a request with the same id and content as often as \
            you like: it is posted at most once, and you get the transaction as it then is. What was answered \
            with 202 becomes `posted` or `rejected`; both are final. Errors are `application/problem+json` \
            with a stable `code`. Amounts are decimal strings, ids are UUIDs.",
    ),
    paths(
        accounts::open,
        accounts::change,
        accounts::find,
        accounts::list,
        submit::deposit,
        submit::withdrawal,
        transactions::find,
        transactions::statement,
        health::livez,
        health::readyz,
        health::metrics,
        admin::queues,
        admin::order_numbers,
        admin::storage_operations,
        admin::scale,
        gate::find,
        gate::change,
        partners::list,
        partners::find,
        partners::put,
        partners::add_key,
        partners::revoke_key,
        partners::add_signing,
        partners::remove_signing,
        dead_letters::list,
        dead_letters::find,
        dead_letters::replay,
        dead_letters::discard,
    ),
    components(schemas(postonce_schemas::json::Problem)),
    modifiers(&ApiKeyScheme, &Headers),
    tags(
        (name = "accounts", description = "Open, change and read accounts."),
        (name = "transactions", description = "Move money, and see what became of it."),
        (name = "health", description = "For machines that watch."),
        (name = "admin", description = "For operators."),
    )
)]
struct ApiDocument;

struct ApiKeyScheme;

impl Modify for ApiKeyScheme {
    fn modify(&self, document: &mut Document) {
        let scopes: Vec<String> =
            Scope::ALL.iter().map(|scope| format!("- `{scope}`: {}", scope.meaning())).collect();
        let description = format!("An API key. Its scopes say what it allows:\n\n{}", scopes.join("\n"));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("api_key", SecurityScheme::Http(bearer));
        }
    }
}

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

/// Declares parameters for the document. The handlers read them on their own, in the order of the
/// checks, so these structs are never made.
macro_rules! parameters {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[derive(IntoParams)]
        #[expect(dead_code, reason = "only described, never made")]
        $(#[$attribute])*
        pub struct $name {
            $($(#[$field_attribute])* $field: $type,)*
        }
    )*};
}

parameters! {
    /// The path of a user.
    #[into_params(parameter_in = Path)]
    UserPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: String,
    }

    /// The path of an account.
    #[into_params(parameter_in = Path)]
    AccountPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: String,
        /// The account of that user, a UUID.
        #[param(format = "uuid")]
        account_id: String,
    }

    /// The path of a transaction.
    #[into_params(parameter_in = Path)]
    TransactionPath {
        /// The user, a UUID.
        #[param(format = "uuid")]
        user_id: String,
        /// The account of that user, a UUID.
        #[param(format = "uuid")]
        account_id: String,
        /// The id that the request had in `Idempotency-Key`.
        #[param(format = "uuid")]
        message_id: String,
    }

    /// The path of a dead letter.
    #[into_params(parameter_in = Path)]
    DeadLetterPath {
        /// The letter.
        id: String,
    }

    /// The path of a partner.
    #[into_params(parameter_in = Path)]
    PartnerPath {
        /// Its name: 1 to 32 characters, a lower-case letter first, then lower-case letters, digits or `_`.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
    }

    /// The path of a key of a partner.
    #[into_params(parameter_in = Path)]
    PartnerKeyPath {
        /// The name of the partner.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
        /// The id of the key.
        key_id: String,
    }

    /// The headers of a change of a partner.
    #[into_params(parameter_in = Header)]
    PartnerPutHeaders {
        /// The `ETag` of the partner as you saw it, or `*` for any partner that is known.
        #[param(rename = "If-Match")]
        if_match: Option<String>,
    }

    /// The headers of a deposit or a withdrawal.
    #[into_params(parameter_in = Header)]
    SubmissionHeaders {
        /// Your id of the request: a UUID, quoted or bare. The same again for every retry.
        #[param(
            rename = "Idempotency-Key",
            example = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
            pattern = r#"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")$"#
        )]
        idempotency_key: String,
        /// `wait=N`: the answer may take up to N seconds (at most 30) when it is final then (RFC 7240).
        #[param(rename = "Prefer", example = "wait=5")]
        prefer: Option<String>,
        /// The trace that this request belongs to (W3C Trace Context).
        traceparent: Option<String>,
    }

    /// Which page of a listing.
    #[into_params(parameter_in = Query)]
    PageParams {
        /// Most items of the page.
        #[param(minimum = 1, maximum = 1000, default = 100)]
        limit: Option<u16>,
        /// The `next_cursor` of the page before.
        #[param(pattern = "^[A-Za-z0-9_-]+$", min_length = 11, max_length = 1024)]
        cursor: Option<String>,
    }

    /// Which transactions of a statement.
    #[into_params(parameter_in = Query)]
    StatusParam {
        /// `posted` (the statement), `accepted` or `rejected`.
        #[param(default = "posted", pattern = "^(posted|accepted|rejected)$")]
        status: Option<String>,
    }

    /// Which dead letters.
    #[into_params(parameter_in = Query)]
    ResolvedParam {
        /// `include` lists those as well that somebody decided about.
        #[param(pattern = "^include$")]
        resolved: Option<String>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_in_schemas_is_this_one() {
        let same = postonce_schemas::OPENAPI_JSON.strip_suffix('\n') == Some(&openapi_json());
        let command = "cargo run -p postonce-web -- openapi > schemas/openapi/postonce.json";
        assert!(same, "schemas/openapi/postonce.json is not up to date; write it with: {command}");
    }

    #[test]
    fn the_json_schema_in_schemas_is_this_one() {
        let same = postonce_schemas::JSON_SCHEMA.strip_suffix('\n') == Some(&json_schema());
        let command = "cargo run -p postonce-web -- json-schema > schemas/json/postonce.schema.json";
        assert!(same, "schemas/json/postonce.schema.json is not up to date; write it with: {command}");
    }
}
