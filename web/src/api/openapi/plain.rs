//! The plain OpenAPI document for client generators, derived from the strict one. It has the same operations and members,
//! and accepts every document that the strict one accepts.
//!
//! 1. Bodies are described in JSON only. Bodies without JSON are bytes or text.
//! 2. Rules that relate members, or restrict their names, are omitted: generators make a class for each alternative, or
//!    lose the members beside it.
//! 3. Maps are named schemas, as structs are.
//! 4. The schema of batch items has all their members.
//! 5. Every schema has an example.

use serde_json::{Map, Value, json};

use super::exact::{Finished, operations, without_null};
use super::xml;
use crate::error::PROBLEM_JSON;
use crate::formats::items::OCTET_STREAM;

const JSON: &str = "application/json";
/// Media types of responses that generators can parse or return as text.
const READABLE: [&str; 4] = [JSON, PROBLEM_JSON, "application/x-ndjson", "text/csv"];

/// Derives the plain document from the strict one.
///
/// # Panics
/// If an example is missing in the strict document.
pub(super) fn plain(mut document: Finished) -> Finished {
    operations(&mut document.paths).for_each(simplify_operation);
    let schemas = document.components.get_mut("schemas").and_then(Value::as_object_mut);
    let schemas = schemas.expect("the document has schemas");
    // Only unknown members of requests refer to this schema, and the plain document does not describe them.
    schemas.retain(|name, _| !xml::is_schema(name) && name != "UnknownMember");
    let mut maps = Map::new();
    schemas.values_mut().for_each(|schema| simplify(schema, &mut maps));
    schemas.extend(maps);
    complete_batch_item(schemas);
    add_examples(schemas);
    document
}

fn simplify_operation(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for kind in parameters.into_iter().flatten().filter_map(|it| it.pointer_mut("/schema/type")) {
        without_null(kind);
    }
    if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
        let kept = if content.contains_key(JSON) { JSON } else { OCTET_STREAM };
        content.retain(|media_type, _| media_type == kept);
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for response in responses.into_iter().flatten().filter_map(|(_, it)| it.as_object_mut()) {
        let Some(content) = response.get_mut("content").and_then(Value::as_object_mut) else { continue };
        content.retain(|media_type, _| READABLE.contains(&media_type.as_str()));
        if content.is_empty() {
            response.remove("content");
        }
    }
}

/// Removes the rules between members from a schema, and simplifies each member.
fn simplify(schema: &mut Value, maps: &mut Map<String, Value>) {
    let Some(schema) = schema.as_object_mut() else { return };
    ["oneOf", "anyOf"].iter().for_each(|rule| drop(schema.remove(*rule)));
    // Unknown members are also accepted without this rule.
    if schema.get("additionalProperties").is_some_and(Value::is_object) {
        schema.remove("additionalProperties");
    }
    let members = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, member) in members.into_iter().flatten() {
        if let Value::Object(given) = member.take() {
            *member = simple_member(name, given, maps);
        }
    }
}

fn simple_member(name: &str, mut member: Map<String, Value>, maps: &mut Map<String, Value>) -> Value {
    // An optional struct is described as the struct or null.
    if let Some(Value::Array(alternatives)) = member.remove("oneOf") {
        let is_nullable = alternatives.len() > 1;
        let mut reference = alternatives.into_iter().next().unwrap_or_default();
        let description = reference.as_object_mut().and_then(|it| it.remove("description"));
        return referring(reference, is_nullable, description);
    }
    // Generators make three classes for an enumeration that includes null.
    if let Some(codes) = member.get("enum").and_then(Value::as_array).filter(|it| it.contains(&Value::Null)) {
        let codes: Vec<&str> = codes.iter().filter_map(Value::as_str).collect();
        let pattern = format!("^({})$", codes.join("|"));
        member.remove("enum");
        member.insert("pattern".to_owned(), pattern.into());
    }
    if member.contains_key("additionalProperties") {
        return named_map(name, member, maps);
    }
    Value::Object(member)
}

/// Moves a map to `maps` under a name derived from the member. Returns the member, which refers to the map.
fn named_map(name: &str, mut map: Map<String, Value>, maps: &mut Map<String, Value>) -> Value {
    let description = map.remove("description");
    let is_nullable = map.get("type").is_some_and(Value::is_array);
    map.insert("type".to_owned(), "object".into());
    if map.remove("patternProperties").is_some() {
        map.insert("additionalProperties".to_owned(), json!({"type": "string"}));
    }
    let name: String = name.split('_').map(capitalized).collect();
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    let map = Value::Object(map);
    let same = maps.insert(name.clone(), map.clone()).is_none_or(|other| other == map);
    assert!(same, "two different maps have the name {name}");
    referring(reference, is_nullable, description)
}

fn capitalized(word: &str) -> String {
    word.char_indices().map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c }).collect()
}

/// Returns a member that refers to a schema.
fn referring(reference: Value, is_nullable: bool, description: Option<Value>) -> Value {
    let mut member = if is_nullable { json!({"oneOf": [reference, {"type": "null"}]}) } else { reference };
    if let (Some(member), Some(description)) = (member.as_object_mut(), description) {
        member.insert("description".to_owned(), description);
    }
    member
}

