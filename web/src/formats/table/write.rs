//! Writes members as elements.

use postonce_schemas::json as wire;
use postonce_shared::messaging::xml::{Element, Node, XmlLimits, read};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{ELEMENTS, FieldCodec, Row, Table, UNKNOWN_ELEMENTS, Unknown};
use crate::formats::Document;

impl Table {
    /// Writes the members as the root element.
    pub fn write(&self, members: &Map<String, Value>) -> Element {
        self.write_as(self.root, members)
    }

    fn write_as(&self, name: &str, members: &Map<String, Value>) -> Element {
        let mut root = Element::new(self.namespace, name);
        for row in self.rows {
            let Some(value) = member(members, row.member).filter(|value| !value.is_null()) else { continue };
            let (groups, leaf) = row.path.rsplit_once('/').unwrap_or(("", row.path));
            let leaves = self.leaves(row, leaf, value, members);
            let parent = groups
                .split('/')
                .filter(|group| !group.is_empty())
                .fold(&mut root, |at, group| enter(at, self.namespace, group));
            parent.children.extend(leaves.into_iter().map(Node::Element));
        }
        if let Some(Value::Array(elements)) = members.get(ELEMENTS) {
            let written = elements.iter().filter_map(Value::as_str);
            let (own, others): (Vec<&str>, Vec<&str>) = written.partition(|element| self.sets_apart(element));
            let nodes = |elements: Vec<&str>| {
                elements.into_iter().map(|element| Node::Serialized(element.to_owned())).collect::<Vec<_>>()
            };
            if !own.is_empty() {
                let apart = Element::new(self.namespace, UNKNOWN_ELEMENTS);
                root = root.with(Element { children: nodes(own), ..apart });
            }
            root.children.extend(nodes(others));
        }
        root
    }

    /// Returns whether an unknown element, as it was stored, could be confused with an element of the table.
    fn sets_apart(&self, element: &str) -> bool {
        // The limit was checked when the element was sent; as a document of its own, it has declarations besides.
        let limits = XmlLimits { attributes_max: usize::MAX, ..XmlLimits::default() };
        matches!(self.unknown, Unknown::Answered)
            && read(element.as_bytes(), &limits).is_ok_and(|it| it.name.namespace == self.namespace)
    }

    fn leaves(&self, row: &Row, name: &str, value: &Value, members: &Map<String, Value>) -> Vec<Element> {
        let leaf = || Element::new(self.namespace, name);
        let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match &row.codec {
            FieldCodec::Text | FieldCodec::Number => vec![leaf().with_text(&plain)],
            FieldCodec::Code(codes) => {
                let theirs = codes.iter().find(|(ours, _)| *ours == plain).map(|(_, theirs)| *theirs);
                vec![leaf().with_text(theirs.unwrap_or(&plain))]
            }
            FieldCodec::Pairs(item, name, text) => {
                let pair = |(key, value): (&String, &Value)| {
                    let part = |local, content: &str| Element::new(self.namespace, local).with_text(content);
                    let value = value.as_str().unwrap_or_default();
                    Element::new(self.namespace, item).with(part(name, key)).with(part(text, value))
                };
                let pairs = value.as_object().into_iter().flatten().map(pair);
                vec![pairs.fold(leaf(), Element::with)]
            }
            FieldCodec::List(table) => {
                let items = value.as_array().into_iter().flatten().filter_map(Value::as_object);
                items.map(|members| table.write_as(name, members)).collect()
            }
            FieldCodec::Custom(codec) => vec![codec.write(leaf(), row.member, members)],
        }
    }
}

/// Returns the members of a response document. For transactions, they include the unknown elements.
pub fn members_of(document: &Document) -> Map<String, Value> {
    fn object(value: &impl Serialize) -> Map<String, Value> {
        match serde_json::to_value(value) {
            Ok(Value::Object(members)) => members,
            Ok(_) | Err(_) => Map::new(),
        }
    }
    fn transaction(transaction: &wire::Transaction) -> Map<String, Value> {
        // Unknown JSON members are not written to XML, where clients could confuse them with known elements.
        let mut members = if transaction.unknown_members.is_empty() {
            object(transaction)
        } else {
            let (unknown_members, flattened_members) = Default::default();
            object(&wire::Transaction { unknown_members, flattened_members, ..transaction.clone() })
        };
        members.insert(ELEMENTS.to_owned(), transaction.unknown_elements.as_slice().into());
        members
    }
    match document {
        Document::Transaction(it) => transaction(it),
        Document::TransactionPage(page) => {
            let transactions: Vec<_> =
                page.transactions.iter().map(|it| Value::Object(transaction(it))).collect();
            let next = Value::from(page.next_cursor.clone());
            [("transactions".to_owned(), Value::from(transactions)), ("next_cursor".to_owned(), next)]
                .into_iter()
                .collect()
        }
        Document::Account(account) => object(account),
        Document::AccountPage(page) => object(page),
        Document::Problem(problem) => object(problem),
    }
}

/// Returns the last child if it has this name; otherwise appends a new child.
fn enter<'a>(parent: &'a mut Element, namespace: &str, name: &str) -> &'a mut Element {
    let exists = matches!(parent.children.last(), Some(Node::Element(last)) if last.name.local == name);
    if !exists {
        parent.children.push(Node::Element(Element::new(namespace, name)));
    }
    match parent.children.last_mut() {
        Some(Node::Element(last)) => last,
        Some(Node::Text(_) | Node::Serialized(_)) | None => unreachable!("the element was added above"),
    }
}

fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match name.split_once('.') {
        None => members.get(name),
        Some((object, inner)) => members.get(object)?.as_object()?.get(inner),
    }
}
