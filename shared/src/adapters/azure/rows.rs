//! What all rows share: how they are read, and what a damaged one becomes. Integers are decimal texts
//! in every row: a JSON number above 2^53 comes back changed.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::flaw::Flaw;
use super::table::{Found, Properties};
use crate::domain::time::Timestamp;
use crate::ports::fault::{Cause, StoreFault};

/// A row that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the row {row} is damaged")]
struct Damaged {
    row: String,
    #[source]
    source: Cause,
}

/// What is wrong with a row, as the fault of a port.
pub(super) fn corrupt(found: &Found, doing: &'static str, source: impl Into<Cause>) -> StoreFault {
    let damaged = Damaged { row: found.key.to_string(), source: source.into() };
    StoreFault::Corrupt { doing, source: Box::new(damaged) }
}

/// Reads the properties of a row.
pub(super) fn parse<T: DeserializeOwned>(found: &Found, doing: &'static str) -> Result<T, StoreFault> {
    let properties = Value::Object(found.properties.clone());
    serde_json::from_value(properties).map_err(|error| corrupt(found, doing, error))
}

/// Reads a number that is written as a decimal text.
pub(super) fn number<T: std::str::FromStr>(text: &str, property: &'static str) -> Result<T, Flaw> {
    text.parse().map_err(|_| Flaw(property))
}

/// Reads a point in time.
pub(super) fn time(text: &str, property: &'static str) -> Result<Timestamp, Flaw> {
    number(text, property).map(Timestamp::from_unix_ms)
}

/// The properties of a row struct, where others are added to them.
pub(super) fn properties(row: &impl Serialize) -> Properties {
    match serde_json::to_value(row) {
        Ok(Value::Object(properties)) => properties,
        Ok(_) | Err(_) => panic!("a row is not an object of JSON"),
    }
}
