//! The violations of a document: of the types of its members, of the `validator` rules of the structs in
//! [`postonce_schemas::json`], and of the domain.

use std::collections::BTreeSet;

use postonce_schemas::json::Violation;
use postonce_schemas::json::rules::{PART, WHOLE};
use serde_json::Value;
use validator::{ValidationError, ValidationErrors, ValidationErrorsKind};

use crate::error::VIOLATIONS_MAX;

/// Field name for violations of the document as a whole.
const DOCUMENT: &str = "body";
/// Maximum nesting of a member in objects and lists.
const OUTER_MEMBERS_MAX: usize = 4;

/// The violations of a document.
#[derive(Debug, Default)]
pub struct Violations {
    list: Vec<Violation>,
    /// Violations of rules that are not reported yet, and have no place in the list.
    held: Vec<Violation>,
    /// Members that are present but cannot be parsed. Further violations of them are dropped.
    unreadable: BTreeSet<String>,
    /// Names of the members of each struct that was read, in their order, by the path of the struct.
    orders: Vec<(String, &'static [&'static str])>,
}

impl Violations {
    /// Adds a violation of a member, unless the member could not be parsed.
    pub fn refuse(&mut self, field: &str, message: impl Into<String>) {
        // The client chooses at most the last part of a name, which can have any length.
        let ends = field.match_indices(['.', '[']).take(OUTER_MEMBERS_MAX).map(|(end, _)| end);
        let mut outer = ends.filter_map(|end| field.get(..end));
        if !self.unreadable.contains(field) && !outer.any(|outer| self.unreadable.contains(outer)) {
            // Violations above the maximum are counted without their texts, to save memory.
            let is_shown = self.list.len() < VIOLATIONS_MAX;
            let (field, message) =
                if is_shown { (field.to_owned(), message.into()) } else { Default::default() };
            self.list.push(Violation { field, message });
        }
    }

    /// Adds a violation of a member that is present but cannot be parsed. `field` is its name in violations.
    pub fn refuse_unreadable(&mut self, member: &str, field: &str, message: String) {
        self.refuse(field, message);
        if self.list.len() <= VIOLATIONS_MAX {
            self.unreadable.insert(member.to_owned());
        }
    }

    /// Returns whether a member is present but could not be parsed.
    pub fn is_unreadable(&self, member: &str) -> bool {
        self.unreadable.contains(member)
    }

    /// Returns whether no violation was added.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets the order of the members of the struct at `path`.
    pub fn order(&mut self, path: &str, names: &'static [&'static str]) {
        self.orders.push((path.to_owned(), names));
    }

    /// Holds the errors of a struct. They are added by [`Self::report`], or last in the order of the members.
    pub fn hold(&mut self, errors: ValidationErrors) {
        let position = |outer: &str, name: &str| {
            let orders = self.orders.iter().filter(|(path, _)| path == outer);
            orders.flat_map(|(_, names)| *names).position(|member| *member == name).unwrap_or(usize::MAX)
        };
        let held = of(errors, &position);
        self.held.extend(held);
    }

    /// Adds the held violations of a member and its parts.
    pub fn report(&mut self, member: &str) {
        let is_of_member = |violation: &Violation| {
            let part = violation.field.strip_prefix(member);
            part.is_some_and(|part| part.is_empty() || part.starts_with(['.', '[']))
        };
        let (of_member, others) = std::mem::take(&mut self.held).into_iter().partition(is_of_member);
        self.held = others;
        self.refuse_all(of_member);
    }

    /// Returns all violations, with the held ones last.
    pub fn into_list(mut self) -> Vec<Violation> {
        let held = std::mem::take(&mut self.held);
        self.refuse_all(held);
        self.list
    }

    fn refuse_all(&mut self, violations: Vec<Violation>) {
        for Violation { field, message } in violations {
            self.refuse(&field, message);
        }
    }
}

/// Returns a violation for each error, with the path of its member. `validator` keeps no order, so `position` returns the
/// position of a member from the path of its struct (empty for the document) and its name. Violations of a struct as a whole
/// come after those of its members.
pub fn of(errors: ValidationErrors, position: &impl Fn(&str, &str) -> usize) -> Vec<Violation> {
    let mut found = Vec::new();
    add(&mut found, errors, "", position);
    found
}

fn add(
    found: &mut Vec<Violation>,
    errors: ValidationErrors,
    outer: &str,
    position: &impl Fn(&str, &str) -> usize,
) {
    let members = errors.into_errors().into_iter().map(|(name, errors)| {
        let name = name.strip_prefix("r#").unwrap_or(&name).to_owned();
        let place = if name == WHOLE { usize::MAX } else { position(outer, &name) };
        (place, name, errors)
    });
    let mut members: Vec<_> = members.collect();
    members.sort_by(|(place, name, _), (other_place, other_name, _)| {
        (place, name).cmp(&(other_place, other_name))
    });
    for (_, name, errors) in members {
        let field = if name == WHOLE { outer.to_owned() } else { inner(outer, &format!(".{name}")) };
        match errors {
            ValidationErrorsKind::Struct(errors) => add(found, *errors, &field, position),
            ValidationErrorsKind::List(items) => {
                for (index, errors) in items {
                    add(found, *errors, &inner(&field, &format!("[{index}]")), position);
                }
            }
            ValidationErrorsKind::Field(errors) => {
                found.extend(errors.iter().map(|error| violation(&field, error)));
            }
        }
    }
}

