//! What never changes about an account, kept in memory: the short key under which the database knows it,
//! and its currency. A posting to an account that was seen before then needs no look-up. That an account
//! does *not* exist is never remembered.

use std::collections::HashMap;

use parking_lot::RwLock;
use uuid::Uuid;

/// Most accounts that are remembered; some 100 bytes each.
const ACCOUNTS_MAX: usize = 1_000_000;

/// How the API names an account: its user and itself.
pub type Name = (Uuid, Uuid);

/// What never changes about an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// How the database names it.
    pub id: i64,
    /// Its currency.
    pub currency: Box<str>,
}

/// The accounts that were seen.
#[derive(Debug, Default)]
pub struct Accounts(RwLock<HashMap<Name, Account>>);

impl Accounts {
    /// An account that was seen before.
    pub fn get(&self, name: Name) -> Option<Account> {
        self.0.read().get(&name).cloned()
    }

    /// Remembers an account.
    pub fn insert(&self, name: Name, account: Account) {
        let mut seen = self.0.write();
        if seen.len() >= ACCOUNTS_MAX {
            // Simple, and rare: they come back at one look-up each.
            seen.clear();
        }
        seen.insert(name, account);
    }
}
