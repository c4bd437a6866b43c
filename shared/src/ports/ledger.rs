//! Accounts and their transactions.

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::fault::StoreFault;
use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::{AccountCommit, AccountDecision, Submission, UnknownAccountCommit, Work};
use crate::domain::ids::{AccountKey, Nonce, PartnerId, TransactionKey, UserId};
use crate::domain::instruction::Fingerprint;
use crate::domain::journal::JournalPage;
use crate::domain::origin::{Delivered, Origin};
use crate::domain::time::Timestamp;
use crate::domain::transaction::{Outcome, TransactionStatus};

/// Number of transactions that are read concurrently.
pub(crate) const READS_AT_ONCE: usize = 16;

/// A transaction as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTransaction {
    /// The submission. The trace of its request is not stored.
    pub submission: Submission,
    /// The final result; `None` while the transaction is accepted.
    pub outcome: Option<Outcome>,
    /// The fingerprint of the content, by the hash rule at the time of acceptance.
    pub fingerprint: Fingerprint,
    /// The revision of its row.
    pub revision: Revision,
    /// The marks set by dead-letter handling and repair.
    pub marks: Marks,
    /// The delivery that led to the decision; `None` if the transaction was decided without the queue.
    pub delivered: Option<Delivered>,
}

impl StoredTransaction {
    /// Returns the stored form of a newly inserted submission, with its outcome if it already has one.
    pub fn inserted(submission: Submission, revision: Revision, outcome: Option<Outcome>) -> Self {
        let origin = Origin { traceparent: None, ..submission.origin };
        Self {
            fingerprint: submission.instruction.fingerprint(),
            submission: Submission { origin, ..submission },
            outcome,
            revision,
            marks: Marks::default(),
            delivered: None,
        }
    }

    /// Returns the current status.
    pub fn status(&self) -> TransactionStatus {
        TransactionStatus::of(self.outcome.as_ref())
    }

    /// Returns the remaining work; `None` if the transaction is final.
    pub fn work(&self) -> Option<Work> {
        let work =
            || Work { submission: self.submission.clone(), row: self.revision.clone(), delivered: None };
        self.outcome.is_none().then(work)
    }
}

/// Marks on an accepted transaction. They have no meaning once it is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The work is in the dead letters, so repair skips the transaction.
    pub dead_letter: bool,
    /// How often repair enqueued the work again.
    pub repairs: u32,
    /// The time of the last repair.
    pub repaired_at: Option<Timestamp>,
}

/// Result of storing a transaction.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// This call stored the transaction.
    Inserted {
        /// The revision of the new row.
        revision: Revision,
        /// Whether the same atomic step also enqueued the work. If not, the caller must send the work before it confirms
        /// anything to the partner.
        enqueued: bool,
    },
    /// The key already exists. The caller must compare the content.
    Existing(Box<StoredTransaction>),
}

/// Which transactions one call of [`Ledger::accept`] may store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptGrouping {
    /// Transactions of one account, at most 100 (the limit of a batch in Azure Tables).
    OneAccount,
    /// Transactions of any accounts, at most 500, so that requests for many accounts share one step.
    AllAccounts,
}

impl AcceptGrouping {
    /// Returns the maximum number of transactions in one call.
    pub const fn group_max(self) -> usize {
        match self {
            Self::OneAccount => 100,
            Self::AllAccounts => 500,
        }
    }
}

/// Result of a commit.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Everything was written.
    Done {
        /// The revision of the account row after this commit; `None` if the adapter knows that the commit happened, but
        /// not the current revision.
        revision: Option<Revision>,
    },
    /// Nothing was written: the account changed after it was read, or the adapter cannot determine which row did.
    Stale,
    /// Nothing was written: these accepted transactions became final or changed otherwise after they were read. Contains
    /// at least one key; others may have changed as well.
    RowsChanged(Vec<TransactionKey>),
    /// Nothing was written: rows with these keys, which the commit was to insert, already exist. Contains at least one
    /// key; others may exist as well. If other guards failed too, another variant may be returned.
    Taken(Vec<TransactionKey>),
    /// Nothing was written: the account has accepted transactions, which must be decided first
    /// ([`AccountCommit::after_accepted`]).
    Early,
}

