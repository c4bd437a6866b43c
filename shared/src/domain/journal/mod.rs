//! The journal of an account: one page per commit, immutable, chained by hash.
//!
//! A page contains the hash of the page before it. Reading the chain once therefore detects every changed,
//! removed or swapped entry.

use std::fmt;

use super::ids::{AccountKey, MessageId, Nonce, OrderNumber, PartnerId};
use super::instruction::{Details, Fields, TransactionKind};
use super::money::{Amount, Balance};
use super::time::Timestamp;

/// Largest number of entries in a page. Together with the account row and the page row this makes 100
/// entities, the maximum of one Azure Tables transaction.
pub const PAGE_ENTRIES_MAX: usize = 98;

/// SHA-256 of a page and, through the chain, of all pages before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageHash([u8; 32]);

impl PageHash {
    /// The predecessor hash of the first page.
    pub const GENESIS: Self = Self([0; 32]);

    /// Parses the output of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Wraps 32 bytes that a store returned.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
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

/// One posted transaction: a complete line of the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The position in the journal of the account, from 1, without gaps.
    pub sequence: u64,
    /// The partner that sent the instruction.
    pub partner: PartnerId,
    /// The partner's id of the request.
    pub message: MessageId,
    /// The direction of the money.
    pub kind: TransactionKind,
    /// The amount.
    pub amount: Amount,
    /// Reference, metadata and unknown members of the instruction.
    pub details: Details,
    /// The number that people quote.
    pub order_number: OrderNumber,
    /// The balance right after this entry.
    pub balance_after: Balance,
    /// The time when the transaction was accepted.
    pub accepted_at: Timestamp,
    /// The time when it was posted.
    pub posted_at: Timestamp,
}

impl Entry {
    /// Returns the balance after this entry, given the balance before it; `None` when it is out of range. Panics
    /// when `before` is in another currency.
    pub fn apply_to(&self, before: Balance) -> Option<Balance> {
        match self.kind {
            TransactionKind::Deposit => before.credited(self.amount),
            TransactionKind::Withdrawal => before.debited(self.amount),
        }
    }

    /// Returns a hash of the whole entry and a salt. Audits compare many entries by sums of such hashes; the salt
    /// keeps those sums unpredictable for an attacker who knows the entries.
    pub fn salted_hash(&self, salt: Nonce) -> [u8; 32] {
        let mut fields = Fields::new("postonce entry 1");
        fields.bytes(salt.as_uuid().as_bytes());
        self.hash_into(&mut fields);
        fields.finish()
    }

    /// Returns whether the balance follows from the one before it, if known; all must be in one currency.
    fn adds_up(&self, before: Option<Balance>) -> bool {
        let currency = self.amount.currency();
        currency == self.balance_after.currency()
            && before.is_none_or(|before| {
                currency == before.currency() && self.apply_to(before) == Some(self.balance_after)
            })
    }

    fn hash_into(&self, fields: &mut Fields) {
        let Self {
            sequence,
            partner,
            message,
            kind,
            amount,
            details,
            order_number,
            balance_after,
            accepted_at,
            posted_at,
        } = self;
        fields.bytes(&sequence.to_be_bytes());
        fields.text(partner.as_str());
        fields.bytes(message.as_uuid().as_bytes());
        fields.text(kind.code());
        fields.text(amount.currency().code());
        fields.number(amount.minor_units());
        fields.number(i64::from(details.reference().is_some()));
        fields.text(details.reference().unwrap_or_default());
        fields.number(i64::try_from(details.metadata().len()).unwrap_or(i64::MAX));
        for (name, value) in details.metadata() {
            fields.text(name);
            fields.text(value);
        }
        fields.text(details.unknown_members());
        fields.bytes(&order_number.counter().to_be_bytes());
        fields.number(balance_after.minor_units());
        fields.number(accepted_at.unix_ms());
        fields.number(posted_at.unix_ms());
    }
}

