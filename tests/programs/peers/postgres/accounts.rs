//! A cache of the immutable data of accounts: the short key of the account in the database, and its currency. A
//! posting to a cached account needs no look-up. That an account does *not* exist is
//! not cached.

use std::collections::HashMap;

use parking_lot::RwLock;
use uuid::Uuid;

/// Most cached accounts, of some 100 bytes each.
const ACCOUNTS_MAX: usize = 1_000_000;

/// The name of an account in the API: user id and account id.
pub type Name = (Uuid, Uuid);

/// The immutable data of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its key in the database.
    pub id: i64,
    /// Its currency.
    pub currency: Box<str>,
}

/// The cached accounts.
#[derive(Debug, Default)]
pub struct Accounts(RwLock<HashMap<Name, Account>>);

impl Accounts {
    /// A cached account.
    pub fn get(&self, name: Name) -> Option<Account> {
        self.0.read().get(&name).cloned()
    }

    /// Caches an account.
    pub fn insert(&self, name: Name, account: Account) {
        let mut seen = self.0.write();
        if seen.len() >= ACCOUNTS_MAX {
            // Clearing the cache is simple and rare; each account then costs one look-up.
            seen.clear();
        }
        seen.insert(name, account);
    }
}
