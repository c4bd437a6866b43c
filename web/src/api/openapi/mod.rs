//! The OpenAPI document, generated from the annotations of the handlers, the wire structs and the error table.
//! `schemas/openapi/postonce.json` is a copy; a test compares them.

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

/// Returns the document as in `schemas`, without the final line break of the file.
pub fn openapi_json() -> String {
    let document = serde_json::to_value(ApiDocument::openapi()).expect("the document is JSON");
    serde_json::to_string_pretty(&exact::finish(document)).expect("a value can be written")
}

/// Returns the schemas of the JSON bodies as a JSON Schema document, without the final line break of the file in
/// `schemas`.
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
            an id of your choice in `Idempotency-Key`. Repeat a request with the same id and content as often as \
            you like: it is posted at most once, and each response has its current state. An accepted transaction \
            (202) becomes `posted` or `rejected`; both are final. Errors are `application/problem+json` \
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
        (name = "transactions", description = "Move money, and read the results."),
        (name = "health", description = "For monitoring."),
        (name = "admin", description = "For operators."),
    )
)]
struct ApiDocument;

struct ApiKeyScheme;

impl Modify for ApiKeyScheme {
    fn modify(&self, document: &mut Document) {
        let scopes: Vec<String> =
            Scope::ALL.iter().map(|scope| format!("- `{scope}`: {}", scope.meaning())).collect();
        let description = format!("An API key. Its scopes define what it allows:\n\n{}", scopes.join("\n"));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("api_key", SecurityScheme::Http(bearer));
        }
    }
}

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
        ("Preference-Applied" = String, description = "`wait=N` if the preference was applied."),
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

/// Declares the errors of a group of operations: those before the body, those of [`BODY`] if there is one, and
/// those after it. The errors of all operations are added automatically.
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
    /// Errors of every operation.
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
    /// Creating and changing a partner.
    PartnerPuttingRefusals:
        PathInvalid + BODY CallerShutOut
        SignatureKeyNeeded PreconditionFailed;
    /// Adding an API key.
    KeyAddingRefusals:
        PathInvalid + BODY PartnerUnknown
        KeysTooMany;
    /// Revoking an API key, or removing a signature key.
    KeyRevokingRefusals: PathInvalid PartnerUnknown KeyUnknown CallerShutOut SignatureKeyNeeded;
    /// Adding a signature key.
    SignatureKeyAddingRefusals:
        PathInvalid + BODY PartnerUnknown
        KeysTooMany SignatureKeyExists;
    /// Listing dead letters.
    LetterListingRefusals: QueryInvalid CursorInvalid;
    /// Reading a dead letter.
    DeadLetterRefusals: DeadLetterUnknown;
    /// Resolving a dead letter.
    DecisionRefusals: DeadLetterUnknown DeadLetterResolved;
}

/// Declares parameters for the document. The handlers parse them separately, in the order of the checks, so these
/// structs are never instantiated.
macro_rules! parameters {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[derive(IntoParams)]
        #[expect(dead_code, reason = "only described, never instantiated")]
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
        /// The `Idempotency-Key` of the request.
        #[param(format = "uuid")]
        message_id: String,
    }

    /// The path of a dead letter.
    #[into_params(parameter_in = Path)]
    DeadLetterPath {
        /// The id of the dead letter.
        id: String,
    }

    /// The path of a partner.
    #[into_params(parameter_in = Path)]
    PartnerPath {
        /// The partner: 1 to 32 characters, a lower-case letter, then lower-case letters, digits or `_`.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
    }

    /// The path of a key of a partner.
    #[into_params(parameter_in = Path)]
    PartnerKeyPath {
        /// The partner.
        #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
        partner_id: String,
        /// The id of the key.
        key_id: String,
    }

    /// The headers of a change of a partner.
    #[into_params(parameter_in = Header)]
    PartnerPutHeaders {
        /// The `ETag` of the partner that you read, or `*` for any existing partner.
        #[param(rename = "If-Match")]
        if_match: Option<String>,
    }

    /// The headers of a deposit or a withdrawal.
    #[into_params(parameter_in = Header)]
    SubmissionHeaders {
        /// The id of the request, a UUID of your choice, quoted or bare. It must be the same for every retry.
        #[param(
            rename = "Idempotency-Key",
            example = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10",
            pattern = r#"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")$"#
        )]
        idempotency_key: String,
        /// `wait=N`: wait up to N seconds (at most 30) for the final result (RFC 7240).
        #[param(rename = "Prefer", example = "wait=5")]
        prefer: Option<String>,
        /// The trace of this request (W3C Trace Context).
        traceparent: Option<String>,
    }

    /// Page of a listing.
    #[into_params(parameter_in = Query)]
    PageParams {
        /// Maximum number of items.
        #[param(minimum = 1, maximum = 1000, default = 100)]
        limit: Option<u16>,
        /// The `next_cursor` of the previous page.
        #[param(pattern = "^[A-Za-z0-9_-]+$", min_length = 11, max_length = 1024)]
        cursor: Option<String>,
    }

    /// Filter of a statement.
    #[into_params(parameter_in = Query)]
    StatusParam {
        /// `posted` (the statement), `accepted` or `rejected`.
        #[param(default = "posted", pattern = "^(posted|accepted|rejected)$")]
        status: Option<String>,
    }

    /// Filter of dead letters.
    #[into_params(parameter_in = Query)]
    ResolvedParam {
        /// `include` lists resolved dead letters too.
        #[param(pattern = "^include$")]
        resolved: Option<String>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_in_schemas_is_up_to_date() {
        let same = postonce_schemas::OPENAPI_JSON.strip_suffix('\n') == Some(&openapi_json());
        let command = "cargo run -p postonce-web -- openapi > schemas/openapi/postonce.json";
        assert!(same, "schemas/openapi/postonce.json is not up to date; write it with: {command}");
    }

    #[test]
    fn the_json_schema_in_schemas_is_up_to_date() {
        let same = postonce_schemas::JSON_SCHEMA.strip_suffix('\n') == Some(&json_schema());
        let command = "cargo run -p postonce-web -- json-schema > schemas/json/postonce.schema.json";
        assert!(same, "schemas/json/postonce.schema.json is not up to date; write it with: {command}");
    }
}
