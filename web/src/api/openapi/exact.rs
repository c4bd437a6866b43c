//! What the annotations cannot say: which headers always come, what is in them, where to go on from an
//! answer, and the exact schemas of [`sharpen`].

use postonce_schemas::json::sharpen;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{links, xml};

/// The parts of the document, in the order in which people read them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {
    openapi: Value,
    info: Value,
    tags: Value,
    paths: Map<String, Value>,
    components: Value,
}

/// The document, exact.
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

/// A document of JSON Schema with the schemas of the bodies, by the names of their structs.
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

/// What is in a header of an answer, and whether it is in every answer that names it.
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

/// Points references to where the schemas are in a document of JSON Schema, and says examples in its way.
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
