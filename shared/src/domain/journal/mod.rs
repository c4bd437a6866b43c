//! The journal of an account: one page per decision of the bank, immutable, chained by hash.
//!
//! A page contains the hash of the previous page, so that one pass over the chain detects every changed, removed or
//! swapped entry. Pages with entries are found by their first sequence. Pages without entries, whose decisions move no
//! money, are found by the version of the account. Each version of an account has one page.

mod decided;
mod decision_fields;
mod link;

pub(super) use decided::REJECTION_RULE;
pub use decided::{Decided, Rejection};
pub(super) use decision_fields::DecisionFields;
pub use link::{PageLink, digest_of};

pub use super::page_hash::PageHash;
use super::page_hash::first_half;

use super::account::Account;
use super::ids::{AccountKey, MessageId, Nonce, OrderNumber, PartnerId};
use super::instruction::{Details, Fields, TransactionKind};
use super::money::{Amount, Balance};
use super::time::Timestamp;

/// Largest number of decisions in a page. Together with the account row and the page row these are 100 entities, the
/// maximum of one Azure Tables transaction.
pub const PAGE_ENTRIES_MAX: usize = 98;

/// The name of the rule by which a posting is hashed.
pub(super) const POSTING_RULE: &str = "postonce posting 1";

/// A posted transaction: one complete line of the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The position in the journal of the account, from 1, without gaps.
    pub sequence: u64,
    /// The partner that sent the instruction.
    pub partner: PartnerId,
    /// The id that the partner gave the request.
    pub message: MessageId,
    /// The direction of the money.
    pub kind: TransactionKind,
    /// The amount.
    pub amount: Amount,
    /// Reference, metadata and unknown members of the instruction.
    pub details: Details,
    /// The number of the posting, for use by people.
    pub order_number: OrderNumber,
    /// The balance right after this entry.
    pub balance_after: Balance,
    /// The time when the transaction was accepted.
    pub accepted_at: Timestamp,
    /// The time when it was posted.
    pub posted_at: Timestamp,
}

impl Entry {
    /// Returns the balance after this entry; `None` if it is out of range. Panics if `before` is in another currency.
    pub fn apply_to(&self, before: Balance) -> Option<Balance> {
        match self.kind {
            TransactionKind::Deposit => before.credited(self.amount),
            TransactionKind::Withdrawal => before.debited(self.amount),
        }
    }

    /// Returns the first 128 bits of a hash over the entry and a salt. Audits compare many entries by sums of such
    /// hashes; the salt makes these sums unpredictable for an attacker who knows the entries.
    pub fn salted(&self, salt: Nonce) -> u128 {
        let mut fields = Fields::new("postonce entry 1");
        fields.bytes(salt.as_uuid().as_bytes());
        self.list_fields(&mut fields);
        first_half(fields.finish())
    }

    /// Returns whether the amount, the balance and the known balance before the entry have one currency and add up.
    fn adds_up(&self, before: Option<Balance>) -> bool {
        let currency = self.amount.currency();
        currency == self.balance_after.currency()
            && before.is_none_or(|before| {
                currency == before.currency() && self.apply_to(before) == Some(self.balance_after)
            })
    }

    /// Returns the hash of the entry by the rule for postings.
    pub fn digest(&self) -> [u8; 32] {
        let mut fields = Fields::new(POSTING_RULE);
        self.list_fields(&mut fields);
        fields.finish()
    }

    /// Adds all fields to `fields`, in the order of the hash.
    pub(in crate::domain) fn list_fields(&self, fields: &mut impl DecisionFields) {
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
        fields.counter("sequence", *sequence);
        fields.text("partner", partner.as_str());
        fields.bytes("message_id", message.as_uuid().as_bytes());
        fields.text("type", kind.code());
        fields.text("currency", amount.currency().code());
        fields.number("amount_minor_units", amount.minor_units());
        fields.number("has_reference", i64::from(details.reference().is_some()));
        fields.text("reference", details.reference().unwrap_or_default());
        fields.number("metadata_count", i64::try_from(details.metadata().len()).unwrap_or(i64::MAX));
        for (name, value) in details.metadata() {
            fields.text("metadata_name", name);
            fields.text("metadata_value", value);
        }
        fields.text("unknown_members", details.unknown_members());
        fields.counter("order_number_counter", order_number.counter());
        fields.number("balance_after_minor_units", balance_after.minor_units());
        fields.number("accepted_at_ms", accepted_at.unix_ms());
        fields.number("posted_at_ms", posted_at.unix_ms());
    }
}

