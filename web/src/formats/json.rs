//! JSON, the format that the others are translated to and from.

use postonce_shared::xml::XmlLimits;
use serde_json::{Map, Value};

use super::members::Members;
use super::{Document, Format, Shape};
use crate::error::ApiError;

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
        Members::parse(body)
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