/// The two atomic steps of the protocol, and the reads that they need.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Returns which transactions one call of [`Self::accept`] may store. The value never changes.
    fn accept_grouping(&self) -> AcceptGrouping {
        AcceptGrouping::OneAccount
    }

    /// Returns whether every write of this process takes effect before its later writes or never, even if its caller is
    /// cancelled. The value never changes.
    fn writes_in_order(&self) -> bool {
        false
    }

    /// Returns whether a commit checks [`AccountCommit::after_accepted`]. The value never changes.
    fn checks_order(&self) -> bool {
        false
    }

    /// Stores each transaction under its key, at most once per key. Returns one outcome per transaction, in order.
    ///
    /// The transactions must be within [`Self::accept_grouping`] and have distinct keys. The existence of their accounts
    /// is not checked. After a fault the state of each transaction is unknown: some may be stored.
    ///
    /// The nonce identifies this call and its retries. It is stored in the rows, so that the caller recognizes its own
    /// inserts after an unclear outcome. The trace of a submission is only sent with the work, if the same step enqueues
    /// it.
    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault>;

    /// Writes the account, the finalized and inserted transactions and the journal page atomically.
    ///
    /// Guards: the account row has the revision `guard`, each stored transaction has its revision and is not final, and no
    /// row has the key of an inserted one. After a fault the commit may have happened or may still happen. A repeated
    /// commit has no effect. It is reported as done only if its rows contain its nonce and are final.
    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault>;

    /// Inserts rejected transactions of an account that does not exist, all or none. Only their keys are guarded, not the
    /// absence of the account. Returns [`Committed::Done`] or [`Committed::Taken`]; otherwise like [`Self::commit`].
    async fn reject_unknown(&self, commit: &UnknownAccountCommit) -> Result<Committed, StoreFault>;

    /// Reads an account with the revision that a commit must name; `None` if it was never opened.
    async fn account(&self, key: AccountKey) -> Result<Option<Versioned<Account>>, StoreFault>;

    /// Reads one transaction; `None` if its key was never accepted.
    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault>;

    /// Reads several transactions of one account, in the order of the keys. Otherwise like [`Self::transaction`].
    async fn transactions(
        &self,
        keys: &[TransactionKey],
    ) -> Result<Vec<Option<StoredTransaction>>, StoreFault> {
        let reads: Vec<_> = keys.iter().map(|key| self.transaction(key)).collect();
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    /// Replaces the marks of a transaction, and returns the new revision. Returns `None` if the transaction is no longer
    /// accepted, or its row does not have this revision.
    async fn mark(
        &self,
        key: &TransactionKey,
        revision: &Revision,
        marks: Marks,
    ) -> Result<Option<Revision>, StoreFault>;

    /// Checks with one cheap read that the ledger is available.
    async fn probe(&self) -> Result<(), StoreFault>;

    /// Returns the steps for many accounts at once, if they are cheaper than steps for each account. The value never
    /// changes.
    fn joint_steps(&self) -> Option<&dyn JointSteps> {
        None
    }
}

/// Ledger steps for many accounts at once.
#[async_trait]
pub trait JointSteps: Send + Sync {
    /// Returns the maximum number of accounts in one step. The value never changes.
    fn accounts_max(&self) -> usize;

    /// Reads accounts in the order of the keys. Otherwise like [`Ledger::account`].
    async fn accounts(&self, keys: &[AccountKey]) -> Result<Vec<Option<Versioned<Account>>>, StoreFault>;

    /// Writes commits on different accounts, each like [`Ledger::commit`]. A commit whose guards fail does not prevent the
    /// others. After a fault each of them may have happened or may still happen.
    async fn commit_all(&self, commits: &[AccountCommit]) -> Result<Vec<Committed>, StoreFault>;
}

