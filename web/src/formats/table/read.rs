//! Parses elements into members. Violations of fields are recorded, and parsing continues.

use std::collections::BTreeSet;

use postonce_schemas::json::Violation;
use postonce_shared::domain::instruction::UNKNOWN_MEMBERS_BYTES_MAX;
use postonce_shared::messaging::xml::{self, Element, XmlLimits, shown};
use postonce_shared::text::digits;
use serde_json::{Map, Value};

use super::{ELEMENTS, FieldCodec, Row, Table, UNKNOWN_ELEMENTS, Unknown};
use crate::error::{ApiError, Code};
use crate::formats::is_reserved_namespace;
use crate::formats::members::Members;

/// Namespace of `schemaLocation` and `noNamespaceSchemaLocation`, the only attributes that are accepted.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Parses a body as XML.
///
/// # Errors
/// [`ApiError`] with status 400.
pub fn parse(body: &[u8], limits: &XmlLimits) -> Result<Element, ApiError> {
    xml::read(body, limits)
        .map_err(|unreadable| ApiError::new(Code::BodyInvalid, format!("The body {unreadable}.")))
}

/// Parses a document whose root element must be that of the table.
///
/// # Errors
/// [`ApiError`] with status 400 for another root element.
pub fn read_root(table: &Table, root: &Element) -> Result<Members, ApiError> {
    if root.is(table.namespace, table.root) {
        return Ok(table.read(root));
    }
    let (local, namespace) = (shown(&root.name.local), shown(&root.name.namespace));
    let detail = format!(
        "The body must be an element {} of the namespace {}, but is {local} of {namespace:?}.",
        table.root, table.namespace
    );
    Err(ApiError::new(Code::BodyInvalid, detail))
}

impl Table {
    /// Parses the content of an element, whatever its name is.
    pub fn read(&self, root: &Element) -> Members {
        let mut members = Members::default();
        for attribute in &root.attributes {
            let is_location = attribute.name.namespace == SCHEMA_INSTANCE
                && ["schemaLocation", "noNamespaceSchemaLocation"].contains(&attribute.name.local.as_str());
            if !is_location {
                let rule = format!("must not have the attribute {}", shown(&attribute.name.local));
                members.refuse(self.root, rule);
            }
        }
        self.read_group(root, "", &mut BTreeSet::new(), &mut members);
        members
    }

    fn read_group(&self, group: &Element, prefix: &str, seen: &mut BTreeSet<String>, members: &mut Members) {
        if group.has_loose_text() {
            let field = if prefix.is_empty() { self.root } else { prefix };
            members.refuse(field, "must not contain text between its elements");
        }
        for child in group.elements() {
            let is_foreign = !child.name.namespace.is_empty() && child.name.namespace != self.namespace;
            if is_foreign && prefix.is_empty() && !matches!(self.unknown, Unknown::Refused) {
                keep_foreign(child, members);
                continue;
            }
            let local = shown(&child.name.local);
            let path = if prefix.is_empty() { local } else { format!("{prefix}/{local}") };
            if child.name.namespace != self.namespace {
                members.refuse(&path, format!("must be in the namespace {}", self.namespace));
                continue;
            }
            if let Some(row) = self.rows.iter().find(|row| row.path == path) {
                let is_list = matches!(row.codec, FieldCodec::List(_));
                if is_list || is_first(child, path, seen, members) {
                    self.read_row(child, row, members);
                }
            } else if let Some(first) = self.rows.iter().find(|row| is_within(row, &path)) {
                // The inner object is present even if the element is empty.
                if let Some((object, _)) = first.member.split_once('.') {
                    members.object(object);
                }
                if is_first(child, path.clone(), seen, members) {
                    self.read_group(child, &path, seen, members);
                }
            } else if prefix.is_empty() {
                self.read_unknown(child, &path, members);
            } else {
                members.refuse(&path, "is not a known field");
            }
        }
    }

    /// Reads an element of the namespace of the table that no row names.
    fn read_unknown(&self, element: &Element, name: &str, members: &mut Members) {
        let is_answered = |row: &Row| row.path == name || is_within(row, name);
        match self.unknown {
            Unknown::Kept(answered) if name != UNKNOWN_ELEMENTS && !answered.iter().any(is_answered) => {
                keep(element, members);
            }
            Unknown::Answered if name == UNKNOWN_ELEMENTS => {
                element.elements().for_each(|element| keep(element, members));
            }
            Unknown::Refused | Unknown::OfOthers | Unknown::Kept(_) | Unknown::Answered => {
                members.refuse(name, "is not a known field");
            }
        }
    }

