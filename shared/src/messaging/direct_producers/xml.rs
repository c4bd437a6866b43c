//! The XML form: one element with four children, each once and in any order, as
//! `schemas/xsd/user-account-transaction.xsd` says. What is hostile in it ends in [`crate::messaging::xml`]; here no
//! other elements are let through, and no attributes but those that say nothing about the content.

use super::{Fields, NAMES, Violation, of_body};
use crate::messaging::xml::{self, Element, XmlLimits, shown};

const ROOT: &str = "UserAccountTransaction";
/// One level deeper than the form, so that an element too deep is told by its name; and what serializers
/// declare are two or three namespaces.
const LIMITS: XmlLimits = XmlLimits { depth_max: 3, attributes_max: 8 };
/// The namespace of `xsi:noNamespaceSchemaLocation`.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// After so many violations the rest of a document is not read: nobody reads more than these.
const VIOLATIONS_MAX: usize = 16;
/// Most characters of a field that are read; the longest that is allowed is shorter.
const FIELD_CHARS_MAX: usize = 128;

/// Reads the texts of the fields. What is wrong with the document is told; `None` when that is so much
/// that nothing in it can be trusted.
pub(super) fn read(text: &str, violations: &mut Vec<Violation>) -> Option<Fields> {
    let fields = xml::read(text.as_bytes(), &LIMITS)
        .map_err(|unreadable| unreadable.rule)
        .and_then(|root| fields_of(&root, violations));
    fields.map_err(|rule| violations.push(of_body(rule))).ok()
}

/// The fields, or the first thing after which nothing can be trusted.
fn fields_of(root: &Element, violations: &mut Vec<Violation>) -> Result<Fields, String> {
    if root.name.local != ROOT || !root.name.prefix.is_empty() {
        return Err(format!("must be a {ROOT}, but is a {}", shown(&root.name.local)));
    }
    check_attributes(root, violations);
    if root.has_loose_text() {
        return Err("must not have text outside of its four elements".to_owned());
    }
    let mut fields = Fields::default();
    for element in root.elements() {
        if let Some(inner) = element.elements().next() {
            let name = shown(&inner.name.local);
            return Err(format!("must not have elements within elements of {ROOT}, such as {name}"));
        }
        // What namespace the root is in by mistake was told with the root.
        let known = NAMES.iter().position(|known| element.is(&root.name.namespace, known));
        match known.and_then(|place| Some((*NAMES.get(place)?, fields.0.get_mut(place)?))) {
            Some((name, field)) => read_field(element, name, field, violations)?,
            None => {
                let name = shown(&element.name.local);
                let rule = format!("must not have the element {name}; allowed are {}", NAMES.join(", "));
                violations.push(of_body(rule));
            }
        }
        if violations.len() >= VIOLATIONS_MAX {
            return Err("was not read further".to_owned());
        }
    }
    Ok(fields)
}

fn read_field(
    element: &Element,
    name: &str,
    field: &mut Option<String>,
    violations: &mut Vec<Violation>,
) -> Result<(), String> {
    let mut refuse = |rule: &str| {
        violations.push(Violation { field: name.to_owned(), rule: rule.to_owned() });
    };
    if !element.attributes.is_empty() || !element.declarations.is_empty() {
        refuse("must not have attributes");
    }
    if field.is_some() {
        refuse("must not stand more than once");
        return Ok(());
    }
    // White space around a value says nothing, as in the schema.
    let text = element.text().unwrap_or_default().trim_ascii();
    if text.chars().count() > FIELD_CHARS_MAX {
        return Err(format!("has a {name} of more than {FIELD_CHARS_MAX} characters"));
    }
    *field = Some(text.to_owned());
    Ok(())
}

/// Lets through what serializers and validators add without changing the meaning: declarations of
/// prefixes, and where the schema is. Another default namespace would make it another element.
fn check_attributes(root: &Element, violations: &mut Vec<Violation>) {
    let default = root.declarations.iter().filter(|(prefix, _)| prefix.is_empty());
    let named = root
        .attributes
        .iter()
        .map(|attribute| &attribute.name)
        .filter(|name| name.namespace != SCHEMA_INSTANCE || name.local != "noNamespaceSchemaLocation");
    let names = default.map(|_| "xmlns".to_owned()).chain(named.map(|name| shown(&name.local)));
    violations.extend(names.map(|name| {
        let rule = format!("must not have the attribute {name}");
        Violation { field: ROOT.to_owned(), rule }
    }));
}
