//! The formats of XML in the document. What is taken or answered in JSON is so in each of them, and in
//! `application/xml` and `text/xml`, which mean the partner's own format or else the canonical one.

use postonce_shared::domain::instruction::TransactionKind;
use serde_json::{Map, Value, json};

use crate::error::PROBLEM_JSON;
use crate::formats::table::Tables;
use crate::formats::{GENERIC_XML, Shape, wwi, xml};

/// What the names of these schemas end in.
const SUFFIX: &str = "Xml";
const TABLES: [&Tables; 2] = [&xml::CANONICAL, &wwi::WWI];

/// Adds the media types to an operation, and the schemas that they need.
pub(super) fn add(operation: &mut Value, schemas: &mut Map<String, Value>) {
    let kind = match operation.get("operationId").and_then(Value::as_str) {
        Some("submit_withdrawal") => TransactionKind::Withdrawal,
        _ => TransactionKind::Deposit,
    };
    if let Some(content) = operation.pointer_mut("/requestBody/content") {
        add_to(content, kind, schemas);
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (_, response) in responses.into_iter().flatten() {
        if let Some(content) = response.get_mut("content") {
            add_to(content, kind, schemas);
        }
    }
}

/// Whether a schema is one of these.
pub(super) fn is_schema(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

fn add_to(content: &mut Value, kind: TransactionKind, schemas: &mut Map<String, Value>) {
    let Some(content) = content.as_object_mut() else { return };
    for json_type in ["application/json", PROBLEM_JSON] {
        let schema = content.get(json_type).and_then(|it| it.pointer("/schema/$ref")).and_then(Value::as_str);
        let name = schema.and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned();
        let Some(shape) = shape_of(&name, kind) else { continue };
        for tables in TABLES {
            let schema = reference(tables, shape, &name, schemas);
            let own = if shape == Shape::Problem { tables.problem_media_type } else { tables.media_type };
            content.insert(own.to_owned(), schema.clone());
            if tables.name == xml::CANONICAL.name && shape != Shape::Problem {
                content.extend(GENERIC_XML.iter().map(|it| ((*it).to_owned(), schema.clone())));
            }
        }
    }
}

/// What a body is about, by its struct.
fn shape_of(name: &str, kind: TransactionKind) -> Option<Shape> {
    Some(match name {
        "TransactionRequest" => Shape::Submission(kind),
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

/// A reference to the schema of a table, which is made where it is not there yet.
fn reference(tables: &Tables, shape: Shape, json: &str, schemas: &mut Map<String, Value>) -> Value {
    let table = (tables.of)(shape);
    let (which, kind) = match shape {
        Shape::Submission(kind @ TransactionKind::Deposit) => ("Deposit", Some(kind)),
        Shape::Submission(kind @ TransactionKind::Withdrawal) => ("Withdrawal", Some(kind)),
        Shape::Opening
        | Shape::Change
        | Shape::Transaction
        | Shape::TransactionPage
        | Shape::Account
        | Shape::AccountPage
        | Shape::Problem => ("", None),
    };
    let name = format!("{which}{}{SUFFIX}", table.root);
    if !schemas.contains_key(&name) {
        let schema = table.schema(json, schemas, kind);
        schemas.insert(name.clone(), schema);
    }
    json!({"schema": {"$ref": format!("#/components/schemas/{name}")}})
}
