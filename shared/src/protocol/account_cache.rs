//! A cache of account rows, so that posting on a recently used account reads nothing from the store.
//!
//! A cached row may be outdated. The guard of a commit detects this; the caller then removes the row from the
//! cache and reads it again.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::domain::account::{Account, Versioned};
use crate::domain::ids::AccountKey;

/// Largest number of cached accounts; about 50 MB at most.
const ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// A least-recently-used cache of account rows.
pub struct AccountCache(Mutex<LruCache<AccountKey, Versioned<Account>>>);

impl AccountCache {
    /// Returns the cached row.
    pub fn get(&self, account: AccountKey) -> Option<Versioned<Account>> {
        self.0.lock().get(&account).cloned()
    }

    /// Caches a row that was just read or written.
    pub fn put(&self, row: Versioned<Account>) {
        self.0.lock().put(row.value.key, row);
    }

    /// Removes a row that may be outdated.
    pub fn forget(&self, account: AccountKey) {
        self.0.lock().pop(&account);
    }
}

impl Default for AccountCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(ACCOUNTS_MAX)))
    }
}