/// The decisions of one commit, the opening of an account, or a change of its terms.
///
/// Invariant: 1 to [`PAGE_ENTRIES_MAX`] entries and other decisions; the entries have consecutive sequences from
/// `first_sequence` and balances that add up; `hash` is the hash of all other fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPage {
    /// The account of the journal.
    pub account: AccountKey,
    /// The version of the account after the decisions.
    pub version: u64,
    /// The sequence of the first entry; without entries, the sequence of the next entry of the journal.
    pub first_sequence: u64,
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// The decisions that moved no money, in order.
    pub decided: Vec<Decided>,
    /// The hash of the previous page; [`PageHash::GENESIS`] in the first page.
    pub previous_hash: PageHash,
    /// The hash of this page, which the next page contains.
    pub hash: PageHash,
    /// Identifies the commit that wrote the page.
    pub nonce: Nonce,
}

/// A defect of a page that was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalPageError {
    /// The page has no decisions, or too many.
    #[error("the page from {first_sequence} has {count} entries and other decisions")]
    Size {
        /// The first sequence of the page.
        first_sequence: u64,
        /// The number of entries and other decisions.
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
    /// Seals the decisions that led to this state of an account (its head is not used) into a page after the one with
    /// the hash `previous_hash`. Panics if they break the invariant, which [`super::decision`] guarantees.
    pub fn seal(
        after: &Account,
        entries: Vec<Entry>,
        decided: Vec<Decided>,
        (previous_hash, nonce): (PageHash, Nonce),
    ) -> Self {
        let next = after.sequence.checked_add(1).expect("no account has 2^64 entries");
        let first_sequence = entries.first().map_or(next, |entry| entry.sequence);
        let (account, version, hash) = (after.key, after.version, PageHash::GENESIS);
        let mut page =
            Self { account, version, first_sequence, entries, decided, previous_hash, hash, nonce };
        if let Err(flaw) = page.check_content() {
            panic!("sealed an invalid page: {flaw}");
        }
        page.hash = page.content_hash();
        page
    }

    /// Checks the part of the invariant that concerns this page alone. Adapters check every page that they read.
    ///
    /// # Errors
    /// The first flaw.
    pub fn check(&self) -> Result<(), JournalPageError> {
        self.check_content()?;
        let first_sequence = self.first_sequence;
        if self.hash == self.content_hash() { Ok(()) } else { Err(JournalPageError::Hash { first_sequence }) }
    }

    fn check_content(&self) -> Result<(), JournalPageError> {
        let first_sequence = self.first_sequence;
        let count = self.count();
        if count == 0 || count > PAGE_ENTRIES_MAX {
            return Err(JournalPageError::Size { first_sequence, count });
        }
        let mut before: Option<Balance> = None;
        for (entry, expected) in self.entries.iter().zip(first_sequence..) {
            if entry.sequence != expected {
                return Err(JournalPageError::Sequence { expected, found: entry.sequence });
            }
            if !entry.adds_up(before) {
                return Err(JournalPageError::Balance { sequence: expected });
            }
            before = Some(entry.balance_after);
        }
        Ok(())
    }

    /// Returns whether no page is between a page of `earlier_version` and this page, which then must contain its hash.
    pub fn directly_follows(&self, earlier_version: u64) -> bool {
        earlier_version.checked_add(1) == Some(self.version)
    }

    /// Returns the number of entries and other decisions.
    pub const fn count(&self) -> usize {
        self.entries.len().saturating_add(self.decided.len())
    }

    /// Returns the sequence of the last entry; without entries, of the last entry before the page.
    pub fn last_sequence(&self) -> u64 {
        self.entries.last().map_or(self.first_sequence.saturating_sub(1), |entry| entry.sequence)
    }

    /// Returns the keys of the rejected transactions, in order.
    pub fn rejected_keys(&self) -> impl Iterator<Item = (&PartnerId, MessageId)> {
        self.decided.iter().filter_map(|decided| match decided {
            Decided::Rejected(rejection) => Some((&rejection.partner, rejection.message)),
            Decided::Opened { .. } | Decided::TermsChanged { .. } => None,
        })
    }

    /// Computes the hash of the content. It differs from [`Self::hash`] if the page was changed after it was sealed.
    pub fn content_hash(&self) -> PageHash {
        self.link().hash(self.account)
    }

    /// Returns the position of the page in the chain of all decisions.
    pub fn link(&self) -> PageLink {
        let Self { version, first_sequence, previous_hash, nonce, .. } = *self;
        let decisions = digest_of(&self.decision_digests());
        PageLink { version, first_sequence, previous_hash, nonce, decisions }
    }

    /// Returns the digest of each decision: the entries first, then the other decisions.
    pub fn decision_digests(&self) -> Vec<[u8; 32]> {
        let entries = self.entries.iter().map(Entry::digest);
        entries.chain(self.decided.iter().map(Decided::digest)).collect()
    }
}

#[cfg(test)]
mod tests;