/// The entries of one commit.
///
/// Invariant: 1 to [`PAGE_ENTRIES_MAX`] entries with consecutive sequences from `first_sequence` and balances
/// that add up; `hash` is the hash of all other fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPage {
    /// The account of the journal.
    pub account: AccountKey,
    /// The sequence of the first entry.
    pub first_sequence: u64,
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// The hash of the previous page; [`PageHash::GENESIS`] for the first page.
    pub previous_hash: PageHash,
    /// The hash of this page.
    pub hash: PageHash,
    /// Identifies the commit that wrote the page.
    pub nonce: Nonce,
}

/// A defect of a page that was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageFlaw {
    /// The page has no entries, or too many.
    #[error("the page from {first_sequence} has {count} entries")]
    Size {
        /// The first sequence of the page.
        first_sequence: u64,
        /// The number of entries.
        count: usize,
    },
    /// The sequences are not consecutive.
    #[error("entry {found} is in the place of entry {expected}")]
    Sequence {
        /// The expected sequence.
        expected: u64,
        /// The sequence that was found.
        found: u64,
    },
    /// A balance does not follow from the previous balance and the amount.
    #[error("the balance of entry {sequence} does not add up")]
    Balance {
        /// The sequence of the entry.
        sequence: u64,
    },
    /// The content does not match the hash.
    #[error("the page from {first_sequence} does not match its hash")]
    Hash {
        /// The first sequence of the page.
        first_sequence: u64,
    },
}

impl JournalPage {
    /// Seals entries into a page. Panics when they break the invariant, which [`super::decision`] guarantees.
    pub fn seal(account: AccountKey, entries: Vec<Entry>, previous_hash: PageHash, nonce: Nonce) -> Self {
        let first_sequence = entries.first().expect("a page has an entry").sequence;
        let mut page =
            Self { account, first_sequence, entries, previous_hash, hash: PageHash::GENESIS, nonce };
        if let Err(flaw) = page.check_entries() {
            panic!("sealed an invalid page: {flaw}");
        }
        page.hash = page.content_hash();
        page
    }

    /// Checks the invariant, as far as this page alone allows. Adapters call it for every page that
    /// they read.
    ///
    /// # Errors
    /// The first flaw that is found.
    pub fn check(&self) -> Result<(), PageFlaw> {
        self.check_entries()?;
        let first_sequence = self.first_sequence;
        if self.hash == self.content_hash() { Ok(()) } else { Err(PageFlaw::Hash { first_sequence }) }
    }

    fn check_entries(&self) -> Result<(), PageFlaw> {
        let first_sequence = self.first_sequence;
        let count = self.entries.len();
        if count == 0 || count > PAGE_ENTRIES_MAX {
            return Err(PageFlaw::Size { first_sequence, count });
        }
        let mut before: Option<Balance> = None;
        for (entry, expected) in self.entries.iter().zip(first_sequence..) {
            if entry.sequence != expected {
                return Err(PageFlaw::Sequence { expected, found: entry.sequence });
            }
            if !entry.adds_up(before) {
                return Err(PageFlaw::Balance { sequence: expected });
            }
            before = Some(entry.balance_after);
        }
        Ok(())
    }

    /// Returns the last sequence of the page.
    pub fn last_sequence(&self) -> u64 {
        self.entries.last().map_or(self.first_sequence, |entry| entry.sequence)
    }

    /// Returns the hash of the content; it equals [`Self::hash`] unless one of them was changed later.
    pub fn content_hash(&self) -> PageHash {
        let Self { account, first_sequence, entries, previous_hash, hash: _, nonce } = self;
        let mut fields = Fields::new("postonce journal page 1");
        fields.bytes(account.user.as_uuid().as_bytes());
        fields.bytes(account.account.as_uuid().as_bytes());
        fields.bytes(&first_sequence.to_be_bytes());
        fields.bytes(previous_hash.as_bytes());
        fields.bytes(nonce.as_uuid().as_bytes());
        for entry in entries {
            entry.hash_into(&mut fields);
        }
        PageHash(fields.finish())
    }
}

#[cfg(test)]
mod tests;