/// Result of opening an account.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// This call created the account.
    Created(Versioned<Account>),
    /// The account already existed. Contains its current state.
    Existing(Versioned<Account>),
}

/// Opens, changes and lists accounts.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Stores a new account and its page, at most once per key, and adds it to the list of its user. The list contains
    /// every account that exists; after a crash it may also contain one that does not.
    async fn open(&self, opening: &AccountDecision) -> Result<Opened, StoreFault>;

    /// Replaces status, overdraft limit and version of the account and the head of its journal, atomically with the page
    /// of the change. Returns the new revision; `None` if the row does not have the revision `guard`. The balance does not
    /// change.
    async fn change(
        &self,
        guard: &Revision,
        change: &AccountDecision,
    ) -> Result<Option<Revision>, StoreFault>;

    /// Returns at most `limit` accounts of the user with ids greater than `after`, in id order.
    async fn list(
        &self,
        user: UserId,
        after: Option<crate::domain::ids::AccountId>,
        limit: usize,
    ) -> Result<Vec<Account>, StoreFault>;
}

/// A page of a listing, and the cursor of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// The items, in the order of the listing.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end. A page can have fewer items than the limit, or none, without being
    /// the last one.
    pub next: Option<String>,
}

impl<T> Listing<T> {
    /// Takes the first `limit` of the remaining items. If more remain, `after` computes the next cursor from the last item
    /// taken.
    pub fn first_of(
        remaining: impl IntoIterator<Item = T>,
        limit: usize,
        after: impl FnOnce(&T) -> String,
    ) -> Self {
        let mut remaining = remaining.into_iter();
        let items: Vec<T> = remaining.by_ref().take(limit).collect();
        let next = if remaining.next().is_some() { items.last().map(after) } else { None };
        Self { items, next }
    }

    /// Reads pages until one has items. Returns that page, or the last page, which is then empty.
    ///
    /// # Errors
    /// [`StoreFault`] when a page cannot be read.
    pub async fn first_with_items<P>(page: impl Fn(Option<String>) -> P) -> Result<Self, StoreFault>
    where
        P: Future<Output = Result<Self, StoreFault>>,
    {
        let mut listing = page(None).await?;
        while listing.items.is_empty()
            && let Some(next) = listing.next
        {
            listing = page(Some(next)).await?;
        }
        Ok(listing)
    }
}

/// Reads accepted and posted transactions.
#[async_trait]
pub trait TransactionLog: Send + Sync {
    /// Returns journal pages in order, starting with the page that contains the sequence `from`. They contain at least
    /// `entries` entries, or all remaining ones. Each page has been checked ([`JournalPage::check`]).
    async fn pages(
        &self,
        account: AccountKey,
        from: u64,
        entries: usize,
    ) -> Result<Vec<JournalPage>, StoreFault>;

    /// Returns at most `limit` journal pages without entries, in order, starting at the version `from`. Each page has been
    /// checked.
    async fn decision_pages(
        &self,
        account: AccountKey,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalPage>, StoreFault>;

    /// Returns at most `limit` transactions of an account in one status, of one partner or of all, in key order. `cursor`
    /// is the `next` of the previous page. It is opaque. In a listing of one partner, it contains no information about
    /// other partners.
    ///
    /// # Errors
    /// [`StoreFault::ForeignCursor`] when the cursor does not belong to this listing.
    async fn by_status(
        &self,
        account: AccountKey,
        status: TransactionStatus,
        partner: Option<&PartnerId>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<StoredTransaction>, StoreFault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_empty_page_is_not_the_end_of_a_listing() {
        let pages = |last: Option<u8>| {
            move |cursor: Option<String>| async move {
                Ok(match cursor {
                    None => Listing { items: Vec::new(), next: Some("last".to_owned()) },
                    Some(_) => Listing { items: last.into_iter().collect(), next: None },
                })
            }
        };
        assert_eq!(Listing::first_with_items(pages(Some(1))).await.unwrap().items, [1]);
        assert_eq!(Listing::first_with_items(pages(None)).await.unwrap().items, [0_u8; 0]);
    }
}
