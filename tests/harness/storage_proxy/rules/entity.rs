//! The limits of a row ("Understanding the Table service data model").

use serde_json::{Map, Value};

use super::Refusal;
use crate::storage_proxy::error_responses::StorageError;

/// Maximum size of a property value. A text has two bytes for each UTF-16 unit.
const PROPERTY_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a row, including the names of its properties.
const ENTITY_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a key: 1 KiB, with two bytes for each UTF-16 unit.
const KEY_BYTES_MAX: usize = 1 << 10;
/// Maximum number of properties besides the keys and the timestamp.
const PROPERTIES_MAX: usize = 252;
/// Maximum length of a property name.
const NAME_CHARS_MAX: usize = 255;
/// Size of a row without keys and properties, and of a property without name and value.
const ENTITY_OVERHEAD_BYTES: usize = 4;
const PROPERTY_OVERHEAD_BYTES: usize = 8;

const KEY_OUT_OF_RANGE: StorageError =
    StorageError::bad_request("OutOfRangeInput", "One of the request inputs is out of range.");
const KEY_TOO_LARGE: StorageError = StorageError::bad_request(
    "KeyValueTooLarge",
    "The value of PartitionKey or RowKey is larger than the maximum size permitted.",
);
const PROPERTY_TOO_LARGE: StorageError = StorageError::bad_request(
    "PropertyValueTooLarge",
    "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 \
     encoded and the maximum number of characters should be 32K or less.",
);
const ENTITY_TOO_LARGE: StorageError =
    StorageError::bad_request("EntityTooLarge", "The entity is larger than the maximum size permitted.");
const TOO_MANY_PROPERTIES: StorageError =
    StorageError::bad_request("TooManyProperties", "The entity contains more properties than allowed.");
const NAME_TOO_LONG: StorageError =
    StorageError::bad_request("PropertyNameTooLong", "The property name exceeds the maximum allowed length.");
const NAME_INVALID: StorageError =
    StorageError::bad_request("PropertyNameInvalid", "The property name is invalid.");

/// The keys of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Keys {
    pub(crate) partition: String,
    pub(crate) row: String,
}

impl Keys {
    /// Checks the characters and the size of both keys.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        for (name, key) in [("PartitionKey", &self.partition), ("RowKey", &self.row)] {
            let forbidden = |c: char| matches!(c, '/' | '\\' | '#' | '?') || c.is_control();
            if let Some(found) = key.chars().find(|c| forbidden(*c)) {
                let detail = format!("the {name} {key:?} contains the forbidden character {found:?}");
                return Err(Refusal::new(KEY_OUT_OF_RANGE, detail));
            }
            let size = text_bytes(key);
            if size > KEY_BYTES_MAX {
                let detail = format!("the {name} has {size} bytes; at most {KEY_BYTES_MAX} are allowed");
                return Err(Refusal::new(KEY_TOO_LARGE, detail));
            }
        }
        Ok(())
    }
}

/// Checks the properties of a row, and its size with these keys.
pub(super) fn check(keys: &Keys, properties: &Map<String, Value>) -> Result<(), Refusal> {
    let is_system = |name: &str| ["PartitionKey", "RowKey", "Timestamp"].contains(&name);
    let stored = properties.iter().filter(|(name, _)| !is_system(name) && !name.contains("odata."));
    let mut count: usize = 0;
    let mut size = ENTITY_OVERHEAD_BYTES
        .saturating_add(text_bytes(&keys.partition))
        .saturating_add(text_bytes(&keys.row));
    for (name, value) in stored {
        count = count.saturating_add(1);
        check_name(name)?;
        let kind = properties.get(&format!("{name}@odata.type")).and_then(Value::as_str);
        let bytes = value_bytes(value, kind);
        if bytes > PROPERTY_BYTES_MAX {
            let detail =
                format!("the property {name} has {bytes} bytes; at most {PROPERTY_BYTES_MAX} are allowed");
            return Err(Refusal::new(PROPERTY_TOO_LARGE, detail));
        }
        size = size.saturating_add(PROPERTY_OVERHEAD_BYTES).saturating_add(text_bytes(name));
        size = size.saturating_add(bytes);
    }
    if count > PROPERTIES_MAX {
        let detail = format!("the row has {count} properties; at most {PROPERTIES_MAX} are allowed");
        return Err(Refusal::new(TOO_MANY_PROPERTIES, detail));
    }
    if size > ENTITY_BYTES_MAX {
        let detail = format!("the row has {size} bytes; at most {ENTITY_BYTES_MAX} are allowed");
        return Err(Refusal::new(ENTITY_TOO_LARGE, detail));
    }
    Ok(())
}

/// Checks that a name is a C# identifier.
fn check_name(name: &str) -> Result<(), Refusal> {
    if name.chars().count() > NAME_CHARS_MAX {
        let detail = format!("a name of a property has more than {NAME_CHARS_MAX} characters: {name}");
        return Err(Refusal::new(NAME_TOO_LONG, detail));
    }
    let is_identifier = name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_identifier {
        return Ok(());
    }
    Err(Refusal::new(NAME_INVALID, format!("{name:?} cannot be the name of a property")))
}

fn text_bytes(text: &str) -> usize {
    text.encode_utf16().count().saturating_mul(2)
}

/// Returns the size of a value with this OData type.
fn value_bytes(value: &Value, kind: Option<&str>) -> usize {
    match (value, kind) {
        (Value::String(text), Some("Edm.Binary")) => base64_bytes(text),
        (Value::String(_), Some("Edm.Guid")) => 16,
        (Value::String(_), Some("Edm.Int64" | "Edm.DateTime")) => 8,
        (Value::String(text), _) => text_bytes(text),
        (Value::Null, _) => 0,
        (Value::Bool(_), _) => 1,
        (Value::Number(_), _) => 8,
        // Not in the data model; the service itself refuses it.
        (Value::Array(_) | Value::Object(_), _) => 0,
    }
}

fn base64_bytes(text: &str) -> usize {
    let digits = text.trim_end_matches('=').len();
    digits.saturating_mul(3).div_euclid(4)
}
