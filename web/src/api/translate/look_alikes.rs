//! Unknown members of a submission with names similar to known ones, such as `refrence` or `Metadata`, and unknown elements, if
//! they are in the namespace of the known ones. They are probably mistakes, and would be stored as the partner's own, without the
//! expected effect.

use std::sync::LazyLock;

use postonce_schemas::json::{self as wire, Violation};
use postonce_shared::domain::instruction::{Instruction, UnknownMembers};
use postonce_shared::messaging::xml::{XmlLimits, read, shown};
use postonce_shared::text::looks_like;

use super::content::names_of;
use crate::error::{ApiError, Code};
use crate::formats::soap_names::COMPAT_NAMESPACE;
use crate::formats::soap_submissions::{COMPAT_INSERT, INSERT};
use crate::formats::table::Table;
use crate::formats::xml::CANONICAL;

static KNOWN: LazyLock<Vec<String>> = LazyLock::new(names_of::<wire::TransactionRequest>);
/// The tables with the known elements of each namespace.
static TABLES: [&Table; 3] = [CANONICAL.submission, &INSERT, &COMPAT_INSERT];

/// Names that other contracts know, and the classic one does not: kept as unknown elements, they would not have their effect.
const NO_PARAMETERS: [(&str, &str); 2] = [
    ("currency", "is not a parameter: the amount is in the currency of the account"),
    ("waitSeconds", "is not a parameter: use the HTTP header Prefer: wait=N"),
];

/// Returns an error if an instruction has look-alike members. Use it for new requests only: a repetition of a request that an
/// earlier version accepted must be recognised.
pub fn refusal(instruction: &Instruction) -> Option<ApiError> {
    let violations = violations(instruction);
    (!violations.is_empty()).then(|| ApiError::violations(Code::ValidationFailed, violations))
}

/// Returns a violation for each look-alike member or element of an instruction.
pub fn violations(instruction: &Instruction) -> Vec<Violation> {
    match UnknownMembers::of_canonical(instruction.details.unknown_members()) {
        UnknownMembers::Members(own) => own.into_keys().filter_map(violation).collect(),
        UnknownMembers::Elements(own) => own.iter().filter_map(|element| violation_of(element)).collect(),
    }
}

/// Returns the violation of an element, as it was stored.
fn violation_of(element: &str) -> Option<Violation> {
    // The limit was checked when the element was sent; as a document of its own, it has declarations besides.
    let limits = XmlLimits { attributes_max: usize::MAX, ..XmlLimits::default() };
    let name = read(element.as_bytes(), &limits).ok()?.name;
    let table = TABLES.iter().find(|table| table.namespace == name.namespace)?;
    if name.namespace == COMPAT_NAMESPACE
        && let Some((_, rule)) = NO_PARAMETERS.iter().find(|(other, _)| looks_like(&name.local, other))
    {
        return Some(Violation { field: shown(&name.local), message: (*rule).to_owned() });
    }
    let mut known = table.names();
    let meant = known.find(|known| looks_like(&name.local, known))?;
    Some(Violation {
        field: shown(&name.local),
        message: format!("is not a known field; did you mean {meant}?"),
    })
}

fn violation(field: String) -> Option<Violation> {
    let message = if field == wire::Transaction::UNKNOWN_MEMBERS {
        "is a member of responses; it cannot be sent".to_owned()
    } else {
        let meant = KNOWN.iter().find(|known| looks_like(&field, known))?;
        format!("is not a known field; did you mean {meant}?")
    };
    Some(Violation { field, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_one_letter_or_in_case_look_alike() {
        let meant = |name: &str| {
            let found = violation(name.to_owned())?;
            Some(found.message.trim_start_matches("is not a known field; did you mean ").to_owned())
        };
        for (name, known) in [
            ("Reference", "reference?"),
            ("refrence", "reference?"),
            ("referenec", "reference?"),
            ("references", "reference?"),
            ("REFERENCS", "reference?"),
            ("meta_data", "metadata?"),
            ("curreny", "currency?"),
        ] {
            assert_eq!(meant(name).as_deref(), Some(known), "{name}");
        }
        for own in ["", "ref", "purpose", "metadates", "reference_2", "\u{130}mount", &"a".repeat(1 << 20)] {
            assert_eq!(meant(own), None, "{own:.40}");
        }
        assert!(meant(wire::Transaction::UNKNOWN_MEMBERS).is_some());
    }
}
