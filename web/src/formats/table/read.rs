//! From elements to members. What is wrong is noted, field by field, and reading goes on.

use std::collections::BTreeSet;

use postonce_schemas::json::Violation;
use postonce_shared::domain::instruction::UNKNOWN_MEMBERS_BYTES_MAX;
use postonce_shared::xml::{self, Element, XmlLimits, shown};
use serde_json::{Map, Value};

use super::{ELEMENTS, Row, Table, Words};
use crate::error::{ApiError, Code};
use crate::formats::is_ours;
use crate::formats::members::Members;

/// The namespace of `xsi:schemaLocation`.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// Most violations that are noted; a document with more is mended by nobody at once.
const VIOLATIONS_MAX: usize = 100;

/// Reads a body as XML.
///
/// # Errors
/// [`ApiError`] of status 400.
pub fn parse(body: &[u8], limits: &XmlLimits) -> Result<Element, ApiError> {
    xml::read(body, limits)
        .map_err(|unreadable| ApiError::new(Code::BodyInvalid, format!("The body {unreadable}.")))
}

/// Reads a document whose outermost element has to be that of the table.
///
/// # Errors
/// [`ApiError`] of status 400 when it is another one.
pub fn read_root(table: &Table, root: &Element) -> Result<Reading, ApiError> {
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

/// What was read of an element.
#[derive(Debug, Default)]
pub struct Reading {
    /// The members, those of inner objects within them.
    pub members: Map<String, Value>,
    /// Elements of other namespaces.
    pub elements: Vec<String>,
    /// Members that are there and cannot be read.
    refused: BTreeSet<String>,
    /// What is wrong, by the names of the document.
    pub violations: Vec<Violation>,
}

impl Reading {
    /// The members, for the translation that all formats share.
    pub fn into_members(self) -> Members {
        Members::of_elements(self.members, self.elements, self.refused, self.violations)
    }

    /// Whether that member is there and cannot be read, which was noted.
    pub fn has_refused(&self, member: &str) -> bool {
        self.refused.contains(member)
    }

    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { field: field.to_owned(), message: message.into() });
        }
    }
}

impl Table {
    /// Reads what is in an element, whatever its own name is.
    pub fn read(&self, root: &Element) -> Reading {
        let mut reading = Reading::default();
        for attribute in &root.attributes {
            let is_location = attribute.name.namespace == SCHEMA_INSTANCE
                && ["schemaLocation", "noNamespaceSchemaLocation"].contains(&attribute.name.local.as_str());
            if !is_location {
                let rule = format!("must not have the attribute {}", shown(&attribute.name.local));
                reading.refuse(self.root, rule);
            }
        }
        self.read_group(root, "", &mut BTreeSet::new(), &mut reading);
        reading
    }

    fn read_group(&self, group: &Element, prefix: &str, seen: &mut BTreeSet<String>, reading: &mut Reading) {
        if group.has_loose_text() {
            let field = if prefix.is_empty() { self.root } else { prefix };
            reading.refuse(field, "must not have text between its elements");
        }
        for child in group.elements() {
            let is_foreign = !child.name.namespace.is_empty() && child.name.namespace != self.namespace;
            if is_foreign && self.open && prefix.is_empty() {
                self.keep(child, reading);
                continue;
            }
            let local = shown(&child.name.local);
            let path = if prefix.is_empty() { local } else { format!("{prefix}/{local}") };
            if child.name.namespace != self.namespace {
                reading.refuse(&path, format!("must be in the namespace {}", self.namespace));
                continue;
            }
            if let Some(row) = self.rows.iter().find(|row| row.path == path) {
                let is_list = matches!(row.words, Words::Each(_));
                if is_list || once(child, path, seen, reading) {
                    self.read_row(child, row, reading);
                }
            } else if let Some(first) = self.rows.iter().find(|row| is_within(row, &path)) {
                // Present, though perhaps without anything in it.
                if let Some((object, _)) = first.member.split_once('.') {
                    reading.members.entry(object).or_insert_with(|| Value::Object(Map::new()));
                }
                if once(child, path.clone(), seen, reading) {
                    self.read_group(child, &path, seen, reading);
                }
            } else {
                reading.refuse(&path, "is not known here");
            }
        }
    }

