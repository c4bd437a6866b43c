//! The XML form: one element with four children, each once and in any order, as in
//! `schemas/xsd/user-account-transaction.xsd`. [`crate::messaging::xml`] refuses hostile XML. This module refuses other
//! elements, and attributes that could change the meaning.

use super::{Fields, NAMES, Violation, of_body};
use crate::messaging::xml::{self, Element, XmlLimits, shown};

const ROOT: &str = "UserAccountTransaction";
/// One level deeper than the form, so that the error for a nested element can contain its name. Serializers declare two
/// or three namespaces.
const LIMITS: XmlLimits = XmlLimits { depth_max: 3, attributes_max: 8 };
/// The namespace of `xsi:noNamespaceSchemaLocation`.
const SCHEMA_INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// Number of violations after which parsing stops.
const VIOLATIONS_MAX: usize = 16;
/// Largest number of characters of a field. Valid fields are shorter.
const FIELD_CHARS_MAX: usize = 128;

/// Reads the texts of the fields and collects violations. Returns `None` if the document as a whole cannot be trusted.
pub(super) fn read(text: &str, violations: &mut Vec<Violation>) -> Option<Fields> {
    let fields = xml::read(text.as_bytes(), &LIMITS)
        .map_err(|unreadable| unreadable.rule)
        .and_then(|root| fields_of(&root, violations));
    fields.map_err(|rule| violations.push(of_body(rule))).ok()
}

/// Returns the fields, or the first error after which the document cannot be trusted.
fn fields_of(root: &Element, violations: &mut Vec<Violation>) -> Result<Fields, String> {
    if root.name.local != ROOT || !root.name.prefix.is_empty() {
        return Err(format!("must be a {ROOT}, but is a {}", shown(&root.name.local)));
    }
    check_attributes(root, violations);
    if root.has_loose_text() {
        return Err("must not have text outside its four elements".to_owned());
    }
    let mut fields = Fields::default();
    for element in root.elements() {
        if let Some(inner) = element.elements().next() {
            let name = shown(&inner.name.local);
            return Err(format!("must not have elements within elements of {ROOT}, such as {name}"));
        }
        // A wrong namespace of the root has already been reported with the root.
        let known = NAMES.iter().position(|known| element.is(&root.name.namespace, known));
        match known.and_then(|position| Some((*NAMES.get(position)?, fields.0.get_mut(position)?))) {
            Some((name, field)) => read_field(element, name, field, violations)?,
            None => {
                let name = shown(&element.name.local);
                let rule = format!("must not have the element {name}; allowed are {}", NAMES.join(", "));
                violations.push(of_body(rule));
            }
        }
        if violations.len() >= VIOLATIONS_MAX {
            return Err("has too many violations and was not read further".to_owned());
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
        refuse("must not occur more than once");
        return Ok(());
    }
    // White space around a value is ignored, as in the schema.
    let text = element.text().unwrap_or_default().trim_ascii();
    if text.chars().count() > FIELD_CHARS_MAX {
        return Err(format!("has a {name} of more than {FIELD_CHARS_MAX} characters"));
    }
    *field = Some(text.to_owned());
    Ok(())
}

/// Allows what serializers and validators add without changing the meaning: declarations of prefixes, and the location
/// of the schema. Another default namespace would change the name of the element.
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
