//! The JSON format, whose member names all formats share. Its parser refuses repeated members, numbers that lose
//! digits, and deep nesting.
//!
//! `serde_json` alone keeps the last of two members with the same name, and rounds long numbers. In both cases
//! two different contents would become equal.

use std::fmt;

use postonce_shared::domain::json_number::JsonNumber;
use postonce_shared::messaging::xml::XmlLimits;
use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::members::Members;
use super::{Document, Format, Shape};
use crate::error::{ApiError, Code};

/// Maximum nesting depth of a body, including the outermost object.
const DEPTH_MAX: u8 = 16;

/// `application/json`.
#[derive(Debug)]
pub struct Json;

impl Format for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn media_type(&self) -> &'static str {
        "application/json"
    }

    fn problem_media_type(&self) -> &'static str {
        "application/problem+json"
    }

    fn is_xml(&self) -> bool {
        false
    }

    fn has_namespace(&self, _: &str) -> bool {
        false
    }

    fn read(&self, _: Shape, body: &[u8], _: &XmlLimits) -> Result<Members, ApiError> {
        members(body)
    }

    fn field(&self, _: Shape, member: &str) -> String {
        member.to_owned()
    }

    fn write(&self, document: &Document) -> Vec<u8> {
        serde_json::to_vec(document).expect("texts, numbers and lists of them can be written as JSON")
    }

    fn schema(&self, _: Shape, _: &str, _: &Map<String, Value>) -> Option<(String, Value)> {
        None
    }
}

/// Parses a body, which must be one JSON object.
///
/// # Errors
/// [`ApiError`] with status 400.
pub fn members(body: &[u8]) -> Result<Members, ApiError> {
    read(body).map_err(|malformed| ApiError::new(Code::BodyInvalid, malformed.to_string()))
}

fn read(body: &[u8]) -> Result<Members, JsonError> {
    let raw: &RawValue = serde_json::from_slice(body).map_err(JsonError::Syntax)?;
    if !raw.get().starts_with('{') {
        return Err(JsonError::NotAnObject);
    }
    let mut inexact = Vec::new();
    let values = object(raw.get(), |name, raw| {
        let mut exact = true;
        let value = value(raw, 2, &mut exact)?;
        if !exact {
            inexact.push(name.to_owned());
        }
        Ok(value)
    })?;
    let mut members = Members::of(values);
    inexact.iter().for_each(|name| members.mark_inexact(name));
    Ok(members)
}

/// The reason why a body is refused.
#[derive(Debug, thiserror::Error)]
enum JsonError {
    #[error("The body is not valid JSON: {0}.")]
    Syntax(#[source] serde_json::Error),
    #[error("The body must be a JSON object.")]
    NotAnObject,
    #[error("The member {0:?} occurs twice in one object.")]
    Repeated(String),
    #[error("The body is nested deeper than {DEPTH_MAX} levels.")]
    TooDeep,
}

/// Parses the members of an object, which must have different names, each by `parse`. They go straight into the map:
/// a list of them before would need as much memory again.
fn object<'a>(
    raw: &'a str,
    parse: impl FnMut(&str, &'a str) -> Result<Value, JsonError>,
) -> Result<Map<String, Value>, JsonError> {
    struct IntoMap<'f, P>(P, &'f mut Option<JsonError>);

    impl<'de, P: FnMut(&str, &'de str) -> Result<Value, JsonError>> Visitor<'de> for IntoMap<'_, P> {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Map::new();
            while let Some((name, raw)) = map.next_entry::<String, &RawValue>()? {
                let parsed = match members.contains_key(&name) {
                    true => Err(JsonError::Repeated(name.clone())),
                    false => (self.0)(&name, raw.get()),
                };
                match parsed {
                    Ok(value) => drop(members.insert(name, value)),
                    Err(malformed) => {
                        *self.1 = Some(malformed);
                        return Err(A::Error::custom("it is refused"));
                    }
                }
            }
            Ok(members)
        }
    }

    let mut refused = None;
    let read = (&mut serde_json::Deserializer::from_str(raw)).deserialize_map(IntoMap(parse, &mut refused));
    read.map_err(|error| refused.unwrap_or(JsonError::Syntax(error)))
}

/// Parses a value level by level. Sets `exact` to false if a number in it loses digits.
fn value(raw: &str, depth: u8, exact: &mut bool) -> Result<Value, JsonError> {
    let deeper = depth.saturating_add(1);
    match raw.as_bytes().first() {
        Some(b'{' | b'[') if depth > DEPTH_MAX => Err(JsonError::TooDeep),
        Some(b'{') => object(raw, |_, raw| value(raw, deeper, exact)).map(Value::Object),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(raw).map_err(JsonError::Syntax)?;
            let read = items.into_iter().map(|raw| value(raw.get(), deeper, exact));
            read.collect::<Result<_, _>>().map(Value::Array)
        }
        Some(b'-' | b'0'..=b'9') => {
            let number: Number = serde_json::from_str(raw).map_err(JsonError::Syntax)?;
            let written = JsonNumber::read(raw);
            *exact &= written.fits() && written == JsonNumber::read(&number.to_string());
            Ok(Value::Number(number))
        }
        Some(_) | None => serde_json::from_str(raw).map_err(JsonError::Syntax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_are_not_one_valid_object_are_refused() {
        let check = |body: &[u8], expected: &str| {
            let error = members(body).unwrap_err().to_string();
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
        check(br#"{"amount":"1","amount":"2"}"#, "\"amount\" occurs twice");
        check(br#"{"amount":"1","am\u006funt":"2"}"#, "\"amount\" occurs twice");
        check(br#"{"metadata":{"a":"1","a":"1"}}"#, "\"a\" occurs twice");
        check(br#"{"x":[{"a":1,"a":1}]}"#, "\"a\" occurs twice");
        let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        check(deep(16).as_bytes(), "nested deeper than 16");
        check(deep(30_000).as_bytes(), "nested deeper than 16");
        assert!(members(deep(15).as_bytes()).is_ok());
    }

    #[test]
    fn numbers_that_lose_digits_are_refused() {
        let check = |number: &str, kept: bool| {
            let mut members = super::members(format!(r#"{{"x":[{number}]}}"#).as_bytes()).unwrap();
            let _rest = members.take_unknown();
            assert_eq!(members.finish(Some(())).is_ok(), kept, "{number}");
        };
        for number in ["0", "-0", "1", "1.0", "0.10", "12.50", "1e3", "1E+3", "2.5e-7", "123456789012345"] {
            check(number, true);
        }
        // Doubles in their shortest notation.
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