/// Adds the members of a single request to the schema of batch items, which have them too.
fn complete_batch_item(schemas: &mut Map<String, Value>) {
    let request = schemas.get("TransactionRequest").cloned().unwrap_or_default();
    let item = schemas.get_mut("BatchItem").expect("items of batches are described");
    let members = (item.get_mut("properties").and_then(Value::as_object_mut), request.get("properties"));
    if let (Some(members), Some(Value::Object(others))) = members {
        members.extend(others.clone());
    }
    let required = (item.get_mut("required").and_then(Value::as_array_mut), request.get("required"));
    if let (Some(required), Some(Value::Array(others))) = required {
        required.extend(others.clone());
    }
    if let Some(description) = item.get_mut("description") {
        *description = "An item of a batch: a transaction, and the account that it is for.".into();
    }
}

/// Adds an example to each schema that has none.
fn add_examples(schemas: &mut Map<String, Value>) {
    let given = schemas.clone();
    for (name, schema) in schemas.iter_mut().filter_map(|(name, it)| Some((name, it.as_object_mut()?))) {
        if !schema.contains_key("example") {
            let example = given.get(name).map(|it| example(it, &given)).unwrap_or_default();
            schema.insert("example".to_owned(), example);
        }
    }
}

/// Returns the example of a schema, or composes one from the examples of its required members.
fn example(schema: &Value, schemas: &Map<String, Value>) -> Value {
    if let Some(given) = schema.get("example") {
        return given.clone();
    }
    let referred = schema.get("$ref").and_then(Value::as_str).and_then(xml::schema_name);
    if let Some(referred) = referred.and_then(|name| schemas.get(name)).or(schema.pointer("/oneOf/0")) {
        return example(referred, schemas);
    }
    match (schema.get("type").and_then(Value::as_str), schema.get("format").and_then(Value::as_str)) {
        // Nullable: the schema has a list of types.
        (None, _) => Value::Null,
        (Some("object"), _) => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let member = |name: &str| Some((name.to_owned(), schema.get("properties")?.get(name)?));
            let members = required.filter_map(|name| member(name.as_str()?));
            members.map(|(name, member)| (name, example(member, schemas))).collect::<Map<_, _>>().into()
        }
        (Some("array"), _) => {
            schema.get("items").map(|item| json!([example(item, schemas)])).unwrap_or_default()
        }
        (Some("boolean"), _) => Value::Bool(true),
        (Some("integer"), _) => {
            schema.get("minimum").filter(|it| **it != json!(0)).cloned().unwrap_or(json!(1))
        }
        (_, Some("uuid")) => "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10".into(),
        (_, Some("date-time")) => "2026-11-21T08:00:00.123Z".into(),
        _ => panic!("the schema needs an example: {schema}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with each object in a document and its JSON pointer.
    fn visit(value: &Value, at: &str, check: &mut impl FnMut(&str, &Map<String, Value>)) {
        if let Some(members) = value.as_object() {
            check(at, members);
            members.iter().for_each(|(name, it)| visit(it, &format!("{at}/{name}"), check));
        }
        for (number, item) in value.as_array().into_iter().flatten().enumerate() {
            visit(item, &format!("{at}/{number}"), check);
        }
    }

    fn document() -> Value {
        serde_json::from_str(postonce_schemas::OPENAPI_JSON).unwrap()
    }

    #[test]
    fn alternatives_are_only_a_schema_or_null() {
        let null = json!({"type": "null"});
        visit(&document(), "", &mut |at, members| {
            assert!(!members.contains_key("anyOf") && !members.contains_key("allOf"), "{at}");
            if let Some(alternatives) = members.get("oneOf") {
                let [reference, second] = alternatives.as_array().unwrap().as_slice() else { panic!("{at}") };
                assert!(reference.get("$ref").is_some() && *second == null, "{at}");
            }
        });
    }

    #[test]
    fn every_member_of_every_schema_has_a_type() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in schemas {
            assert!(schema["type"] == "object" && schema["example"].is_object(), "{name}");
            for (member, it) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let is_typed = ["type", "$ref", "oneOf"].iter().any(|key| it.get(key).is_some());
                assert!(is_typed, "{name}.{member}");
                assert!(it["type"] != "object", "{name}.{member} is a map without a name");
            }
        }
        let item = &schemas["BatchItem"]["properties"];
        for member in ["user_id", "amount", "currency", "reference", "metadata"] {
            assert!(item.get(member).is_some(), "{member}");
        }
    }

    #[test]
    fn both_documents_have_the_same_operations_and_parameters() {
        let strict: Value = serde_json::from_str(postonce_schemas::OPENAPI_STRICT_JSON).unwrap();
        let outline = |document: &Value| {
            let mut found = Vec::new();
            visit(&document["paths"], "", &mut |at, members| {
                // Links also have an operation id, but no responses.
                if members.contains_key("operationId") && members.contains_key("responses") {
                    let names = members.get("parameters").and_then(Value::as_array).into_iter().flatten();
                    let names = names.map(|it| it.get("name").or(it.get("$ref")).cloned());
                    let statuses = members["responses"].as_object().unwrap().keys().cloned();
                    found.push((at.to_owned(), names.collect::<Vec<_>>(), statuses.collect::<Vec<_>>()));
                }
            });
            found
        };
        let operations = outline(&strict);
        assert!(operations.len() > 30, "{operations:?}");
        assert_eq!(outline(&document()), operations);
    }
}
