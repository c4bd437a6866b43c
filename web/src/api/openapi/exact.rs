//! Parts of the document that the annotations cannot express: mandatory response headers and their schemas, links,
//! and the exact schemas of [`sharpen`].

use postonce_schemas::json::sharpen;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{links, xml};

/// The document, with its parts in reading order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {
    openapi: Value,
    info: Value,
    tags: Value,
    paths: Map<String, Value>,
    components: Value,
}

/// Completes the generated document.
pub(super) fn finish(document: Value) -> Finished {
    let mut finished: Finished = serde_json::from_value(document).expect("the document has these parts");
    let operations = finished.paths.values_mut().filter_map(Value::as_object_mut).flatten();
    for (_, operation) in operations {
        links::add(operation);
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        let headers =
            responses.into_iter().flatten().filter_map(|(_, it)| it.get_mut("headers")?.as_object_mut());
        for (name, header) in headers.flatten() {
            describe(name, header);
        }
    }
    let schemas = schemas(&mut finished.components);
    sharpen(schemas);
    let operations = finished.paths.values_mut().filter_map(Value::as_object_mut).flatten();
    for (_, operation) in operations {
        xml::add(operation, schemas);
    }
    finished
}

/// Builds a JSON Schema document with the schemas of the bodies, by the names of their structs.
pub(super) fn json_schema(document: Value) -> Value {
    let mut finished = finish(document);
    let mut definitions = std::mem::take(schemas(&mut finished.components));
    definitions.retain(|name, _| !xml::is_schema(name));
    let mut definitions = Value::Object(definitions);
    move_references(&mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:postonce:schema:json",
        "title": "Postonce: the JSON bodies",
        "description": "Refer to one of the definitions, such as urn:postonce:schema:json#/$defs/Transaction.",
        "$defs": definitions,
    })
}

fn schemas(components: &mut Value) -> &mut Map<String, Value> {
    components.get_mut("schemas").and_then(Value::as_object_mut).expect("the document has schemas")
}

/// Adds the schema of a response header, and whether it is always present.
fn describe(name: &str, header: &mut Value) {
    let (required, schema) = match name {
        "Location" => (true, json!({"type": "string", "pattern": "^/v1/users/"})),
        "WWW-Authenticate" => (true, json!({"type": "string", "pattern": "^Bearer "})),
        "Retry-After" => (true, json!({"type": "integer", "minimum": 1})),
        "Idempotent-Replayed" => (false, json!({"type": "string", "enum": ["true"]})),
        "Preference-Applied" => (false, json!({"type": "string", "pattern": "^wait=([1-9]|[12][0-9]|30)$"})),
        _ => return,
    };
    if let Some(header) = header.as_object_mut() {
        header.insert("required".to_owned(), Value::Bool(required));
        header.insert("schema".to_owned(), schema);
    }
}

/// Rewrites references and examples from OpenAPI to JSON Schema.
fn move_references(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(path)) = members.get_mut("$ref") {
                *path = path.replace("#/components/schemas/", "#/$defs/");
            }
            if members.contains_key("type")
                && let Some(example) = members.remove("example")
            {
                members.insert("examples".to_owned(), json!([example]));
            }
            members.values_mut().for_each(move_references);
        }
        Value::Array(items) => items.iter_mut().for_each(move_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
