//! Unknown members of a submission with names similar to known ones, such as `refrence` or `Metadata`. They are probably
//! mistakes, and would be stored as the partner's own members, without the expected effect.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use postonce_schemas::json::{self as wire, Violation};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::text::looks_like;
use serde::de::IgnoredAny;

use super::content::names_of;
use crate::error::{ApiError, Code};

static KNOWN: LazyLock<Vec<String>> = LazyLock::new(names_of::<wire::TransactionRequest>);

/// Returns an error if an instruction has look-alike members. Use it for new requests only: a repetition of a request that an
/// earlier version accepted must be recognised.
pub fn refusal(instruction: &Instruction) -> Option<ApiError> {
    let violations = violations(instruction);
    (!violations.is_empty()).then(|| ApiError::violations(Code::ValidationFailed, violations))
}

/// Returns a violation for each look-alike member of an instruction.
pub fn violations(instruction: &Instruction) -> Vec<Violation> {
    let own = instruction.details.unknown_members();
    if own.is_empty() {
        return Vec::new();
    }
    let own: BTreeMap<String, IgnoredAny> = serde_json::from_str(own).unwrap_or_default();
    own.into_keys().filter_map(violation).collect()
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