    /// Keeps an element of another namespace, as long as it may be kept.
    fn keep(&self, element: &Element, reading: &mut Reading) {
        if is_ours(&element.name.namespace) {
            let field = shown(&element.name.local);
            return reading.refuse(&field, "must not stand here in a namespace that has a meaning to us");
        }
        // What is too much is refused later, and need not all be written for that.
        let bytes: usize = reading.elements.iter().map(String::len).sum();
        if bytes <= UNKNOWN_MEMBERS_BYTES_MAX {
            reading.elements.push(xml::write(element));
        }
    }

    fn read_row(&self, element: &Element, row: &Row, reading: &mut Reading) {
        let read = match &row.words {
            Words::Each(table) => return read_item(element, row, table, reading),
            Words::Own(wording) => wording.read(element, row.member),
            Words::Pairs(item, name, text) => {
                pairs(element, self.namespace, (item, name, text)).map(|value| of_row(row, value))
            }
            Words::Text | Words::Number | Words::Code(_) => {
                let text = element.text().ok_or_else(|| "must have text only".to_owned());
                text.and_then(|text| row.words.value(text)).map(|value| of_row(row, value))
            }
        };
        match read {
            Ok(members) => {
                members.into_iter().for_each(|(name, value)| put(&mut reading.members, &name, value));
            }
            Err(message) => {
                reading.refuse(row.path, message);
                // It is there: that it is missing must not be said as well.
                reading.refused.insert(row.member.to_owned());
            }
        }
    }
}

fn read_item(element: &Element, row: &Row, table: &Table, reading: &mut Reading) {
    let mut inner = table.read(element);
    inner.members.insert(ELEMENTS.to_owned(), inner.elements.into());
    for violation in inner.violations {
        reading.refuse(&format!("{}/{}", row.path, violation.field), violation.message);
    }
    let list = reading.members.entry(row.member).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(items) = list {
        items.push(Value::Object(inner.members));
    }
}

fn is_within(row: &Row, group: &str) -> bool {
    row.path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether an element stands at its place for the first time, which has no attributes.
fn once(element: &Element, path: String, seen: &mut BTreeSet<String>, reading: &mut Reading) -> bool {
    if let Some(attribute) = element.attributes.first() {
        reading.refuse(&path, format!("must not have the attribute {}", shown(&attribute.name.local)));
    }
    if seen.contains(&path) {
        reading.refuse(&path, "must not stand more than once");
        return false;
    }
    seen.insert(path)
}

fn of_row(row: &Row, value: Value) -> Vec<(String, Value)> {
    vec![(row.member.to_owned(), value)]
}

impl Words {
    fn value(&self, text: &str) -> Result<Value, String> {
        match self {
            Self::Number => {
                text.parse::<u64>().map(Value::from).map_err(|_| "must be a whole number".to_owned())
            }
            Self::Code(codes) => {
                let found = codes.iter().find(|(_, theirs)| *theirs == text);
                found.map(|(ours, _)| Value::from(*ours)).ok_or_else(|| {
                    let theirs: Vec<&str> = codes.iter().map(|(_, theirs)| *theirs).collect();
                    format!("must be {}", theirs.join(" or "))
                })
            }
            Self::Text | Self::Pairs(..) | Self::Each(_) | Self::Own(_) => Ok(Value::from(text)),
        }
    }
}

fn pairs(
    element: &Element,
    namespace: &str,
    (item, name, text): (&str, &str, &str),
) -> Result<Value, String> {
    let form = || format!("must have elements {item} only, each with {name} and {text}");
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
            return Err(format!("must not have the {name} {} twice", shown(key)));
        }
    }
    if element.has_loose_text() { Err(form()) } else { Ok(Value::Object(pairs)) }
}

fn put(members: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => drop(members.insert(name.to_owned(), value)),
        Some((object, inner)) => {
            let object = members.entry(object).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(members) = object {
                members.insert(inner.to_owned(), value);
            }
        }
    }
}
