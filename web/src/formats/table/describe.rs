//! OpenAPI schemas of tables. The rows give the structure, and the JSON schemas give the types.

use postonce_schemas::json::codes_by_decimals;
use postonce_shared::domain::instruction::TransactionKind;
use serde_json::{Map, Value, json};

use super::{FieldCodec, Row, Table, UNKNOWN_ELEMENTS, Unknown};

/// Text that XML can represent, without control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001F\u007F-\u009F\uFFFE\uFFFF]*$";

/// The schemas of the JSON bodies, by name.
type Schemas = Map<String, Value>;

impl Table {
    /// Returns the schema of documents of this table. `json` is the name of the JSON schema with the same members. The schema
    /// omits elements of other namespaces, which OpenAPI cannot describe.
    pub fn schema(&self, json: &str, schemas: &Schemas, kind: Option<TransactionKind>) -> Value {
        let of = schemas.get(json).unwrap_or_else(|| panic!("no schema {json}"));
        let mut root = object();
        for row in self.rows {
            let (leaf, required) = described(row, of, schemas, kind);
            put(&mut root, row.path, leaf, required);
        }
        match self.unknown {
            Unknown::Kept(_) => set(&mut root, "additionalProperties", true.into()),
            Unknown::Answered => {
                put(&mut root, UNKNOWN_ELEMENTS, json!({"type": "object"}), Required::default());
            }
            Unknown::Refused | Unknown::OfOthers => {}
        }
        set(&mut root, "xml", json!({"name": self.root, "namespace": self.namespace}));
        if let Some(description) = of.get("description").and_then(Value::as_str) {
            set(&mut root, "description", description.into());
        }
        if let Some(rules) = self.rules(json, of) {
            set(&mut root, "anyOf", rules.into());
        }
        root
    }

    /// Returns the alternatives (`anyOf`) of a schema, for rules that involve several members.
    fn rules(&self, json: &str, of: &Value) -> Option<Vec<Value>> {
        let money = match json {
            "TransactionRequest" => "amount",
            "OpenAccountRequest" => "overdraft_limit",
            "ChangeAccountRequest" => {
                let one_is_there = |row: &Row| {
                    let mut rule = json!({});
                    put(&mut rule, row.path, json!({}), Required { group: true, leaf: true });
                    rule
                };
                return Some(self.rows.iter().map(one_is_there).collect());
            }
            _ => return None,
        };
        let path = |member: &str| self.rows.iter().find(|row| row.member == member);
        let (money, currency) = (path(money)?, path("currency")?);
        let mut rules = Vec::new();
        for (place, (decimals, codes)) in codes_by_decimals().into_iter().enumerate() {
            let in_json = of.pointer(&format!("/oneOf/{place}/properties/{}", money.member)).cloned();
            let amounts = match &money.codec {
                FieldCodec::Custom(codec) => codec.amount_schemas(decimals),
                FieldCodec::Text
                | FieldCodec::Number
                | FieldCodec::Code(_)
                | FieldCodec::Pairs(..)
                | FieldCodec::List(_) => {
                    vec![in_json.unwrap_or_else(|| panic!("{json} has no amounts by currency"))]
                }
            };
            rules.extend(amounts.into_iter().map(|amount| {
                let mut rule = json!({});
                put(&mut rule, currency.path, json!({"enum": codes}), Required::default());
                put(&mut rule, money.path, amount, Required::default());
                rule
            }));
        }
        Some(rules)
    }
}

/// Which elements of the path of a row are required: the enclosing ones, and the element itself.
#[derive(Debug, Clone, Copy, Default)]
struct Required {
    group: bool,
    leaf: bool,
}

