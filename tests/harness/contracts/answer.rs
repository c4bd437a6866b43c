//! Checks a response against the OpenAPI document.

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value};

use super::document::Found;
use super::{Contract, OpenApi, check_xml, contract_of, essence};

/// A response as a client received it.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedAnswer<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The path of the request, without its query.
    pub path: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a [u8],
}

impl ReceivedAnswer<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE.as_str()).unwrap_or_default()
    }
}

/// Checks a response against the document.
///
/// # Errors
/// All violations of the contract.
pub fn check(openapi: &OpenApi, given: &ReceivedAnswer<'_>) -> Result<(), Vec<String>> {
    let mut violations = Vec::new();
    match openapi.find(given.method, given.path) {
        Found::Operation(operation) => check_operation(openapi, operation, given, &mut violations),
        Found::OtherMethods(operations) => check_refused_method(openapi, operations, given, &mut violations),
        // Pages, documents, requests of other processes, and unknown paths.
        Found::Nothing => check_outside(openapi, given, &mut violations),
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn check_operation(
    openapi: &OpenApi,
    operation: &Value,
    given: &ReceivedAnswer<'_>,
    violations: &mut Vec<String>,
) {
    let responses = operation.get("responses").and_then(Value::as_object);
    let Some(response) = responses.and_then(|responses| responses.get(&given.status.to_string())) else {
        violations.push(format!("the status {} is not documented", given.status));
        return;
    };
    let response = openapi.resolved(response);
    let headers = response.get("headers").and_then(Value::as_object);
    for (name, header) in headers.into_iter().flatten() {
        check_header(openapi, name, openapi.resolved(header), given, violations);
    }
    if given.method == "HEAD" {
        return;
    }
    let contents = response.get("content").and_then(Value::as_object);
    let Some(contents) = contents.filter(|contents| !contents.is_empty()) else {
        if !given.body.is_empty() {
            violations.push("it has a body, and none is documented".to_owned());
        }
        return;
    };
    let media_type = essence(given.content_type());
    match contents.iter().find(|(documented, _)| essence(documented) == media_type) {
        None => violations.push(format!("the media type {:?} is not documented", given.content_type())),
        Some((_, content)) => check_body(openapi, content.get("schema"), given, violations),
    }
}

/// Checks that a method that the path does not support is refused, with the list of supported methods.
fn check_refused_method(
    openapi: &OpenApi,
    operations: &Map<String, Value>,
    given: &ReceivedAnswer<'_>,
    violations: &mut Vec<String>,
) {
    if given.status != 405 {
        violations.push(format!("{} is not documented, and not refused with 405", given.method));
        return;
    }
    let allowed = given.header("allow").unwrap_or_default();
    let allows = |method: &String| allowed.split(',').any(|it| it.trim().eq_ignore_ascii_case(method));
    if let Some(method) = operations.keys().find(|method| !allows(method)) {
        violations.push(format!("the header Allow ({allowed:?}) does not name {method}"));
    }
    check_outside(openapi, given, violations);
}

/// Checks a response outside of the document, which has a contract if its media type has one.
fn check_outside(openapi: &OpenApi, given: &ReceivedAnswer<'_>, violations: &mut Vec<String>) {
    let is_problem = essence(given.content_type()) == "application/problem+json";
    let schema = is_problem.then(|| openapi.schema("Problem"));
    // `GET` requests outside of the document return documents, such as a WSDL.
    let is_document = given.method == "GET" && !is_problem;
    if given.method != "HEAD" && !is_document {
        check_body(openapi, schema.as_ref(), given, violations);
    }
}

fn check_header(
    openapi: &OpenApi,
    name: &str,
    header: &Value,
    given: &ReceivedAnswer<'_>,
    violations: &mut Vec<String>,
) {
    let Some(text) = given.header(name) else {
        if header.get("required") == Some(&Value::Bool(true)) {
            violations.push(format!("the header {name} is missing"));
        }
        return;
    };
    let Some(schema) = header.get("schema") else { return };
    let is_number = openapi.resolved(schema).get("type").and_then(Value::as_str) == Some("integer");
    let number = is_number.then(|| text.parse().ok().map(|number: i64| Value::from(number))).flatten();
    let value = number.unwrap_or_else(|| Value::from(text));
    let errors = openapi.errors(schema, &value);
    violations.extend(errors.into_iter().map(|error| format!("the header {name} ({text:?}): {error}")));
}

fn check_body(
    openapi: &OpenApi,
    schema: Option<&Value>,
    given: &ReceivedAnswer<'_>,
    violations: &mut Vec<String>,
) {
    if let Some(schema) = schema.filter(|_| essence(given.content_type()) == "application/x-ndjson") {
        // The schema describes one line.
        for line in given.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(line) => violations.extend(openapi.errors(schema, &line)),
                Err(error) => violations.push(format!("a line is not JSON: {error}")),
            }
        }
        return;
    }
    match (contract_of(given.content_type()), schema) {
        (Contract::JsonSchema, Some(schema)) => match serde_json::from_slice(given.body) {
            Ok(body) => violations.extend(openapi.errors(schema, &body)),
            Err(error) => violations.push(format!("the body is not JSON: {error}")),
        },
        (Contract::XmlSchemas, _) => violations.extend(check_xml(given.body).err().unwrap_or_default()),
        (Contract::JsonSchema, None) | (Contract::None, _) => {}
    }
}