    fn read_row(&self, element: &Element, row: &Row, members: &mut Members) {
        let read = match &row.codec {
            FieldCodec::List(table) => return read_item(element, row, table, members),
            FieldCodec::Custom(codec) => codec.read(element, row.member),
            FieldCodec::Pairs(item, name, text) => {
                pairs(element, self.namespace, (item, name, text)).map(|value| of_row(row, value))
            }
            FieldCodec::Text | FieldCodec::Number | FieldCodec::Code(_) => {
                let text = element.text().ok_or_else(|| "must contain text only".to_owned());
                text.and_then(|text| row.codec.value(text)).map(|value| of_row(row, value))
            }
        };
        match read {
            Ok(read) => read.into_iter().for_each(|(name, value)| members.put(&name, value)),
            Err(message) => members.refuse_unreadable(row.member, row.path, message),
        }
    }
}

/// Keeps an element of another namespace, unless the namespace is reserved.
fn keep_foreign(element: &Element, members: &mut Members) {
    if is_reserved_namespace(&element.name.namespace) {
        let field = shown(&element.name.local);
        return members.refuse(&field, "must not be in a namespace that the service uses");
    }
    keep(element, members);
}

/// Keeps an unknown element.
fn keep(element: &Element, members: &mut Members) {
    // Too many bytes are refused later, so elements after the first one above the limit are not kept.
    let elements = members.elements();
    let bytes: usize = elements.iter().map(String::len).sum();
    if bytes <= UNKNOWN_MEMBERS_BYTES_MAX {
        elements.push(xml::write(element));
    }
}

fn read_item(element: &Element, row: &Row, table: &Table, members: &mut Members) {
    let (item, violations) = table.read(element).into_object(ELEMENTS);
    for Violation { field, message } in violations {
        members.refuse(&format!("{}/{field}", row.path), message);
    }
    members.push(row.member, Value::Object(item));
}

fn is_within(row: &Row, group: &str) -> bool {
    row.path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns whether this is the first element at the path. Adds a violation if the element is repeated or has attributes.
fn is_first(element: &Element, path: String, seen: &mut BTreeSet<String>, members: &mut Members) -> bool {
    if let Some(attribute) = element.attributes.first() {
        members.refuse(&path, format!("must not have the attribute {}", shown(&attribute.name.local)));
    }
    if seen.contains(&path) {
        members.refuse(&path, "must not occur more than once");
        return false;
    }
    seen.insert(path)
}

fn of_row(row: &Row, value: Value) -> Vec<(String, Value)> {
    vec![(row.member.to_owned(), value)]
}

impl FieldCodec {
    fn value(&self, text: &str) -> Result<Value, String> {
        match self {
            Self::Number => {
                digits::<u64>(text).map(Value::from).ok_or_else(|| "must be a whole number".to_owned())
            }
            Self::Code(codes) => {
                let found = codes.iter().find(|(_, theirs)| *theirs == text);
                found.map(|(ours, _)| Value::from(*ours)).ok_or_else(|| {
                    let theirs: Vec<&str> = codes.iter().map(|(_, theirs)| *theirs).collect();
                    format!("must be {}", theirs.join(" or "))
                })
            }
            Self::Text | Self::Pairs(..) | Self::List(_) | Self::Custom(_) => Ok(Value::from(text)),
        }
    }
}

fn pairs(
    element: &Element,
    namespace: &str,
    (item, name, text): (&str, &str, &str),
) -> Result<Value, String> {
    let form = || format!("must contain only elements {item}, each with {name} and {text}");
    let mut pairs = Map::new();
    for pair in element.elements() {
        let part = |local| pair.elements().find(|part| part.is(namespace, local));
        let (Some(key), Some(value)) = (part(name), part(text)) else { return Err(form()) };
        let named = pair.is(namespace, item) && pair.elements().count() == 2;
        let bare = [pair, key, value].iter().all(|it| it.attributes.is_empty()) && !pair.has_loose_text();
        let (Some(key), Some(value), true, true) = (key.text(), value.text(), named, bare) else {
            return Err(form());
        };
        if pairs.insert(key.to_owned(), Value::from(value)).is_some() {
            return Err(format!("must not contain the {name} {} twice", shown(key)));
        }
    }
    if element.has_loose_text() { Err(form()) } else { Ok(Value::Object(pairs)) }
}
