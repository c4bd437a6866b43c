//! A cache of account rows, so that posting on a recently used account reads nothing from the store.
//!
//! A cached row may be outdated; the guard of a commit detects this. A refused commit costs two operations, a read only
//! one. After a refused commit, the row is therefore read before each commit, until a read finds the row that this
//! process last wrote. If two processes take turns on an account, each posting costs a read and a commit.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::domain::account::{Account, Revision, Versioned};
use crate::domain::decision::AccountCommit;
use crate::domain::ids::AccountKey;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{JointSteps, Ledger};

/// Largest number of cached accounts; about 50 MB at most.
const ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// A least-recently-used cache of account rows.
pub struct AccountCache(Mutex<LruCache<AccountKey, Cached>>);

/// An account row as this process last read or wrote it.
struct Cached {
    row: Versioned<Account>,
    /// Whether another process has changed the account since, or is expected to.
    is_stale: bool,
}

impl AccountCache {
    /// Returns the row of an account from the cache or the ledger; `None` if the account does not exist.
    ///
    /// # Errors
    /// [`StoreFault`] when the ledger cannot be read.
    pub async fn load(
        &self,
        ledger: &dyn Ledger,
        account: AccountKey,
    ) -> Result<Option<Versioned<Account>>, StoreFault> {
        let cached = self.0.lock().get(&account).filter(|cached| !cached.is_stale).map(|it| it.row.clone());
        if cached.is_some() {
            return Ok(cached);
        }
        let read = ledger.account(account).await?;
        if let Some(row) = &read {
            self.put_read(row.clone());
        }
        Ok(read)
    }

    /// Returns the rows of the existing accounts among `accounts`, with at most one read of the ledger.
    ///
    /// # Errors
    /// [`StoreFault`] when the ledger cannot be read.
    pub async fn load_all(
        &self,
        ledger: &dyn JointSteps,
        accounts: &[AccountKey],
    ) -> Result<BTreeMap<AccountKey, Versioned<Account>>, StoreFault> {
        let mut rows = BTreeMap::new();
        {
            let mut cache = self.0.lock();
            for account in accounts {
                if let Some(cached) = cache.get(account).filter(|cached| !cached.is_stale) {
                    rows.insert(*account, cached.row.clone());
                }
            }
        }
        let missing: Vec<AccountKey> =
            accounts.iter().filter(|account| !rows.contains_key(*account)).copied().collect();
        if !missing.is_empty() {
            for row in ledger.accounts(&missing).await?.into_iter().flatten() {
                self.put_read(row.clone());
                rows.insert(row.value.key, row);
            }
        }
        Ok(rows)
    }

    /// Caches a row that was just read.
    pub fn put_read(&self, row: Versioned<Account>) {
        let mut rows = self.0.lock();
        let before = rows.peek(&row.value.key);
        let is_stale = before.is_some_and(|cached| cached.is_stale && cached.row.revision != row.revision);
        rows.put(row.value.key, Cached { row, is_stale });
    }

    /// Caches the row that a commit of this process wrote. Forgets the row if the store did not return its revision.
    pub fn put_written(&self, commit: &AccountCommit, revision: Option<Revision>) {
        let Some(revision) = revision else { return self.forget(commit.account()) };
        let row = Versioned { value: commit.after.clone(), revision };
        let mut rows = self.0.lock();
        let is_stale = rows.peek(&row.value.key).is_some_and(|cached| cached.is_stale);
        rows.put(row.value.key, Cached { row, is_stale });
    }

    /// Records that a commit on the row was refused, so that the row is read before the next commit.
    pub fn mark_stale(&self, account: AccountKey) {
        if let Some(cached) = self.0.lock().get_mut(&account) {
            cached.is_stale = true;
        }
    }

    /// Removes a row after a write with an unknown outcome.
    pub fn forget(&self, account: AccountKey) {
        self.0.lock().pop(&account);
    }
}

impl Default for AccountCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(ACCOUNTS_MAX)))
    }
}
