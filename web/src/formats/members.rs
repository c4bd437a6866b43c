//! A JSON object as money wants it read: no member twice, no number that loses digits, a bound on
//! depth; and then member by member, with every violation collected instead of the first one thrown.
//!
//! `serde_json` alone lets the last of two equal members win, and rounds long numbers. Both would
//! let two different contents look the same to us.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use postonce_schemas::json::Violation;
use postonce_shared::domain::instruction::UnknownMembers;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::error::{ApiError, Code};

/// Most digits before the point of a number that is kept: whole numbers of that size stay exact
/// everywhere on their way, and a schema can say the limit.
const NUMBER_DIGITS_MAX: i64 = 18;
/// Deepest nesting of a body, the outermost object included.
const DEPTH_MAX: u8 = 16;

/// What a text is, for whoever sent something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// An amount of money.
    Amount,
    /// A currency code.
    Currency,
    /// Any text.
    Text,
}

impl Wanted {
    /// The end of the sentence "must be …".
    const fn phrase(self) -> &'static str {
        match self {
            Self::Amount => "a decimal number in a string, such as \"12.50\"",
            Self::Currency => "a currency code of ISO 4217, such as \"EUR\"",
            Self::Text => "a string",
        }
    }
}

/// The members of an object that nobody has read yet, and what was wrong with the others.
#[derive(Debug)]
pub struct Members {
    /// The name of the object in violations, with the dot; empty for the body itself.
    path: String,
    values: BTreeMap<String, Value>,
    /// Members with a number in them that cannot be kept exactly.
    inexact: BTreeSet<String>,
    /// Elements of other namespaces, where the document is XML.
    elements: Vec<String>,
    /// Members, with the dots before them, about which enough was said.
    refused: BTreeSet<String>,
    violations: Vec<Violation>,
}

impl Members {
    /// What a document of XML holds: members, elements that are not ours, and what is wrong already;
    /// the members in `refused` are not complained about once more.
    pub fn of_elements(
        values: Map<String, Value>,
        elements: Vec<String>,
        refused: BTreeSet<String>,
        violations: Vec<Violation>,
    ) -> Self {
        let values = values.into_iter().collect();
        Self { path: String::new(), values, inexact: BTreeSet::new(), elements, refused, violations }
    }