/// Returns the schema of the element of a row, and which elements of its path are required.
fn described(row: &Row, of: &Value, schemas: &Schemas, kind: Option<TransactionKind>) -> (Value, Required) {
    let (object, member) = match row.member.split_once('.') {
        None => (None, row.member),
        Some((object, member)) => (Some(object), member),
    };
    let group = object.is_some_and(|object| is_required(of, object));
    let of = object.map_or(of, |object| referred(of, object, schemas));
    let leaf = is_required(of, member);
    let required = Required { group: group || (object.is_none() && leaf), leaf };
    let in_json = of.pointer(&format!("/properties/{member}")).cloned().unwrap_or_else(|| json!({}));
    let leaf = match &row.codec {
        FieldCodec::Text | FieldCodec::Number => in_xml(in_json),
        FieldCodec::Code(codes) => {
            let theirs: Vec<&str> = codes.iter().map(|(_, theirs)| *theirs).collect();
            json!({"type": "string", "enum": theirs})
        }
        FieldCodec::Pairs(item, name, text) => pairs(item, name, text),
        FieldCodec::List(table) => {
            let name = in_json.pointer("/items/$ref").and_then(Value::as_str).unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            json!({"type": "array", "items": table.schema(name, schemas, None)})
        }
        FieldCodec::Custom(codec) => codec.schema(kind),
    };
    (leaf, required)
}

/// Returns whether a member is always present and never null. XML represents null by omitting the element.
fn is_required(of: &Value, member: &str) -> bool {
    let is_nullable = of.pointer(&format!("/properties/{member}/type/1")).is_some_and(|it| it == "null");
    let names = of.get("required").and_then(Value::as_array);
    !is_nullable && names.is_some_and(|names| names.iter().any(|name| name == member))
}

/// Returns the schema that a member refers to.
fn referred<'a>(of: &Value, member: &str, schemas: &'a Schemas) -> &'a Value {
    let member = of.pointer(&format!("/properties/{member}"));
    let alternatives = member.and_then(|it| it.get("oneOf")).and_then(Value::as_array);
    let mut places = alternatives.into_iter().flatten().chain(member);
    let name = places.find_map(|it| it.get("$ref")?.as_str()?.rsplit('/').next());
    name.and_then(|name| schemas.get(name)).unwrap_or_else(|| panic!("{member:?} refers to no schema"))
}

/// Converts the schema of a text or a number to XML, which has no null. The schema of free text allows null, because tools
/// write null as the text `null`.
fn in_xml(mut schema: Value) -> Value {
    let is_number = schema.get("type").is_some_and(|it| it == "integer");
    let is_free = schema.get("pattern").and_then(Value::as_str).is_some_and(|it| it.contains("u0000"));
    if is_number {
        return schema;
    }
    if is_free {
        set(&mut schema, "pattern", PRINTABLE.into());
    }
    set(&mut schema, "type", if is_free { json!(["string", "null"]) } else { json!("string") });
    schema
}

fn pairs(item: &str, name: &str, text: &str) -> Value {
    let mut pair = object();
    let free = || json!({"type": ["string", "null"], "pattern": PRINTABLE});
    let mut key = free();
    set(&mut key, "minLength", 1.into());
    set(&mut key, "maxLength", 40.into());
    let always = Required { group: true, leaf: true };
    put(&mut pair, name, key, always);
    put(&mut pair, text, free(), always);
    set(&mut pair, "xml", json!({"name": item}));
    let description = "Your own data, returned unchanged. Names must be unique; at most 2048 bytes in total.";
    json!({
        "type": "array", "description": description, "maxItems": 20, "items": pair, "xml": {"wrapped": true},
    })
}

/// Returns the schema of an element without child elements, as a base for adding properties.
pub(super) fn object() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

/// Inserts the schema `leaf` at a path of elements.
fn put(schema: &mut Value, path: &str, leaf: Value, required: Required) {
    let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let is_whole = schema.get("type").is_some();
    let Some(schema) = schema.as_object_mut() else { return };
    let is_needed = if rest.is_some() { required.group } else { required.leaf };
    if is_needed {
        let names = schema.entry("required").or_insert_with(|| json!([]));
        if let Some(names) = names.as_array_mut().filter(|names| !names.iter().any(|it| it == first)) {
            names.push(first.into());
        }
    }
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let Some(properties) = properties.as_object_mut() else { return };
    match rest {
        None => drop(properties.insert(first.to_owned(), leaf)),
        Some(rest) => {
            let group =
                properties.entry(first).or_insert_with(|| if is_whole { object() } else { json!({}) });
            put(group, rest, leaf, required);
        }
    }
}

fn set(schema: &mut Value, name: &str, value: Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(name.to_owned(), value);
    }
}
