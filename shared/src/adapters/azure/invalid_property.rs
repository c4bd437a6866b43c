//! The error for a property with an invalid value.

/// A property is missing or cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the property {0} of the row cannot be read")]
pub(super) struct InvalidProperty(pub(super) &'static str);
