//! The JSON format, whose member names all formats share.

use postonce_shared::messaging::json::{self, Object};
use postonce_shared::messaging::xml::XmlLimits;
use serde_json::{Map, Value};

use super::members::Members;
use super::{Document, Format, Shape};
use crate::error::{ApiError, Code};

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
    let read = json::read(body);
    let Object { values, inexact } =
        read.map_err(|malformed| ApiError::new(Code::BodyInvalid, format!("The body {malformed}.")))?;
    let mut members = Members::of(values);
    inexact.iter().for_each(|name| members.mark_inexact(name));
    Ok(members)
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