    /// Reads the object that a body consists of.
    ///
    /// # Errors
    /// [`ApiError`] of status 400.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let refused = |malformed: &Malformed| ApiError::new(Code::BodyInvalid, malformed.to_string());
        let raw: &RawValue =
            serde_json::from_slice(body).map_err(|error| refused(&Malformed::Syntax(error)))?;
        let mut members = Self {
            path: String::new(),
            values: BTreeMap::new(),
            inexact: BTreeSet::new(),
            elements: Vec::new(),
            refused: BTreeSet::new(),
            violations: Vec::new(),
        };
        if !raw.get().starts_with('{') {
            return Err(refused(&Malformed::NotAnObject));
        }
        for (name, raw) in object(raw.get()).map_err(|malformed| refused(&malformed))? {
            let mut exact = true;
            let value = value(raw.get(), 2, &mut exact).map_err(|malformed| refused(&malformed))?;
            if !exact {
                members.inexact.insert(name.clone());
            }
            members.values.insert(name, value);
        }
        Ok(members)
    }

    /// Notes that a member breaks a rule.
    pub fn refuse(&mut self, name: &str, message: impl Into<String>) {
        let field = format!("{}{name}", self.path);
        if self.refused.contains(&field) {
            return;
        }
        self.violations.push(Violation { field, message: message.into() });
    }

    /// Notes that a member that has to be there is not, or is of another kind and refused as such already.
    pub fn refuse_missing(&mut self, name: &str, message: &str) {
        let field = format!("{}{name}", self.path);
        if self.violations.iter().all(|known| known.field != field) {
            self.refuse(name, format!("is missing; {message}"));
        }
    }

    /// Notes that the object itself breaks a rule, all of its members together.
    pub fn refuse_itself(&mut self, message: impl Into<String>) {
        let field = self.path.strip_suffix('.').unwrap_or_default().to_owned();
        self.violations.push(Violation { field, message: message.into() });
    }

    /// A member of any kind, which nobody has read yet.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// A text that has to be there.
    pub fn text(&mut self, name: &str, wanted: Wanted) -> Option<String> {
        match self.values.remove(name) {
            Some(value) => self.as_text(name, value, wanted),
            None => {
                self.refuse(name, format!("is missing; it must be {}", wanted.phrase()));
                None
            }
        }
    }

    /// A text that may be absent or null.
    pub fn optional_text(&mut self, name: &str, wanted: Wanted) -> Option<String> {
        match self.values.remove(name) {
            None | Some(Value::Null) => None,
            Some(value) => self.as_text(name, value, wanted),
        }
    }

    /// An object of texts that may be absent or null.
    pub fn optional_texts(&mut self, name: &str) -> BTreeMap<String, String> {
        let Some(mut members) = self.optional_object(name) else { return BTreeMap::new() };
        let mut texts = BTreeMap::new();
        for (member, value) in std::mem::take(&mut members.values) {
            // A name is the partner's own text; in a violation it stands without line breaks.
            let shown = shown(&member);
            if let Some(text) = members.as_text(&shown, value, Wanted::Text) {
                texts.insert(member, text);
            }
        }
        self.violations.append(&mut members.violations);
        texts
    }

    /// An object that may be absent or null. Give it back to [`Self::close`].
    pub fn optional_object(&mut self, name: &str) -> Option<Self> {
        match self.values.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::Object(members)) => Some(Self {
                path: format!("{}{name}.", self.path),
                values: members.into_iter().collect(),
                inexact: BTreeSet::new(),
                elements: Vec::new(),
                refused: self.refused.clone(),
                violations: Vec::new(),
            }),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                self.refuse(name, "must be an object");
                None
            }
        }
    }

    /// Takes over the violations of an inner object, which must not have further members.
    pub fn close(&mut self, mut inner: Self) {
        inner.refuse_the_rest();
        self.violations.append(&mut inner.violations);
    }

    /// Notes that every member that was not read is one too many.
    pub fn refuse_the_rest(&mut self) {
        for name in std::mem::take(&mut self.values).into_keys() {
            self.refuse(&shown(&name), "is not known here");
        }
    }

    /// Notes that members with these names must not be there, and forgets them.
    pub fn refuse_members(&mut self, names: &[&str], message: &str) {
        for name in names {
            if self.values.remove(*name).is_some() {
                self.refuse(name, message);
            }
        }
    }

    /// Everything that was not read, to keep it. A member with a number that would lose digits is
    /// refused: two contents must not become one.
    pub fn take_the_rest(&mut self) -> UnknownMembers {
        let rest = std::mem::take(&mut self.values);
        for name in rest.keys().filter(|name| self.inexact.contains(*name)).cloned().collect::<Vec<_>>() {
            self.refuse(
                &shown(&name),
                "has a number that cannot be kept as it is written: it has more than 18 digits before the point, or \
                 more digits than a double has; write it as a string",
            );
        }
        match std::mem::take(&mut self.elements) {
            none if none.is_empty() => UnknownMembers::Members(rest),
            elements => UnknownMembers::Elements(elements),
        }
    }

    /// The value, if nothing was wrong.
    ///
    /// # Errors
    /// [`ApiError`] of status 422 with every violation.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        match value {
            Some(value) if self.violations.is_empty() => Ok(value),
            Some(_) | None => Err(ApiError::violations(Code::ValidationFailed, self.violations)),
        }
    }

    fn as_text(&mut self, name: &str, value: Value, wanted: Wanted) -> Option<String> {
        match (value, wanted) {
            (Value::String(text), _) => return Some(text),
            (Value::Number(_), Wanted::Amount) => {
                self.refuse(name, "must be a string such as \"12.50\"; a JSON number can lose digits");
            }
            (_, wanted) => self.refuse(name, format!("must be {}", wanted.phrase())),
        }
        None
    }
}

/// The name of a member that is the client's own invention: on one line, and visible even when empty.
fn shown(name: &str) -> String {
    if name.is_empty() { "\"\"".to_owned() } else { name.escape_default().to_string() }
}

/// Why a body is not a JSON object that we read.
#[derive(Debug, thiserror::Error)]
enum Malformed {
    #[error("The body is not valid JSON: {0}.")]
    Syntax(#[source] serde_json::Error),
    #[error("The body must be a JSON object.")]
    NotAnObject,
    #[error("The member {0:?} stands twice in one object.")]
    Twice(String),
    #[error("The body is nested deeper than {DEPTH_MAX} levels.")]
    TooDeep,
}

/// An object whose members are not read yet, in their order, repetitions included.
struct RawMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawMembers<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(InOrder).map(Self)
    }
}

