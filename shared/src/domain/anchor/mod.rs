//! Anchors: signed statements about the ends of all journals at one time.
//!
//! A program with write access to the store can replace a journal together with all of its hashes. An anchor makes this
//! detectable: it is signed with a key that the store does not contain, and copies of it are kept elsewhere. It covers
//! a list of one [`Leaf`] per account and contains the [`merkle`] root of this list, so that a leaf can be proven
//! without the others. Each [`Statement`] contains the hash of the previous one. [`signed`] contains the signature.
//!
//! An anchor proves the decisions about an account up to the version in its leaf. It proves nothing about later
//! decisions, nor about accounts that were opened later.

pub mod inclusion;
pub mod merkle;
pub mod signed;
mod statement;

use std::fmt;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use self::statement::{AnchorKind, AnchorRef, AuditPosition, LeavesStatement, Statement, StatementError};
use super::account::Account;
use super::ids::{AccountId, AccountKey, UserId};
use super::page_hash::PageHash;

/// Size in bytes of an encoded leaf: two ids of 16, the version of 8, and the hash of 32.
pub const LEAF_BYTES: usize = 72;

/// The state of one account: the end of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// The account.
    pub account: AccountKey,
    /// The version of the account.
    pub version: u64,
    /// The hash of the last page of its journal.
    pub head: PageHash,
}

impl Leaf {
    /// Returns the leaf of an account.
    pub const fn of(account: &Account) -> Self {
        Self { account: account.key, version: account.version, head: account.head }
    }

    /// Encodes the leaf: the ids of user and account, the version in big-endian order, and the hash.
    pub fn encode(&self) -> [u8; LEAF_BYTES] {
        let Self { account, version, head } = self;
        let user = account.user.as_uuid().into_bytes().into_iter();
        let account = account.account.as_uuid().into_bytes();
        let mut bytes = user.chain(account).chain(version.to_be_bytes()).chain(*head.as_bytes());
        std::array::from_fn(|_| bytes.next().expect("the parts have the length of a leaf"))
    }

    /// Decodes the output of [`Self::encode`].
    pub fn decode(bytes: &[u8; LEAF_BYTES]) -> Self {
        let (user, rest) = bytes.split_first_chunk().expect("the leaf is long enough");
        let (account, rest) = rest.split_first_chunk().expect("the leaf is long enough");
        let (version, rest) = rest.split_first_chunk().expect("the leaf is long enough");
        let head = rest.first_chunk().expect("the leaf is long enough");
        let account = AccountKey {
            user: UserId::from_uuid(Uuid::from_bytes(*user)),
            account: AccountId::from_uuid(Uuid::from_bytes(*account)),
        };
        Self { account, version: u64::from_be_bytes(*version), head: PageHash::from_bytes(*head) }
    }
}

/// Encodes a list of leaves, without separators.
pub fn encode_leaves(leaves: &[Leaf]) -> Vec<u8> {
    leaves.iter().flat_map(Leaf::encode).collect()
}

/// Decodes the output of [`encode_leaves`]; `None` if a leaf is incomplete.
pub fn decode_leaves(bytes: &[u8]) -> Option<Vec<Leaf>> {
    let (leaves, rest) = bytes.as_chunks();
    rest.is_empty().then(|| leaves.iter().map(Leaf::decode).collect())
}

/// A SHA-256 hash in an anchor, displayed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The predecessor of the first statement, and the digest of an empty list of parts.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Wraps a hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes)).filter(|hash| hash.to_string() == text)
    }

    /// Appends a part to the list with this digest: returns the hash of the digest and the hash of the part's encoded leaves.
    #[must_use]
    pub fn with_part(self, leaves: &[u8]) -> Self {
        Self::of(&[self.0, Self::of(leaves).0].concat())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

#[cfg(test)]
mod tests;
