//! Writes a tree as text, in one form for equal trees: attributes and declarations are sorted, every element has a start tag
//! and an end tag, and references are used only where XML needs them. The rules are those of Exclusive XML Canonicalization
//! 1.0 without comments, except that a declared prefix is kept even if no name uses it, because a value may use it.

use std::collections::BTreeMap;

use super::read::{XML_NAMESPACE, is_char};
use super::{Attribute, Element, Name, Node};

/// Writes an element as a standalone text, with every namespace declaration that it needs.
pub fn write(element: &Element) -> String {
    let mut text = String::new();
    write_element(&mut text, element, &BTreeMap::new());
    text
}

/// The namespaces in scope by prefix; the default namespace has the empty prefix.
type Scope<'a> = BTreeMap<&'a str, &'a str>;

fn write_element<'a>(text: &mut String, element: &'a Element, outer: &Scope<'a>) {
    let Element { name, declarations, attributes, children } = element;
    let mut wanted: BTreeMap<&str, &str> =
        declarations.iter().map(|(prefix, namespace)| (prefix.as_str(), namespace.as_str())).collect();
    let prefixed = attributes.iter().map(|attribute| &attribute.name).filter(|it| !it.prefix.is_empty());
    for used in std::iter::once(name).chain(prefixed) {
        wanted.insert(&used.prefix, &used.namespace);
    }
    let mut scope = outer.clone();
    text.push('<');
    write_name(text, name);
    for (prefix, namespace) in wanted {
        let before = scope.get(prefix).copied().unwrap_or(if prefix == "xml" { XML_NAMESPACE } else { "" });
        if before != namespace {
            scope.insert(prefix, namespace);
            text.push_str(" xmlns");
            if !prefix.is_empty() {
                text.push(':');
                text.push_str(prefix);
            }
            write_value(text, namespace);
        }
    }
    let mut sorted: Vec<&Attribute> = attributes.iter().collect();
    sorted.sort_unstable_by_key(|it| (&it.name.namespace, &it.name.local));
    for Attribute { name, value } in sorted {
        text.push(' ');
        write_name(text, name);
        write_value(text, value);
    }
    text.push('>');
    for child in children {
        match child {
            Node::Element(element) => write_element(text, element, &scope),
            Node::Text(content) => content.chars().for_each(|character| match character {
                '&' => text.push_str("&amp;"),
                '<' => text.push_str("&lt;"),
                '>' => text.push_str("&gt;"),
                '\r' => text.push_str("&#xD;"),
                other => text.push(writable(other)),
            }),
            Node::Serialized(element) => write_serialized(text, element, &scope),
        }
    }
    text.push_str("</");
    write_name(text, name);
    text.push('>');
}

/// Inserts an element that was serialized without a default namespace. It must not inherit the one of its new parent.
fn write_serialized(text: &mut String, element: &str, scope: &Scope<'_>) {
    let name = element.strip_prefix('<').unwrap_or_default();
    let (name, rest) = name.split_at(name.find([' ', '>']).unwrap_or_default());
    let is_bare = |tag: &str| {
        let name = tag.split([' ', '>']).next().unwrap_or_default();
        !name.is_empty() && !name.starts_with('/') && !name.contains(':')
    };
    // In texts and values `<` is written as a reference, so each `<` begins a tag.
    let needs_reset = element.split('<').any(is_bare) && !rest.starts_with(" xmlns=");
    if needs_reset && scope.get("").is_some_and(|default| !default.is_empty()) {
        text.push_str(&format!("<{name} xmlns=\"\"{rest}"));
    } else {
        text.push_str(element);
    }
}

fn write_name(text: &mut String, name: &Name) {
    if !name.prefix.is_empty() {
        text.push_str(&name.prefix);
        text.push(':');
    }
    text.push_str(&name.local);
}

/// Escapes a text for an attribute or an element.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    write_escaped(&mut escaped, text);
    escaped
}

fn write_value(text: &mut String, value: &str) {
    text.push_str("=\"");
    write_escaped(text, value);
    text.push('"');
}

fn write_escaped(text: &mut String, value: &str) {
    value.chars().for_each(|character| match character {
        '&' => text.push_str("&amp;"),
        '<' => text.push_str("&lt;"),
        '"' => text.push_str("&quot;"),
        '\t' => text.push_str("&#x9;"),
        '\n' => text.push_str("&#xA;"),
        '\r' => text.push_str("&#xD;"),
        other => text.push(writable(other)),
    });
}

/// Replaces a character that XML cannot represent with U+FFFD.
const fn writable(character: char) -> char {
    if is_char(character) { character } else { char::REPLACEMENT_CHARACTER }
}
