//! Visibility of transactions.

use postonce_shared::domain::ids::PartnerId;

/// Transactions that a caller may read. Partners choose message ids themselves, so a partner must not see those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View<'a> {
    /// The transactions of this partner.
    Own(&'a PartnerId),
    /// The transactions of all partners.
    All,
}

impl<'a> View<'a> {
    /// Returns the partner to which the view is limited; `None` if it covers all.
    pub const fn partner(self) -> Option<&'a PartnerId> {
        match self {
            Self::Own(own) => Some(own),
            Self::All => None,
        }
    }
}
