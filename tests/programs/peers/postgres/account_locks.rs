//! Postings to the same account wait for each other here, before they take a connection. In the database they would
//! wait for the row of the account: a waiting posting would hold a connection that another account could use, and
//! cost the database a process that sleeps and wakes up.
//!
//! This is only an optimization. The database is correct without it, and with several service processes.

use tokio::sync::{Mutex, MutexGuard};

/// Number of locks: many more than concurrent postings, so that two accounts rarely share one.
const LOCKS: u16 = 4096;

/// One lock for each account, or for a few of them.
#[derive(Debug)]
pub struct AccountLocks(Vec<Mutex<()>>);

impl Default for AccountLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Mutex::new(())).collect())
    }
}

impl AccountLocks {
    /// No locks: postings to the same account wait in the database.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Waits for the earlier postings to this account.
    pub async fn lock(&self, account: i64) -> Option<MutexGuard<'_, ()>> {
        // Accounts are numbered consecutively, so the remainder distributes them.
        let index = usize::try_from(account.rem_euclid(i64::from(LOCKS))).ok()?;
        Some(self.0.get(index)?.lock().await)
    }
}
