//! The OpenAPI documents. The strict document is generated from the annotations of the handlers, the wire structs and the
//! error table, and describes exactly what the service accepts. The plain document is derived from it, for client generators.
//! Tests compare both with the copies in `schemas/openapi`.

use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

mod headers;

use self::headers::Headers;
use crate::access::scopes::Scope;
use crate::api::endpoints::operations;

mod exact;
mod links;
mod plain;
mod xml;

/// Returns the plain document as in `schemas`, without the final line break.
pub fn openapi_json() -> String {
    let document = serde_json::to_value(document()).expect("the document is JSON");
    serde_json::to_string_pretty(&plain::plain(exact::finish(document))).expect("a value can be written")
}

/// Returns the strict document as in `schemas`, without the final line break.
pub fn openapi_strict_json() -> String {
    let document = serde_json::to_value(document()).expect("the document is JSON");
    serde_json::to_string_pretty(&exact::finish(document)).expect("a value can be written")
}

/// Returns the JSON Schema document of the JSON bodies as in `schemas`, without the final line break.
pub fn json_schema() -> String {
    let document = serde_json::to_value(document()).expect("the document is JSON");
    serde_json::to_string_pretty(&exact::json_schema(document)).expect("a value can be written")
}

fn document() -> Document {
    let mut document = ApiDocument::openapi().merge_from(operations());
    ApiKeyScheme.modify(&mut document);
    Headers.modify(&mut document);
    document
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postonce",
        version = "1",
        description = "Deposits and withdrawals, posted exactly once.\n\nEvery request that moves money carries \
            an id of your choice in `Idempotency-Key`. Repeat a request with the same id and content as often as \
            you like: it is posted at most once, and each response has its current state. An accepted transaction \
            (202) becomes `posted` or `rejected`; both are final. Requests may be posted in another order than they were \
            sent: if one depends on another, send it when the other one is final. `Prefer: wait=5` returns the final \
            result in the same response, usually at once. Errors are `application/problem+json` \
            with a stable `code`. Amounts are decimal strings, ids are UUIDs. The signature (RFC 9421) of a request that \
            changes something and has no `Idempotency-Key` is accepted once: sign again to repeat the request.",
    ),
    servers((url = "/", description = "The service that serves this document.")),
    components(schemas(
        postonce_schemas::json::Problem,
        postonce_schemas::json::BatchItem,
        postonce_schemas::json::BatchControl,
    )),
    tags(
        (name = "accounts", description = "Open, change and read accounts."),
        (name = "transactions", description = "Move money, and read the results."),
        (name = "batches", description = "Move money with many instructions in one document."),
        (name = "keys", description = "See what an API key may do."),
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

#[cfg(test)]
mod tests {
    use postonce_schemas::json::{Transaction, codes_by_decimals};
    use postonce_shared::domain::instruction::TransactionKind;
    use postonce_shared::domain::money::Currency;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_documents_in_schemas_are_up_to_date() {
        let check = |copy: &str, generated: &str, arguments: &str, file: &str| {
            let same = copy.strip_suffix('\n') == Some(generated);
            let command = format!("cargo run -- {arguments} > schemas/openapi/{file}");
            assert!(same, "schemas/openapi/{file} is not up to date; write it with: {command}");
        };
        check(postonce_schemas::OPENAPI_JSON, &openapi_json(), "openapi", "postonce.json");
        let strict = openapi_strict_json();
        check(postonce_schemas::OPENAPI_STRICT_JSON, &strict, "openapi --strict", "postonce-strict.json");
    }

    #[test]
    fn the_json_schema_in_schemas_is_up_to_date() {
        let same = postonce_schemas::JSON_SCHEMA.strip_suffix('\n') == Some(&json_schema());
        let command = "cargo run -- json-schema > schemas/json/postonce.schema.json";
        assert!(same, "schemas/json/postonce.schema.json is not up to date; write it with: {command}");
    }

    #[test]
    fn schemas_and_domain_know_the_same_currencies() {
        let mut listed: Vec<(&str, usize)> = Vec::new();
        for (decimals, codes) in codes_by_decimals() {
            listed.extend(codes.into_iter().map(|code| (code, decimals)));
        }
        let letters = || 'A'..='Z';
        for code in letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| [a, b, c]))) {
            let code = String::from_iter(code);
            let in_schemas = listed.iter().find(|(listed, _)| *listed == code).map(|(_, decimals)| *decimals);
            let in_domain = Currency::parse(&code).ok().map(|currency| usize::from(currency.decimals()));
            assert_eq!(in_schemas, in_domain, "{code}");
        }
    }

    #[test]
    fn every_kind_of_transaction_is_described() {
        let document: Value = serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap();
        let schema = &document["components"]["schemas"]["Transaction"];
        let operations: Vec<&Value> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .map(|path| &path["post"]["operationId"])
            .collect();
        for kind in TransactionKind::ALL {
            let code = kind.code();
            let pattern = schema["properties"]["type"]["pattern"].as_str().unwrap();
            assert!(pattern.trim_matches(['^', '$', '(', ')']).split('|').any(|it| it == code), "{pattern}");
            let mut answer = schema["example"].clone();
            answer["type"] = json!(code);
            assert!(serde_json::from_value::<Transaction>(answer).is_ok(), "{code} cannot be read");
            let (_, canonical) =
                postonce_schemas::XSDS.iter().find(|(name, _)| *name == "postonce.xsd").unwrap();
            assert!(
                canonical.contains(&format!("<xs:enumeration value=\"{code}\"/>")),
                "{code}: postonce.xsd"
            );
            assert!(operations.contains(&&json!(format!("submit_{code}"))), "no operation submits a {code}");
        }
    }
}
