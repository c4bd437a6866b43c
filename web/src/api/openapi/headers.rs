//! Headers of all operations that need a key: signature headers of requests, and rate headers of responses. Each is
//! described once, as a component, to which the operations refer.

use utoipa::Modify;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, Schema, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{OpenApi as Document, Ref, RefOr, Required, Response};

/// Signature headers of requests, by component name.
const SIGNING: [(&str, &str); 2] = [
    (
        "Signature-Input",
        "Covered components and parameters of the signature (RFC 9421), for partners that sign. `keyid` and \
         `created` are required. It must cover `@method`, `@target-uri` (or `@authority`, `@path` and, if there is \
         one, `@query`), `content-digest` if there is a body, and `idempotency-key` if it is sent.",
    ),
    ("Signature", "The signature with the same label: `hmac-sha256` or `ed25519`."),
];
const CONTENT_DIGEST: (&str, &str) = (
    "Content-Digest",
    "Digest of the body (RFC 9530): `sha-256` or `sha-512`. It is always verified if it is sent.",
);
/// Rate headers of responses.
const RATES: [(&str, &str); 2] = [
    ("RateLimit-Policy", "Quota of the partner: `q` requests in `w` seconds."),
    ("RateLimit", "Remaining requests (`r`), and the seconds until the full quota is available (`t`)."),
];
const RETRY_AFTER: (&str, &str) = ("Retry-After", "Seconds to wait before a retry; at least 1.");

/// Adds the headers to the document.
pub(super) struct Headers;

impl Modify for Headers {
    fn modify(&self, document: &mut Document) {
        if let Some(components) = document.components.as_mut() {
            for (name, description) in SIGNING.into_iter().chain([CONTENT_DIGEST]) {
                let parameter = ParameterBuilder::new()
                    .name(name)
                    .parameter_in(ParameterIn::Header)
                    .required(Required::False)
                    .description(Some(description))
                    .schema(Some(text()));
                components.parameters.insert(name.to_owned(), RefOr::T(parameter.build()));
            }
            for (name, description) in RATES.into_iter().chain([RETRY_AFTER]) {
                let header = HeaderBuilder::new().schema(Some(text())).description(Some(description));
                components.headers.insert(name.to_owned(), RefOr::T(header.build()));
            }
        }
        let operations = document.paths.paths.values_mut().flat_map(|item| {
            [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete]
        });
        operations.flatten().filter(|operation| needs_key(operation)).for_each(describe);
    }
}

fn describe(operation: &mut Operation) {
    let digest = operation.request_body.is_some().then_some(CONTENT_DIGEST);
    let named = SIGNING.into_iter().chain(digest);
    let named = named.map(|(name, _)| RefOr::Ref(Ref::new(format!("#/components/parameters/{name}"))));
    operation.parameters.get_or_insert_default().extend(named);
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        if status.starts_with('2') || status == "429" {
            RATES.iter().for_each(|(name, _)| name_header(response, name));
        }
        if status == "429" {
            name_header(response, RETRY_AFTER.0);
        }
    }
}

fn name_header(response: &mut Response, name: &str) {
    let described = RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
    response.headers.insert(name.to_owned(), described);
}

fn needs_key(operation: &Operation) -> bool {
    let none = SecurityRequirement::default();
    operation.security.iter().flatten().any(|requirement| *requirement != none)
}

fn text() -> RefOr<Schema> {
    RefOr::T(Schema::Object(Object::with_type(Type::String)))
}
