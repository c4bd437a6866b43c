//! Postings to one account take turns here, before they take a connection. In the database they could only
//! wait for each other at the account's row, one after the other: there a waiting posting holds a connection
//! that another account could use, and costs a process that goes to sleep and wakes up.
//!
//! This is for speed only. The database keeps the books right also without it, and with other processes.

use tokio::sync::{Mutex, MutexGuard};

/// Many more than postings at once, so that two accounts seldom share one.
const TURNS: u16 = 4096;

/// One turn for each account, or for a few of them.
#[derive(Debug)]
pub struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Turns {
    /// No turns at all: postings to one account meet in the database.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Waits until the postings to this account that came before are done.
    pub async fn take(&self, account: i64) -> Option<MutexGuard<'_, ()>> {
        // Accounts are numbered one after the other, so the remainder spreads them.
        let turn = usize::try_from(account.rem_euclid(i64::from(TURNS))).ok()?;
        Some(self.0.get(turn)?.lock().await)
    }
}
