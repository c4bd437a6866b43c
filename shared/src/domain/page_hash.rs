//! The hash that chains the pages of a journal.

use std::fmt;

use super::ids::Nonce;
use super::instruction::Fields;

/// SHA-256 of a page and, through the chain, of all pages before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageHash([u8; 32]);

impl PageHash {
    /// The previous hash in the first page.
    pub const GENESIS: Self = Self([0; 32]);

    /// Parses the output of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Wraps the 32 bytes of a hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the first 128 bits of the hash over this hash, a version and a salt; see
    /// [`Entry::salted`](super::journal::Entry::salted).
    pub fn salted(&self, version: u64, salt: Nonce) -> u128 {
        let mut fields = Fields::new("postonce link 1");
        fields.bytes(salt.as_uuid().as_bytes());
        fields.bytes(&version.to_be_bytes());
        fields.bytes(&self.0);
        first_half(fields.finish())
    }

    /// Returns the 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for PageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageHash({self})")
    }
}

/// Returns the first 128 bits of a hash. They suffice for the sums of an audit, whose salt is random and never stored.
pub(super) fn first_half(hash: [u8; 32]) -> u128 {
    u128::from_be_bytes(std::array::from_fn(|index| hash[index]))
}
