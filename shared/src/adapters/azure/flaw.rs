//! The error of a property that cannot be read.

/// A property that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the property {0} of the row cannot be read")]
pub(super) struct Flaw(pub(super) &'static str);
