//! Helpers for all rows: they parse properties and report damaged rows. Integers are stored as decimal texts in every
//! row, because JSON numbers above 2^53 lose precision in transit.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::invalid_property::InvalidProperty;
use super::table::{Found, Properties};
use crate::domain::time::Timestamp;
use crate::ports::fault::{Cause, StoreFault};

/// A row cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the row {row} is damaged")]
struct Damaged {
    row: String,
    #[source]
    source: Cause,
}

/// Returns the fault of the port for a damaged row.
pub(super) fn corrupt(found: &Found, doing: &'static str, source: impl Into<Cause>) -> StoreFault {
    let damaged = Damaged { row: found.key.to_string(), source: source.into() };
    StoreFault::Corrupt { doing, source: Box::new(damaged) }
}

/// Decodes the properties of a row.
pub(super) fn parse<T: DeserializeOwned>(found: &Found, doing: &'static str) -> Result<T, StoreFault> {
    let properties = Value::Object(found.properties.clone());
    serde_json::from_value(properties).map_err(|error| corrupt(found, doing, error))
}

/// Parses a number that is stored as decimal text.
pub(super) fn number<T: std::str::FromStr>(text: &str, property: &'static str) -> Result<T, InvalidProperty> {
    text.parse().map_err(|_| InvalidProperty(property))
}

/// Parses a time that is stored as decimal text, in milliseconds since 1970.
pub(super) fn time(text: &str, property: &'static str) -> Result<Timestamp, InvalidProperty> {
    number(text, property).map(Timestamp::from_unix_ms)
}

/// Returns the properties of a row struct, to which further properties can be added.
pub(super) fn properties(row: &impl Serialize) -> Properties {
    match serde_json::to_value(row) {
        Ok(Value::Object(properties)) => properties,
        Ok(_) | Err(_) => panic!("a row struct is not a JSON object"),
    }
}