fn violation(field: &str, error: &ValidationError) -> Violation {
    let part = error.params.get(PART).and_then(Value::as_str).unwrap_or_default();
    let field = match inner(field, part) {
        document if document.is_empty() => DOCUMENT.to_owned(),
        field => field,
    };
    Violation { field, message: message(error) }
}

/// Returns the path of a part of a value. `part` is an index, or a member after a dot.
fn inner(outer: &str, part: &str) -> String {
    if outer.is_empty() { part.trim_start_matches('.').to_owned() } else { format!("{outer}{part}") }
}

/// Returns the violated rule, as the end of a sentence about the value.
fn message(error: &ValidationError) -> String {
    let limit = |name: &str| error.params.get(name).map(Value::to_string).unwrap_or_default();
    match (&error.message, error.code.as_ref()) {
        (Some(message), _) => message.to_string(),
        (None, "length") => format!("must have {} to {} characters", limit("min"), limit("max")),
        (None, "range") => format!("must be a whole number from {} to {}", limit("min"), limit("max")),
        (None, "non_control_character") => "must not contain control characters".to_owned(),
        (None, code) => format!("breaks the rule {code}"),
    }
}

/// Checks a command-line argument by the rule of a member.
///
/// # Errors
/// The message of the rule.
pub fn checked(text: &str, rule: impl Fn(&str) -> Result<(), ValidationError>) -> Result<String, String> {
    rule(text).map(|()| text.to_owned()).map_err(|error| message(&error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use postonce_schemas::json::rules::Metadata;
    use postonce_schemas::json::{PartnerRate, PartnerReach, PartnerTerms, Scopes};
    use validator::Validate;

    use super::*;

    /// Returns the fields of the violations, given the order of all members.
    fn fields(read: &impl Validate, order: &[&str]) -> Vec<String> {
        let position = |_: &str, name: &str| order.iter().position(|it| *it == name).unwrap();
        let found = of(read.validate().unwrap_err(), &position);
        found.into_iter().map(|violation| violation.field).collect()
    }

    #[derive(Validate)]
    struct Document {
        #[validate(length(min = 1, max = 2), non_control_character)]
        text: String,
        #[validate(range(min = 1))]
        r#type: u32,
        #[validate(nested)]
        rates: Vec<PartnerRate>,
        #[validate(nested)]
        metadata: Option<Metadata>,
        #[validate(nested)]
        scopes: Scopes,
    }

    #[test]
    fn violations_have_the_order_and_the_paths_of_their_members() {
        let names = ["__all__", "", "[0]", "body", "a\nb"].map(|name| (name.to_owned(), "\u{1}".to_owned()));
        let document = Document {
            text: "\n\n\n".to_owned(),
            r#type: 0,
            rates: [(1, 1), (0, 0), (1, 0)]
                .map(|(per_second, burst)| PartnerRate { per_second, burst })
                .into(),
            metadata: Some(Metadata(BTreeMap::from(names))),
            scopes: Scopes(["read"; 19].into_iter().chain(["fly", "write"]).map(str::to_owned).collect()),
        };
        let of_rates = ["rates[1].burst", "rates[1].per_second", "rates[2].burst"];
        let of_metadata =
            ["metadata", "metadata.", "metadata.[0]", "metadata.__all__", "metadata.a\\nb", "metadata.body"];
        let of_scopes = ["scopes", "scopes[19]", "scopes[20]"];
        let order = ["metadata", "type", "scopes", "rates", "text", "burst", "per_second"];
        let expected = [&of_metadata[..], &["type"], &of_scopes, &of_rates, &["text", "text"]].concat();
        assert_eq!(fields(&document, &order), expected);
    }

    #[test]
    fn a_struct_as_a_whole_is_named_by_its_path_and_comes_last() {
        let terms = |everything, users: Option<Vec<String>>| PartnerTerms {
            reach: PartnerReach { everything, users, accounts: None },
            status: Some("asleep".to_owned()),
            format: None,
            rate: Some(Some(PartnerRate { per_second: 0, burst: 1 })),
            credit_ceilings: None,
            signature_required: None,
        };
        let order = ["status", "reach", "rate", "per_second"];
        assert_eq!(fields(&terms(None, None), &order), ["status", "reach", "rate.per_second"]);
        let combined = terms(Some(true), Some(Vec::new()));
        assert_eq!(fields(&combined, &order), ["status", "reach.everything", "rate.per_second"]);
    }

    #[test]
    fn violations_of_members_that_cannot_be_parsed_are_dropped_and_others_have_their_place() {
        let rate = PartnerRate { per_second: 0, burst: 0 };
        let mut violations = Violations::default();
        violations.order("", &["per_second", "burst"]);
        violations.hold(rate.validate().unwrap_err());
        violations.refuse_unreadable("per_second", "per_second", "must be a number".to_owned());
        violations.report("burst");
        violations.refuse("later", "must be last");
        violations.report("burst");
        let found: Vec<String> =
            violations.into_list().into_iter().map(|it| format!("{} {}", it.field, it.message)).collect();
        let burst = "burst must be a whole number from 1 to 1000000";
        assert_eq!(found, ["per_second must be a number", burst, "later must be last"]);
    }
}
