//! The state of an account: balance, status, limits, and the end of its journal.

use std::fmt;
use std::sync::Arc;

use super::ids::AccountKey;
use super::money::{Balance, Currency, OverdraftLimit};
use super::page_hash::PageHash;
use super::rejection::RejectReason;
use super::time::Timestamp;

/// The holder of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Given name.
    pub given_name: String,
    /// Family name.
    pub family_name: String,
}

impl Holder {
    /// Combines the stored names of a holder: `Some(None)` if neither is stored, `None` if only one is, which is invalid.
    pub fn of_names(given_name: Option<String>, family_name: Option<String>) -> Option<Option<Self>> {
        match (given_name, family_name) {
            (Some(given_name), Some(family_name)) => Some(Some(Self { given_name, family_name })),
            (None, None) => Some(None),
            (Some(_), None) | (None, Some(_)) => None,
        }
    }
}

/// Whether an account accepts transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountStatus {
    /// Transactions can be posted.
    Open,
    /// Every transaction is rejected, until the account is opened again. The balance stays.
    Frozen,
    /// Every transaction is rejected. Closing needs a zero balance; opening again is allowed.
    Closed,
}

impl AccountStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Open, Self::Frozen, Self::Closed];

    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Frozen => "frozen",
            Self::Closed => "closed",
        }
    }

    /// Returns the reason for which the account rejects transactions; `None` if it accepts them.
    pub const fn rejects(self) -> Option<RejectReason> {
        match self {
            Self::Open => None,
            Self::Frozen => Some(RejectReason::AccountFrozen),
            Self::Closed => Some(RejectReason::AccountClosed),
        }
    }

    /// Returns the status with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}

/// The state of one account after its latest commit.
///
/// Invariant: `balance` is the sum of entries 1 to `sequence`; `head` is the hash of the last page. A version has one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user and the id of the account.
    pub key: AccountKey,
    /// The currency of the account; never changes.
    pub currency: Currency,
    /// Whether the account accepts transactions.
    pub status: AccountStatus,
    /// The amount by which withdrawals may overdraw the account.
    pub overdraft_limit: OverdraftLimit,
    /// The holder, if one was named.
    pub holder: Option<Holder>,
    /// The time when the account was opened.
    pub opened_at: Timestamp,
    /// The sum of the entries.
    pub balance: Balance,
    /// Incremented by every change of this state; 1 when the account is opened.
    pub version: u64,
    /// The sequence of the latest journal entry; 0 without entries.
    pub sequence: u64,
    /// The hash of the latest journal page.
    pub head: PageHash,
}

impl Account {
    /// Creates an open account of version 1 without entries. [`open`](super::decision::open) adds its first journal page.
    pub fn open(
        key: AccountKey,
        currency: Currency,
        overdraft_limit: OverdraftLimit,
        holder: Option<Holder>,
        opened_at: Timestamp,
    ) -> Self {
        Self {
            key,
            currency,
            status: AccountStatus::Open,
            overdraft_limit,
            holder,
            opened_at,
            balance: Balance::zero(currency),
            version: 1,
            sequence: 0,
            head: PageHash::GENESIS,
        }
    }

    /// Returns the amount that can be withdrawn now: nothing while the account is frozen or closed.
    pub fn available(&self) -> Balance {
        match self.status.rejects() {
            None => self.balance.available(self.overdraft_limit),
            Some(_) => Balance::zero(self.currency),
        }
    }
}

/// The store's identifier of one state of a row: an ETag or a version. Only the adapter that created it interprets it;
/// a guarded write succeeds only while the row is still in this state. Compare for equality only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Revision(Arc<str>);

impl Revision {
    /// Wraps an identifier of the store.
    pub fn new(mark: impl Into<Arc<str>>) -> Self {
        Self(mark.into())
    }

    /// Returns the identifier of the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Revision({})", self.0)
    }
}

/// A value that was read, with the revision that a guarded write must name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// The revision of the row at the time of the read.
    pub revision: Revision,
}
