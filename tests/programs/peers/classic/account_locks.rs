//! Locks of accounts: within one process, no balance is read between the read and the write of another posting.
//! Without them, the messages of a busy account would get 412 and be read again, which costs
//! more than waiting. (Between processes, 412 remains possible.)

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Number of locks for all accounts. Two busy accounts rarely share a lock.
const LOCKS: usize = 4096;

/// One lock for each account, shared by few others.
pub struct AccountLocks {
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

/// The lock of an account; it is released when this is dropped.
pub type AccountGuard<'a> = MutexGuard<'a, ()>;

impl AccountLocks {
    /// All locks are free.
    pub fn new() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Waits for the lock of an account, in the order of the calls.
    pub async fn lock(&self, account: Uuid) -> AccountGuard<'_> {
        let hash = usize::try_from(self.hasher.hash_one(account) >> 33).unwrap_or(0);
        let lock = self.locks.get(hash.wrapping_rem(LOCKS)).expect("the remainder is below the length");
        lock.lock().await
    }
}
