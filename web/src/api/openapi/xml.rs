//! XML formats in the OpenAPI document. Every JSON body is also available in each XML format, and as `application/xml` and
//! `text/xml`, which mean the XML format of the partner, or else the canonical one. Batches have their own formats.

use postonce_shared::domain::instruction::TransactionKind;
use serde_json::{Map, Value, json};

use crate::error::PROBLEM_JSON;
use crate::formats::items::{ITEM_FORMATS, ItemFormat, OCTET_STREAM};
use crate::formats::{FORMATS, Format, GENERIC_XML, Shape};

/// Suffix of the names of XML schemas.
const SUFFIX: &str = "Xml";

/// Adds the XML media types and their schemas to an operation.
pub(super) fn add(operation: &mut Value, schemas: &mut Map<String, Value>) {
    let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default();
    let kind = TransactionKind::ALL.iter().find(|kind| id == format!("submit_{}", kind.code())).copied();
    let is_batch = id == "submit_batch";
    if let Some(content) = operation.pointer_mut("/requestBody/content") {
        if is_batch {
            *content = batches();
        }
        add_to(content, kind, schemas);
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (_, response) in responses.into_iter().flatten() {
        if let Some(content) = response.get_mut("content") {
            add_to(content, kind, schemas);
        }
    }
}

/// Returns the media types of batches. The text of the operation and the XSD describe their items.
fn batches() -> Value {
    let content = |format: &ItemFormat| {
        let ItemFormat { media_type, example, .. } = format;
        let schema = match *media_type {
            // Generators treat binary strings as files.
            OCTET_STREAM => json!({"type": "string", "format": "binary"}),
            _ => json!({"type": "string"}),
        };
        ((*media_type).to_owned(), json!({"schema": schema, "example": example}))
    };
    Value::Object(ITEM_FORMATS.iter().map(content).collect())
}

/// Returns whether a schema name belongs to an XML schema.
pub(super) fn is_schema(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

fn add_to(content: &mut Value, kind: Option<TransactionKind>, schemas: &mut Map<String, Value>) {
    let Some(content) = content.as_object_mut() else { return };
    for json_type in ["application/json", PROBLEM_JSON] {
        let schema = content.get(json_type).and_then(|it| it.pointer("/schema/$ref")).and_then(Value::as_str);
        let name = schema.and_then(schema_name).unwrap_or_default().to_owned();
        let Some(shape) = shape_of(&name, kind) else { continue };
        let formats = FORMATS.iter().filter(|format| format.is_xml());
        for (place, format) in formats.enumerate() {
            let Some(schema) = reference(*format, shape, &name, schemas) else { continue };
            let is_problem = shape == Shape::Problem;
            let own = if is_problem { format.problem_media_type() } else { format.media_type() };
            content.insert(own.to_owned(), schema.clone());
            // In the document, the generic types mean the first XML format.
            if place == 0 && !is_problem {
                content.extend(GENERIC_XML.iter().map(|it| ((*it).to_owned(), schema.clone())));
            }
        }
    }
}

/// Returns the kind of a body from the name of its struct. `kind` is the transaction that the operation submits.
fn shape_of(name: &str, kind: Option<TransactionKind>) -> Option<Shape> {
    Some(match name {
        "TransactionRequest" => {
            Shape::Submission(kind.expect("an operation that submits is named for its kind"))
        }
        "OpenAccountRequest" => Shape::Opening,
        "ChangeAccountRequest" => Shape::Change,
        "Transaction" => Shape::Transaction,
        "TransactionPage" => Shape::TransactionPage,
        "Account" => Shape::Account,
        "AccountPage" => Shape::AccountPage,
        "Problem" => Shape::Problem,
        _ => return None,
    })
}

/// Returns a reference to the schema of a format. Adds the schema if it is missing.
fn reference(
    format: &dyn Format,
    shape: Shape,
    json: &str,
    schemas: &mut Map<String, Value>,
) -> Option<Value> {
    let (name, schema) = format.schema(shape, json, schemas)?;
    let usual = format!("{name}{SUFFIX}");
    // Two formats can use the same name for different schemas.
    let is_free = schemas.get(&usual).is_none_or(|it| *it == schema);
    let name = if is_free { usual } else { format!("{name}_{}{SUFFIX}", format.name()) };
    let reference = json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
    schemas.insert(name, schema);
    Some(reference)
}

/// Returns the schema name in a reference.
pub(super) fn schema_name(reference: &str) -> Option<&str> {
    reference.strip_prefix("#/components/schemas/")
}
