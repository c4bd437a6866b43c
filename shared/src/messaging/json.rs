//! JSON from untrusted sources. Repeated members, numbers that lose digits, and deep nesting are refused or marked.
//!
//! `serde_json` alone keeps the last of two members with the same name, and rounds long numbers. In both cases
//! two different contents would become equal.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::domain::json_number::JsonNumber;

/// Maximum nesting depth of a document, including the outermost object.
const DEPTH_MAX: u8 = 16;

/// An object.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Its members.
    pub values: Map<String, Value>,
    /// The names of the members that contain a number which the parsed value does not represent exactly.
    pub inexact: Vec<String>,
}

/// Parses a document, which must be one object, in UTF-8 without a byte order mark.
///
/// # Errors
/// [`JsonError`] at the first error.
pub fn read(document: &[u8]) -> Result<Object, JsonError> {
    let raw: &RawValue = serde_json::from_slice(document).map_err(JsonError::Syntax)?;
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
    Ok(Object { values, inexact })
}

/// The reason why a document is refused, as the end of a sentence about it.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text violates the grammar of JSON (RFC 8259).
    #[error("is not valid JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// The value is not an object.
    #[error("must be a JSON object")]
    NotAnObject,
    /// Two members of an object have the same name.
    #[error("is refused, because the member {0:?} occurs twice in one object")]
    Repeated(String),
    /// The nesting is too deep.
    #[error("is nested deeper than {DEPTH_MAX} levels")]
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
