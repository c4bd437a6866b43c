//! An account: what it holds, what it may do, and where its journal ends.

use std::fmt;
use std::sync::Arc;

use super::ids::AccountKey;
use super::journal::PageHash;
use super::money::{Balance, Currency, OverdraftLimit};
use super::time::Timestamp;

/// Longest given or family name, in characters. ISO 20022 `Max140Text`.
pub const NAME_CHARS_MAX: usize = 140;

/// Who holds the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Given name, 1 to 140 characters.
    pub given_name: String,
    /// Family name, 1 to 140 characters.
    pub family_name: String,
}

/// Whether an account takes part in the business of the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountStatus {
    /// Money moves.
    Open,
    /// Every transaction is rejected. Closing needs a zero balance; opening again is allowed.
    Closed,
}

impl AccountStatus {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }

    /// The status with that code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Open, Self::Closed].into_iter().find(|status| status.code() == code)
    }
}

/// The state of one account after its latest commit.
///
/// Invariant: `balance` is the sum of the entries 1 to `sequence`, and `head` is the hash of the
/// page that ends with entry `sequence`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub key: AccountKey,
    /// Never changes.
    pub currency: Currency,
    /// Open or closed.
    pub status: AccountStatus,
    /// How far below zero withdrawals may go.
    pub overdraft_limit: OverdraftLimit,
    /// Who holds it, if that was told.
    pub holder: Option<Holder>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// What its entries add up to.
    pub balance: Balance,
    /// Grows by one with every change of this state; 1 when opened.
    pub version: u64,
    /// The sequence of its latest journal entry; 0 without entries.
    pub sequence: u64,
    /// The hash of its latest journal page.
    pub head: PageHash,
}

impl Account {
    /// A new, empty, open account.
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

    /// What can be withdrawn now.
    pub fn available(&self) -> Balance {
        self.balance.available(self.overdraft_limit)
    }

    /// The account with other terms, one version later.
    ///
    /// # Errors
    /// [`ClosingWithBalance`] when it would be closed while money is left or owed.
    pub fn changed(
        &self,
        overdraft_limit: OverdraftLimit,
        status: AccountStatus,
    ) -> Result<Self, ClosingWithBalance> {
        if status == AccountStatus::Closed && !self.balance.is_zero() {
            return Err(ClosingWithBalance);
        }
        let version = self.version.checked_add(1).expect("no account changes 2^64 times");
        Ok(Self { overdraft_limit, status, version, ..self.clone() })
    }
}

/// An account can be closed only when its balance is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an account can be closed only when its balance is zero")]
pub struct ClosingWithBalance;

/// The store's own mark of one state of a row: an ETag, or a version. Opaque to all but the adapter
/// that made it; a write that names it happens only while the row is still in that state. Compare
/// for equality only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Revision(Arc<str>);

impl Revision {
    /// Wraps the store's mark.
    pub fn new(mark: impl Into<Arc<str>>) -> Self {
        Self(mark.into())
    }

    /// The store's mark.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Revision({})", self.0)
    }
}

/// A value as it was read, with the revision that a guarded write must name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    /// What was read.
    pub value: T,
    /// The state of the row at that moment.
    pub revision: Revision,
}
