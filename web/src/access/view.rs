//! The transactions that a caller may read.

use postonce_shared::domain::ids::PartnerId;

/// The transactions that a caller may read. Partners choose message ids themselves, so one partner must not see those
/// of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View<'a> {
    /// The transactions of this partner.
    Own(&'a PartnerId),
    /// The transactions of all partners.
    Everyones,
}

impl<'a> View<'a> {
    /// The partner whose transactions it is limited to, if there is one.
    pub const fn partner(self) -> Option<&'a PartnerId> {
        match self {
            Self::Own(own) => Some(own),
            Self::Everyones => None,
        }
    }
}