fn object(raw: &str) -> Result<Vec<(String, &RawValue)>, Malformed> {
    let RawMembers(members) = serde_json::from_str(raw).map_err(Malformed::Syntax)?;
    let mut names = BTreeSet::new();
    match members.iter().find(|(name, _)| !names.insert(name)) {
        Some((name, _)) => Err(Malformed::Twice(name.clone())),
        None => Ok(members),
    }
}

/// Reads a value level by level. `exact` becomes false when a number in it loses digits.
fn value(raw: &str, depth: u8, exact: &mut bool) -> Result<Value, Malformed> {
    let deeper = depth.saturating_add(1);
    match raw.as_bytes().first() {
        Some(b'{' | b'[') if depth > DEPTH_MAX => Err(Malformed::TooDeep),
        Some(b'{') => {
            let members = object(raw)?.into_iter();
            let read = members.map(|(name, raw)| Ok((name, value(raw.get(), deeper, exact)?)));
            read.collect::<Result<Map<_, _>, _>>().map(Value::Object)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).map_err(Malformed::Syntax)?;
            let read = items.into_iter().map(|raw| value(raw.get(), deeper, exact));
            read.collect::<Result<_, _>>().map(Value::Array)
        }
        Some(b'-' | b'0'..=b'9') => {
            let number: Number = serde_json::from_str(raw).map_err(Malformed::Syntax)?;
            let written = digits(raw);
            let (_, short, power) = &written;
            let is_small = length(short).saturating_add(*power) <= NUMBER_DIGITS_MAX;
            *exact &= is_small && written == digits(&number.to_string());
            Ok(Value::Number(number))
        }
        Some(_) | None => serde_json::from_str(raw).map_err(Malformed::Syntax),
    }
}

/// A number of JSON as sign, digits without zeros at either end, and the power of ten of the last
/// digit: equal for equal numbers, however they are written.
fn digits(number: &str) -> (bool, String, i64) {
    let (negative, magnitude) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (major, minor) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{major}{minor}");
    let short = all.trim_end_matches('0');
    let zeros = length(&all).saturating_sub(length(short));
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX);
    let power = exponent.saturating_sub(length(minor)).saturating_add(zeros);
    let short = short.trim_start_matches('0').to_owned();
    if short.is_empty() { (negative, short, 0) } else { (negative, short, power) }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_are_not_one_plain_object_are_refused() {
        let check = |body: &[u8], expected: &str| {
            let error = Members::parse(body).unwrap_err().to_string();
            assert!(error.starts_with("body_invalid: ") && error.contains(expected), "{body:?}: {error}");
        };
        check(b"", "not valid JSON");
        check(b"{", "not valid JSON");
        check(b"{} {}", "not valid JSON");
        check(b"\xff", "not valid JSON");
        check(br#"{"a":"\ud800"}"#, "not valid JSON");
        check(br#"{"a":1e400}"#, "not valid JSON");
        check(br#"{"a":01}"#, "not valid JSON");
        check(b"[]", "must be a JSON object");
        check(b"12", "must be a JSON object");
        check(br#"{"amount":"1","amount":"2"}"#, "\"amount\" stands twice");
        check(br#"{"amount":"1","am\u006funt":"2"}"#, "\"amount\" stands twice");
        check(br#"{"metadata":{"a":"1","a":"1"}}"#, "\"a\" stands twice");
        check(br#"{"x":[{"a":1,"a":1}]}"#, "\"a\" stands twice");
        let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        check(deep(16).as_bytes(), "nested deeper than 16");
        check(deep(30_000).as_bytes(), "nested deeper than 16");
        assert!(Members::parse(deep(15).as_bytes()).is_ok());
    }

    #[test]
    fn numbers_that_lose_digits_are_noticed() {
        let check = |number: &str, kept: bool| {
            let mut members = Members::parse(format!(r#"{{"x":[{number}]}}"#).as_bytes()).unwrap();
            let _rest = members.take_the_rest();
            assert_eq!(members.violations.is_empty(), kept, "{number}");
        };
        for number in ["0", "-0", "1", "1.0", "0.10", "12.50", "1e3", "1E+3", "2.5e-7", "123456789012345"] {
            check(number, true);
        }
        // Doubles as they are written in their shortest form.
        for number in ["5.6734403981687645e-165", "-5.354646847520432e+16", "2.2250738585072014e-308"] {
            check(number, true);
        }
        check("999999999999999999", true);
        check("-999999999999999999", true);
        check("1000000000000000000", false);
        check("-1e18", false);
        check("18446744073709551617", false);
        check("0.12345678901234567890", false);
        check("1e-400", false);
    }
}
