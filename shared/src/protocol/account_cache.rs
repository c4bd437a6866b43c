//! Account rows as they were last seen: for a warm account, posting reads nothing.
//!
//! What it holds may be old. The guard of a commit notices that; whoever finds it out forgets the
//! row here, and reads it anew.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::domain::account::{Account, Versioned};
use crate::domain::ids::AccountKey;

/// Accounts whose row is remembered; some 50 MB at most.
const ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// Remembers account rows; the ones that were not used for longest are forgotten first.
pub struct AccountCache(Mutex<LruCache<AccountKey, Versioned<Account>>>);

impl AccountCache {
    /// The row as it was last seen.
    pub fn get(&self, account: AccountKey) -> Option<Versioned<Account>> {
        self.0.lock().get(&account).cloned()
    }

    /// Remembers a row that was just read or written.
    pub fn put(&self, row: Versioned<Account>) {
        self.0.lock().put(row.value.key, row);
    }

    /// Forgets a row that may be old.
    pub fn forget(&self, account: AccountKey) {
        self.0.lock().pop(&account);
    }
}

impl Default for AccountCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(ACCOUNTS_MAX)))
    }
}
