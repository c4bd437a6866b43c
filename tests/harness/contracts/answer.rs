//! One answer against the OpenAPI document.

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value};

use super::document::Found;
use super::{Contract, OpenApi, check_xml, contract_of, essence};

/// An answer as a client got it.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The path of the request, without its query.
    pub path: &'a str,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a [u8],
}

impl Given<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE.as_str()).unwrap_or_default()
    }
}

/// Holds an answer to what the document promises.
///
/// # Errors
/// All that breaks the contract.
pub fn check(openapi: &OpenApi, given: &Given<'_>) -> Result<(), Vec<String>> {
    let mut breaches = Vec::new();
    match openapi.find(given.method, given.path) {
        Found::Operation(operation) => check_operation(openapi, operation, given, &mut breaches),
        Found::OtherMethods(operations) => check_refused_method(openapi, operations, given, &mut breaches),
        // Pages, documents, what other processes ask, and what does not exist.
        Found::Nothing => check_outside(openapi, given, &mut breaches),
    }
    if breaches.is_empty() { Ok(()) } else { Err(breaches) }
}

fn check_operation(openapi: &OpenApi, operation: &Value, given: &Given<'_>, breaches: &mut Vec<String>) {
    let responses = operation.get("responses").and_then(Value::as_object);
    let Some(response) = responses.and_then(|responses| responses.get(&given.status.to_string())) else {
        breaches.push(format!("the status {} is not documented", given.status));
        return;
    };
    let response = openapi.resolved(response);
    let headers = response.get("headers").and_then(Value::as_object);
    for (name, header) in headers.into_iter().flatten() {
        check_header(openapi, name, openapi.resolved(header), given, breaches);
    }
    if given.method == "HEAD" {
        return;
    }
    let contents = response.get("content").and_then(Value::as_object);
    let Some(contents) = contents.filter(|contents| !contents.is_empty()) else {
        if !given.body.is_empty() {
            breaches.push("it has a body, and none is documented".to_owned());
        }
        return;
    };
    let media_type = essence(given.content_type());
    match contents.iter().find(|(documented, _)| essence(documented) == media_type) {
        None => breaches.push(format!("the media type {:?} is not documented", given.content_type())),
        Some((_, content)) => check_body(openapi, content.get("schema"), given, breaches),
    }
}

/// A method that a path does not know is refused with those that it knows.
fn check_refused_method(
    openapi: &OpenApi,
    operations: &Map<String, Value>,
    given: &Given<'_>,
    breaches: &mut Vec<String>,
) {
    if given.status != 405 {
        breaches.push(format!("{} is not documented, and not refused with 405", given.method));
        return;
    }
    let allowed = given.header("allow").unwrap_or_default();
    let allows = |method: &String| allowed.split(',').any(|it| it.trim().eq_ignore_ascii_case(method));
    if let Some(method) = operations.keys().find(|method| !allows(method)) {
        breaches.push(format!("the header Allow ({allowed:?}) does not name {method}"));
    }
    check_outside(openapi, given, breaches);
}

/// What the document does not know has a contract all the same where its media type has one.
fn check_outside(openapi: &OpenApi, given: &Given<'_>, breaches: &mut Vec<String>) {
    let is_problem = essence(given.content_type()) == "application/problem+json";
    let schema = is_problem.then(|| openapi.schema("Problem"));
    // What is read there are documents about documents, such as a WSDL.
    let is_document = given.method == "GET" && !is_problem;
    if given.method != "HEAD" && !is_document {
        check_body(openapi, schema.as_ref(), given, breaches);
    }
}

fn check_header(
    openapi: &OpenApi,
    name: &str,
    header: &Value,
    given: &Given<'_>,
    breaches: &mut Vec<String>,
) {
    let Some(text) = given.header(name) else {
        if header.get("required") == Some(&Value::Bool(true)) {
            breaches.push(format!("the header {name} is missing"));
        }
        return;
    };
    let Some(schema) = header.get("schema") else { return };
    let is_number = openapi.resolved(schema).get("type").and_then(Value::as_str) == Some("integer");
    let number = is_number.then(|| text.parse().ok().map(|number: i64| Value::from(number))).flatten();
    let value = number.unwrap_or_else(|| Value::from(text));
    let errors = openapi.errors(schema, &value);
    breaches.extend(errors.into_iter().map(|error| format!("the header {name} ({text:?}): {error}")));
}

fn check_body(openapi: &OpenApi, schema: Option<&Value>, given: &Given<'_>, breaches: &mut Vec<String>) {
    match (contract_of(given.content_type()), schema) {
        (Contract::JsonSchema, Some(schema)) => match serde_json::from_slice(given.body) {
            Ok(body) => breaches.extend(openapi.errors(schema, &body)),
            Err(error) => breaches.push(format!("the body is not JSON: {error}")),
        },
        (Contract::XmlSchemas, _) => breaches.extend(check_xml(given.body).err().unwrap_or_default()),
        (Contract::JsonSchema, None) | (Contract::None, _) => {}
    }
}
