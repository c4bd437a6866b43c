//! The XML form: an element `UserAccountTransaction` with the members as children, each once and in any order, as in
//! `schemas/xsd/user-account-transaction.xsd`; or an `ArrayOfUserAccountTransaction` with several of them.
//! [`crate::messaging::xml`] refuses hostile XML. This module refuses attributes that could change the meaning.

use super::Part;
use super::members::{Members, Role};
use crate::domain::instruction::{UNKNOWN_MEMBERS_BYTES_MAX, UnknownMembers};
use crate::messaging::xml::{self, Element, XmlLimits, shown};

const ORDER: &str = "UserAccountTransaction";
const ARRAY: &str = "ArrayOfUserAccountTransaction";
/// Serializers declare two or three namespaces. Unknown members may have elements of their own.
const LIMITS: XmlLimits = XmlLimits { depth_max: 8, attributes_max: 8 };
/// The namespace of `xsi:noNamespaceSchemaLocation`.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Reads the orders of a document.
///
/// # Errors
/// The violated rule, if the document as a whole cannot be read.
pub(super) fn read(text: &str) -> Result<Vec<Part>, String> {
    let root = xml::read_decoded(text, &LIMITS).map_err(|unreadable| unreadable.rule)?;
    let is_plain = root.name.prefix.is_empty();
    match root.name.local.as_str() {
        ORDER if is_plain => Ok(vec![Part { text: None, members: members_of(&root) }]),
        ARRAY if is_plain => {
            if let Some(name) = meaningful_attributes(&root).next() {
                return Err(format!("must not have the attribute {name} in its {ARRAY}"));
            }
            if root.has_loose_text() {
                return Err(format!("must not have text between the elements of its {ARRAY}"));
            }
            let part = |order| Part { text: Some(xml::write(order)), members: members_of(order) };
            Ok(root.elements().map(part).collect())
        }
        local => Err(format!("must be a {ORDER} or an {ARRAY}, but is a {}", shown(local))),
    }
}

fn members_of(order: &Element) -> Members {
    let mut members = Members::default();
    if order.name.local != ORDER || !order.name.prefix.is_empty() {
        members.refuse_whole(format!("must be a {ORDER}, but is a {}", shown(&order.name.local)));
        return members;
    }
    for name in meaningful_attributes(order) {
        members.refuse(ORDER, format!("must not have the attribute {name}"));
    }
    if order.has_loose_text() {
        members.refuse_whole("must not have text outside its elements");
        return members;
    }
    let mut unknown = Vec::new();
    for element in order.elements() {
        read_member(element, order, &mut members, &mut unknown);
        if !members.continues() {
            return members;
        }
    }
    members.unknown = UnknownMembers::Elements(unknown);
    members
}

fn read_member(element: &Element, order: &Element, members: &mut Members, unknown: &mut Vec<String>) {
    let local = &element.name.local;
    match members.role(local) {
        // A wrong namespace of the order has already been reported with the order.
        Role::Known(member) if element.name.namespace != order.name.namespace => {
            members.refuse_member(
                member,
                format!("must not be in the namespace {}", shown(&element.name.namespace)),
            );
        }
        Role::Known(member) if !element.attributes.is_empty() || !element.declarations.is_empty() => {
            members.refuse_member(member, "must not have attributes");
        }
        Role::Known(member) => match element.text() {
            // White space around a value is ignored, as in the schema.
            Some(text) => members.set(member, text.trim_ascii().to_owned()),
            None => members.refuse_member(member, "must contain text only"),
        },
        // Too many bytes are refused later, so elements after the first one above the limit are not kept.
        Role::Unknown if unknown.iter().map(String::len).sum::<usize>() <= UNKNOWN_MEMBERS_BYTES_MAX => {
            unknown.push(xml::write(element));
        }
        Role::Unknown | Role::Ignored => {}
    }
}

/// Returns the attributes that could change the meaning of an element. Serializers and validators add declarations of prefixes
/// and the location of the schema, which do not. Another default namespace would change the name of the element.
fn meaningful_attributes(element: &Element) -> impl Iterator<Item = String> {
    let default = element.declarations.iter().filter(|(prefix, _)| prefix.is_empty());
    let named = element
        .attributes
        .iter()
        .map(|attribute| &attribute.name)
        .filter(|name| name.namespace != SCHEMA_INSTANCE || name.local != "noNamespaceSchemaLocation");
    default.map(|_| "xmlns".to_owned()).chain(named.map(|name| shown(&name.local)))
}
