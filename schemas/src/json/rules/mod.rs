//! Limits and functions that the `validator` attributes of requests refer to. Each rule of a request member is either here or
//! in its attribute. The schemas repeat the numbers, because `utoipa` attributes accept literals only; a test compares them.
//!
//! Rules that depend on the currency, the time or the configuration are in the domain.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use validator::{Validate, ValidateNonControlCharacter as _, ValidationError, ValidationErrors};

/// Maximum length of a line of text, such as a reference or a name, in characters (ISO 20022 `Max140Text`).
pub const LINE_CHARS_MAX: u64 = 140;
/// Maximum length of the reason for a change of the gate, in characters.
pub const GATE_REASON_CHARS_MAX: u16 = 200;
/// Maximum number of members of `metadata`.
pub const METADATA_MEMBERS_MAX: usize = 20;
/// Maximum length of a member name of `metadata`, in characters.
pub const METADATA_NAME_CHARS_MAX: usize = 40;
/// Maximum size of `metadata` in bytes, names and values together.
pub const METADATA_BYTES_MAX: usize = 2048;
/// Maximum size in bytes of the members of a request that its struct does not list, in their stored form.
pub const UNKNOWN_MEMBERS_BYTES_MAX: usize = 2048;
/// Maximum number of requests per second, and maximum burst.
pub const RATE_MAX: u32 = 1_000_000;
/// Maximum number of scopes in a request for a key.
pub const SCOPES_MAX: usize = 20;
/// Maximum number of parts of a value that are checked individually, such as items of a list. A response may name that many; a
/// value with more parts is refused as a whole.
pub const PARTS_CHECKED_MAX: usize = 100;
/// Maximum length of the id of a signature key, in characters.
pub const SIGNATURE_KEY_ID_CHARS_MAX: usize = 64;

/// Name under which `validator` stores the errors of a value as a whole.
pub const WHOLE: &str = "__all__";
/// Parameter of an error of a value as a whole: the affected part of the value, as the end of a field name, such as `.shop` or
/// `[3]`. Without it, the error concerns the whole value.
pub const PART: &str = "part";

/// Returns an error with a code for programs and a message, which continues a sentence about the value.
pub(super) fn broken(code: &'static str, message: impl Into<Cow<'static, str>>) -> ValidationError {
    ValidationError::new(code).with_message(message.into())
}

/// Sets the part of the value that an error concerns.
pub(super) fn of_part(mut error: ValidationError, part: &str) -> ValidationError {
    error.add_param(PART.into(), &part);
    error
}

/// Checks the reason for a change of the gate.
///
/// # Errors
/// Fails with the allowed form in the message.
pub fn gate_reason(text: &str) -> Result<(), ValidationError> {
    let fits = (1..=usize::from(GATE_REASON_CHARS_MAX)).contains(&text.chars().count());
    if fits && text.validate_non_control_character() {
        return Ok(());
    }
    let message =
        format!("must have 1 to {GATE_REASON_CHARS_MAX} characters in one line, without control characters");
    Err(broken("gate_reason", message))
}

/// Checks the id of a signature key.
///
/// # Errors
/// Fails with the allowed characters and length in the message.
pub fn signature_key_id(text: &str) -> Result<(), ValidationError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=SIGNATURE_KEY_ID_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(());
    }
    let message = format!("must have 1 to {SIGNATURE_KEY_ID_CHARS_MAX} letters, digits, -, _ or .");
    Err(broken("signature_key_id", message))
}

/// A partner's own data: strings by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Metadata(pub BTreeMap<String, String>);

impl Validate for Metadata {
    /// Returns all errors in one list, in the order of the members. They cannot be stored by name, because clients choose the
    /// names, which may equal [`WHOLE`].
    fn validate(&self) -> Result<(), ValidationErrors> {
        let Self(members) = self;
        let mut errors = Vec::new();
        if members.len() > METADATA_MEMBERS_MAX {
            errors.push(broken("members", format!("must have at most {METADATA_MEMBERS_MAX} members")));
        }
        for (name, value) in members.iter().take(PARTS_CHECKED_MAX) {
            if !(1..=METADATA_NAME_CHARS_MAX).contains(&name.chars().count()) {
                let message = format!("must have member names of 1 to {METADATA_NAME_CHARS_MAX} characters");
                errors.push(broken("member_name", message));
            }
            if !name.validate_non_control_character() || !value.validate_non_control_character() {
                let part = format!(".{}", name.escape_default());
                errors.push(of_part(ValidationError::new("non_control_character"), &part));
            }
        }
        let bytes: usize = members.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
        if bytes > METADATA_BYTES_MAX {
            let message = format!("must have at most {METADATA_BYTES_MAX} bytes, names and values together");
            errors.push(broken("bytes", message));
        }
        of_whole(errors)
    }
}

/// The members of a request that its struct does not list, in their stored form.
#[derive(Debug, Validate)]
#[validate(schema(function = "unknown_members_fit"))]
pub struct UnknownMembers<'a> {
    /// The text, at most [`UNKNOWN_MEMBERS_BYTES_MAX`] bytes.
    pub stored: &'a str,
}

fn unknown_members_fit(members: &UnknownMembers<'_>) -> Result<(), ValidationError> {
    if members.stored.len() <= UNKNOWN_MEMBERS_BYTES_MAX {
        return Ok(());
    }
    Err(broken("bytes", format!("has unknown members of more than {UNKNOWN_MEMBERS_BYTES_MAX} bytes")))
}

/// Stores the errors of a value in one list. Returns `Ok` if there are none.
pub(super) fn of_whole(errors: Vec<ValidationError>) -> Result<(), ValidationErrors> {
    let mut of_whole = ValidationErrors::new();
    errors.into_iter().for_each(|error| of_whole.add(WHOLE, error));
    if of_whole.is_empty() { Ok(()) } else { Err(of_whole) }
}

#[cfg(test)]
mod tests;
