//! The error for a property that cannot be read.

/// Error for a property that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the property {0} of the row cannot be read")]
pub(super) struct InvalidProperty(pub(super) &'static str);
