//! Turns on the balances: within one process nobody reads a balance between another's read and
//! write of it. Without them the messages of a busy account meet 412 and read again, which costs
//! more than waiting. (Between processes the 412 remains.)

use std::hash::{BuildHasher as _, RandomState};

use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// How many locks the accounts share. Two busy accounts rarely meet on one.
const LOCKS: usize = 4096;

/// One lock for each of the accounts, shared by few others.
pub struct Turns {
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

/// The turn of one message; it ends when this is dropped.
pub type Turn<'a> = MutexGuard<'a, ()>;

impl Turns {
    /// Everybody's turn is free.
    pub fn new() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    /// Waits for the turn on an account, in the order of asking.
    pub async fn of(&self, account: Uuid) -> Turn<'_> {
        let hash = usize::try_from(self.hasher.hash_one(account) >> 33).unwrap_or(0);
        let lock = self.locks.get(hash.wrapping_rem(LOCKS)).expect("the remainder is below the length");
        lock.lock().await
    }
}
