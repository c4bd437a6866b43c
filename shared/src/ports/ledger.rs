//! Accounts and their transactions.

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::{AccountCommit, Work};
use crate::domain::ids::{AccountKey, Nonce, PartnerId, TransactionKey, UserId};
use crate::domain::instruction::{Fingerprint, Instruction};
use crate::domain::journal::JournalPage;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{Transaction, TransactionStatus};

/// An instruction that asks to be stored under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTransaction {
    /// The key that it is stored under, at most once.
    pub key: TransactionKey,
    /// What the partner asked for.
    pub instruction: Instruction,
    /// When it came.
    pub accepted_at: Timestamp,
    /// Marks this attempt series, unchanged across retries and fallbacks; stored in the row, so
    /// that an unclear insert is recognised as one's own.
    pub nonce: Nonce,
}

/// A transaction as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTransaction {
    /// The transaction.
    pub transaction: Transaction,
    /// The fingerprint of its content, by the rule of the time when it was accepted.
    pub fingerprint: Fingerprint,
    /// The state of its row.
    pub revision: Revision,
    /// What the process remembers about its way to the queue.
    pub marks: Marks,
}

impl StoredTransaction {
    /// The work that is still to be done for it; `None` when it is final.
    pub fn work(&self) -> Option<Work> {
        if self.transaction.status().is_final() {
            return None;
        }
        let Transaction { key, instruction, accepted_at, outcome: _ } = self.transaction.clone();
        Some(Work { key, instruction, accepted_at, revision: self.revision.clone() })
    }
}

/// Notes on an accepted transaction; they have no meaning once it is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Its work lies in the dead letters: repair keeps away from it.
    pub dead_letter: bool,
    /// How often repair enqueued it again.
    pub repairs: u32,
    /// When repair last did so.
    pub repaired_at: Option<Timestamp>,
}

/// What became of the wish to store a transaction.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// It is stored now, and this call stored it.
    Inserted {
        /// The state of its new row.
        revision: Revision,
        /// Whether its work was put on the queue in the same atomic step. Where it was not, the
        /// caller has to send it before it promises anything.
        enqueued: bool,
    },
    /// The key is taken. The caller compares the content.
    Existing(Box<StoredTransaction>),
}

/// Which transactions one call to [`Ledger::accept`] may store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptReach {
    /// Those of one account, at most 100: what such a store changes in one step.
    OneAccount,
    /// Those of any accounts, at most 500: a crowd that is spread out shares one step as well.
    AllAccounts,
}

impl AcceptReach {
    /// Most transactions of one call.
    pub const fn group_max(self) -> usize {
        match self {
            Self::OneAccount => 100,
            Self::AllAccounts => 500,
        }
    }
}

/// What became of a commit.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Everything was written.
    Done {
        /// The state of the account row after this commit; `None` when the adapter knows that the
        /// commit happened but not what the row looks like now.
        revision: Option<Revision>,
    },
    /// Nothing was written: the account or a transaction is not as it was when it was read.
    Stale,
    /// Nothing was written: these transactions are final already. An adapter that cannot tell this
    /// from [`Committed::Stale`] answers with the latter.
    AlreadyFinal(Vec<TransactionKey>),
}

/// The two atomic steps of the protocol, and the reads that they need.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Which transactions one accept may store; always the same.
    fn accept_reach(&self) -> AcceptReach {
        AcceptReach::OneAccount
    }

    /// Stores each transaction under its key, at most once for ever; one outcome each, in order.
    ///
    /// The transactions are within [`Self::accept_reach`], and each key stands once. Whether their
    /// accounts exist is not checked. A fault says nothing about any of them: some may be stored.
    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault>;

    /// Writes the account, the final transactions and the journal page together, or nothing.
    ///
    /// Guards: the account row is as `guard` says, and each transaction row as its revision says
    /// and not final. After a fault the commit may have happened or may still happen.
    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault>;

    /// Reads an account with the revision that a commit must name; `None` when it was never opened.
    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault>;

    /// Reads one transaction; `None` when its key was never accepted.
    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault>;

    /// Replaces the marks of a transaction if it is still accepted and its row is as `revision`
    /// says. `None` when it is not; else the new revision.
    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault>;

    /// Whether the ledger answers at all: one cheap read.
    async fn probe(&self) -> Result<(), StoreFault>;
}

/// What became of the wish to open an account.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// It exists now, and this call made it.
    Created(Versioned<Account>),
    /// It existed before, as it now is.
    Existing(Versioned<Account>),
}

/// Opening, changing and listing accounts.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Stores a new account, at most once per key, in the list of its user as well. The list knows
    /// every account that exists; after a crash it may also know one that does not.
    async fn open(&self, account: &Account) -> Result<Opened, StoreFault>;

    /// Replaces status, overdraft limit and version of the account, if its row is as `guard` says;
    /// `None` when it is not, else the new revision. Balance and journal head stay as they are.
    async fn change(&self, guard: &Revision, after: &Account) -> Result<Option<Revision>, StoreFault>;

    /// The user's accounts after the given one, by account id, at most `limit`.
    async fn list(
        &self,
        user: UserId,
        after: Option<crate::domain::ids::AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault>;
}

/// A page of a listing: what was found, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// What was found, in the listing's order.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end. A page may be short, even empty, and still
    /// not be the last one.
    pub next: Option<String>,
}

impl<T> Listing<T> {
    /// The first `limit` of what is left of a listing. Where more is left, it goes on `after` the last of
    /// them.
    pub fn first_of(
        left: impl IntoIterator<Item = T>,
        limit: usize,
        after: impl FnOnce(&T) -> String,
    ) -> Self {
        let mut left = left.into_iter();
        let items: Vec<T> = left.by_ref().take(limit).collect();
        let next = if left.next().is_some() { items.last().map(after) } else { None };
        Self { items, next }
    }
}

/// Reading what was accepted and posted.
#[async_trait]
pub trait TransactionLog: Send + Sync {
    /// Journal pages in order, from the one that holds the sequence `from` on: enough of them for
    /// `entries` entries, if there are as many. Each page was checked ([`JournalPage::check`]).
    async fn pages(
        &self,
        account: AccountKey,
        from: u64,
        entries: usize,
    ) -> Result<Vec<JournalPage>, StoreFault>;

    /// Transactions of an account in one status, of one partner or of all, in the order of their keys.
    /// `cursor` is the `next` of the page before; it is opaque, and tells nothing of other partners where one
    /// was named. At most `limit`.
    ///
    /// # Errors
    /// [`StoreFault::ForeignCursor`] when the cursor is not one of this listing.
    async fn by_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        partner: Option<&PartnerId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault>;

    /// Accepted transactions of the whole store, in no particular order: what recovery has to look
    /// at. `cursor` as above. At most `limit`.
    async fn accepted(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault>;
}
