//! The journal of an account: one page per commit, never changed, chained by hash.
//!
//! A page names the hash of the page before it, so that a changed, removed or swapped entry is
//! found by reading the chain once.

use std::fmt;

use super::ids::{AccountKey, MessageId, Nonce, OrderNumber, PartnerId};
use super::instruction::{Details, Fields, TransactionKind};
use super::money::{Amount, Balance};
use super::time::Timestamp;

/// Most entries of a page. With the account row and the page itself that makes 100 entities, the
/// most that Azure Tables changes in one step.
pub const PAGE_ENTRIES_MAX: usize = 98;

/// SHA-256 of a page and, through it, of all pages before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageHash([u8; 32]);

impl PageHash {
    /// What the first page names as its predecessor.
    pub const GENESIS: Self = Self([0; 32]);

    /// Reads what [`fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Wraps 32 bytes of a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
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

/// One posted transaction: the whole line of the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the journal of the account, from 1, without gaps.
    pub sequence: u64,
    /// The partner who asked for it.
    pub partner: PartnerId,
    /// The partner's id of it.
    pub message: MessageId,
    /// Which way the money moved.
    pub kind: TransactionKind,
    /// How much.
    pub amount: Amount,
    /// What else was told.
    pub details: Details,
    /// The number that people quote.
    pub order_number: OrderNumber,
    /// The balance right after it.
    pub balance_after: Balance,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it was posted.
    pub posted_at: Timestamp,
}

impl Entry {
    /// The balance after this entry, when `before` was the balance; `None` out of range. Panics when
    /// `before` is in another currency.
    pub fn apply_to(&self, before: Balance) -> Option<Balance> {
        match self.kind {
            TransactionKind::Deposit => before.credited(self.amount),
            TransactionKind::Withdrawal => before.debited(self.amount),
        }
    }

    /// A hash of the whole line that depends on the salt as well: for comparing many lines by sums of
    /// hashes, where nobody who knows the lines may be able to tell the sums.
    pub fn salted_hash(&self, salt: Nonce) -> [u8; 32] {
        let mut fields = Fields::new("postonce entry 1");
        fields.bytes(salt.as_uuid().as_bytes());
        self.hash_into(&mut fields);
        fields.finish()
    }

    /// Whether it follows from the balance before it, as far as that is known; all in one currency.
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
/// Invariant: 1 to [`PAGE_ENTRIES_MAX`] entries, whose sequences follow one another from
/// `first_sequence` and whose balances add up; `hash` is the hash of all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPage {
    /// The account whose journal it is.
    pub account: AccountKey,
    /// The sequence of its first entry.
    pub first_sequence: u64,
    /// Its entries, in order.
    pub entries: Vec<Entry>,
    /// The hash of the page before; [`PageHash::GENESIS`] for the first.
    pub previous_hash: PageHash,
    /// Its own hash.
    pub hash: PageHash,
    /// Marks the commit that wrote it.
    pub nonce: Nonce,
}

/// What is wrong with a page that was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageFlaw {
    /// No entry, or too many.
    #[error("the page from {first_sequence} has {count} entries")]
    Size {
        /// Where the page starts.
        first_sequence: u64,
        /// How many entries it has.
        count: usize,
    },
    /// A sequence that does not follow.
    #[error("entry {found} stands where {expected} should")]
    Sequence {
        /// The sequence that should stand there.
        expected: u64,
        /// The one that does.
        found: u64,
    },
    /// A balance that does not follow from the one before and the amount.
    #[error("entry {sequence} does not add up")]
    Balance {
        /// The entry.
        sequence: u64,
    },
    /// The content is not what was hashed.
    #[error("the page from {first_sequence} does not match its hash")]
    Hash {
        /// Where the page starts.
        first_sequence: u64,
    },
}

impl JournalPage {
    /// Seals entries into a page. Panics when they break the invariant: the decision makes them.
    pub fn seal(account: AccountKey, entries: Vec<Entry>, previous_hash: PageHash, nonce: Nonce) -> Self {
        let first_sequence = entries.first().expect("a page has an entry").sequence;
        let mut page =
            Self { account, first_sequence, entries, previous_hash, hash: PageHash::GENESIS, nonce };
        page.hash = page.content_hash();
        if let Err(flaw) = page.check() {
            panic!("sealed an unsound page: {flaw}");
        }
        page
    }

    /// Checks the invariant, as far as the page alone tells. Adapters call it on every page that
    /// they read back.
    ///
    /// # Errors
    /// The first flaw that was found.
    pub fn check(&self) -> Result<(), PageFlaw> {
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
        if self.hash == self.content_hash() { Ok(()) } else { Err(PageFlaw::Hash { first_sequence }) }
    }

    /// The last sequence of the page.
    pub fn last_sequence(&self) -> u64 {
        self.entries.last().map_or(self.first_sequence, |entry| entry.sequence)
    }

    /// The hash of what stands in it: [`Self::hash`], unless somebody changed the one or the other.
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
