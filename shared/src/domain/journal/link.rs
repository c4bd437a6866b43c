//! The position of a page in the chain of all decisions.

use super::PageHash;
use crate::domain::ids::{AccountKey, Nonce};
use crate::domain::instruction::Fields;

/// The input of the hash of a page: its position, and one digest of its decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLink {
    /// The version of the account after the decisions.
    pub version: u64,
    /// The sequence of the first entry; without entries, of the next entry of the journal.
    pub first_sequence: u64,
    /// The hash of the previous page.
    pub previous_hash: PageHash,
    /// Identifies the commit that wrote the page.
    pub nonce: Nonce,
    /// The digest of the decisions; see [`digest_of`].
    pub decisions: [u8; 32],
}

impl PageLink {
    /// Returns the hash of the page in the journal of this account.
    pub fn hash(&self, account: AccountKey) -> PageHash {
        let mut fields = Fields::new("postonce journal page 2");
        fields.bytes(account.user.as_uuid().as_bytes());
        fields.bytes(account.account.as_uuid().as_bytes());
        fields.bytes(&self.first_sequence.to_be_bytes());
        fields.bytes(self.previous_hash.as_bytes());
        fields.bytes(self.nonce.as_uuid().as_bytes());
        fields.bytes(&self.version.to_be_bytes());
        fields.bytes(&self.decisions);
        PageHash::from_bytes(fields.finish())
    }
}

/// Combines the digests of a page's decisions into one, so that one decision can be shown without the others.
pub fn digest_of(decisions: &[[u8; 32]]) -> [u8; 32] {
    let mut all = Fields::new("postonce decisions 1");
    decisions.iter().for_each(|digest| all.bytes(digest));
    all.finish()
}
