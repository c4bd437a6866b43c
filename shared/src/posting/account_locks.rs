//! Serializes posting on an account within a process, because each conflict of its receivers would cost a read and a
//! commit. Other processes are not excluded; the guards of the commit detect their changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::domain::ids::AccountKey;

type Locks = Mutex<BTreeMap<AccountKey, Arc<tokio::sync::Mutex<()>>>>;

/// Locks by account. Clones share the same locks.
#[derive(Debug, Clone, Default)]
pub struct AccountLocks(Arc<Locks>);

/// A lock on an account, or the wait for it. Dropping it ends either.
#[derive(Debug)]
pub struct AccountLock {
    account: AccountKey,
    /// `None` during the wait, and during drop.
    guard: Option<OwnedMutexGuard<()>>,
    locks: Arc<Locks>,
}

impl AccountLocks {
    /// Waits for the lock on an account, in the order of the calls.
    pub async fn take(&self, account: AccountKey) -> AccountLock {
        let lock = {
            let mut locks = self.0.lock();
            Arc::clone(locks.entry(account).or_default())
        };
        let mut waiting = AccountLock { account, guard: None, locks: Arc::clone(&self.0) };
        waiting.guard = Some(lock.lock_owned().await);
        waiting
    }
}

impl Drop for AccountLock {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        drop(self.guard.take());
        // Waiting tasks hold a reference too. No task can get a new one while the map is locked.
        if locks.get(&self.account).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{AccountId, UserId};
    use futures::FutureExt as _;
    use uuid::Uuid;

    #[tokio::test]
    async fn locks_on_one_account_are_taken_in_order_and_removed_at_the_end() {
        let account = |number| AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(number)),
        };
        let locks = AccountLocks::default();
        let first = locks.take(account(1)).await;
        assert!(locks.take(account(2)).now_or_never().is_some(), "another account is free");
        let mut second = Box::pin(locks.take(account(1)));
        let mut third = Box::pin(locks.take(account(1)));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "the second one comes first");
        let second = second.now_or_never().unwrap();
        drop(third);
        let mut fourth = Box::pin(locks.take(account(1)));
        assert!((&mut fourth).now_or_never().is_none());
        drop(second);
        drop(fourth);
        assert!(locks.0.lock().is_empty(), "also after a wait that was given up");
    }
}
