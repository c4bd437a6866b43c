//! Parts of the OpenAPI document that annotations cannot express: required response headers and their schemas, links, and
//! the exact schemas of [`add_rules`].

use std::collections::BTreeSet;

use postonce_schemas::json::{add, add_rules};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{links, xml};
use crate::formats;

/// The OpenAPI document, with its parts in reading order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Finished {
    openapi: Value,
    info: Value,
    servers: Value,
    tags: Value,
    pub(super) paths: Map<String, Value>,
    pub(super) components: Value,
}

/// Completes the generated document.
pub(super) fn finish(document: Value) -> Finished {
    let mut finished: Finished = serde_json::from_value(document).expect("the document has these parts");
    for operation in operations(&mut finished.paths) {
        links::add(operation);
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        let headers =
            responses.into_iter().flatten().filter_map(|(_, it)| it.get_mut("headers")?.as_object_mut());
        for (name, header) in headers.flatten() {
            describe(name, header);
        }
    }
    let answers = answers(&finished);
    let schemas = finished.components.get_mut("schemas").expect("the document has schemas");
    add_rules(schemas);
    let names = formats::names().into_iter().map(Value::from).chain([Value::Null]);
    add(schemas, "/PartnerTerms/properties/format", json!({"enum": names.collect::<Vec<_>>()}));
    let schemas = schemas.as_object_mut().expect("schemas have names");
    schemas.iter_mut().filter(|(name, _)| answers.contains(*name)).for_each(|(_, it)| refuse_null(it));
    for operation in operations(&mut finished.paths) {
        xml::add(operation, schemas);
    }
    finished
}

/// Returns the operations of all paths.
pub(super) fn operations(paths: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut)
}

/// Builds a JSON Schema document with the schemas of the bodies, named after their structs.
pub(super) fn json_schema(document: Value) -> Value {
    let mut finished = finish(document);
    let mut definitions = finished.components.get_mut("schemas").map(Value::take).unwrap_or_default();
    if let Some(definitions) = definitions.as_object_mut() {
        definitions.retain(|name, _| !xml::is_schema(name));
    }
    move_references(&mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:postonce:schema:json",
        "title": "Postonce: the JSON bodies",
        "description": "Refer to one of the definitions, such as urn:postonce:schema:json#/$defs/Transaction.",
        "$defs": definitions,
    })
}

/// Returns the names of the schemas in responses, including nested ones.
fn answers(document: &Finished) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let operations = document.paths.values().filter_map(Value::as_object).flatten();
    let mut places: Vec<&Value> = operations.filter_map(|(_, it)| it.get("responses")).collect();
    while let Some(place) = places.pop() {
        if let Some(name) = place.get("$ref").and_then(Value::as_str).and_then(xml::schema_name)
            && names.insert(name.to_owned())
        {
            places.extend(document.components.pointer(&format!("/schemas/{name}")));
        }
        places.extend(place.as_object().into_iter().flat_map(Map::values));
        places.extend(place.as_array().into_iter().flatten());
    }
    names
}

/// Removes null from the types of optional members, because responses omit members without a value.
fn refuse_null(schema: &mut Value) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| required.as_array().into_iter().flatten().any(|it| it == name);
    let members = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, member) in members.into_iter().flatten().filter(|(name, _)| !is_required(name)) {
        if let Some(types) = member.get_mut("type") {
            without_null(types);
        }
        // An optional struct is described as either null or the struct.
        if let Some(alternatives) = member.get_mut("oneOf").and_then(Value::as_array_mut) {
            alternatives.retain(|alternative| alternative.get("type") != Some(&json!("null")));
        }
    }
}

/// Replaces a list of a type and null by the type.
pub(super) fn without_null(types: &mut Value) {
    if let Some([single, Value::String(null)]) = types.as_array().map(Vec::as_slice)
        && null == "null"
    {
        *types = single.clone();
    }
}

/// Adds the schema of a response header, and whether the header is always present.
fn describe(name: &str, header: &mut Value) {
    let (required, schema) = match name {
        "Location" => (true, json!({"type": "string", "pattern": "^/v1/(users|batches)/"})),
        "WWW-Authenticate" => (true, json!({"type": "string", "pattern": "^Bearer "})),
        "Retry-After" => (true, json!({"type": "integer", "minimum": 1})),
        "Idempotent-Replayed" => (false, json!({"type": "string", "enum": ["true"]})),
        "Preference-Applied" => (
            false,
            json!({"type": "string", "pattern": "^(wait=([1-9]|[12][0-9]|30)(, handling=strict)?|handling=strict)$"}),
        ),
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
