//! One after the other on the same account: a process with several receivers would otherwise race
//! against itself, and each lost race costs a read and a commit. Other processes are not kept out;
//! the guards of the commit see to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::domain::ids::AccountKey;

type Turns = Mutex<BTreeMap<AccountKey, Arc<tokio::sync::Mutex<()>>>>;

/// Who has the turn on which account.
#[derive(Debug, Default)]
pub struct AccountTurns(Arc<Turns>);

/// A turn on an account; dropping it passes it on.
#[derive(Debug)]
pub struct Turn {
    account: AccountKey,
    /// `None` only while it is dropped.
    guard: Option<OwnedMutexGuard<()>>,
    turns: Arc<Turns>,
}

impl AccountTurns {
    /// Waits for the turn on an account, in the order of the calls.
    pub async fn take(&self, account: AccountKey) -> Turn {
        let turn = {
            let mut turns = self.0.lock();
            Arc::clone(turns.entry(account).or_default())
        };
        Turn { account, guard: Some(turn.lock_owned().await), turns: Arc::clone(&self.0) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        drop(self.guard.take());
        // Whoever waits holds it as well; inside the lock nobody can begin to.
        if turns.get(&self.account).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(&self.account);
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
    async fn turns_on_one_account_come_in_order_and_leave_nothing_behind() {
        let account = |number| AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(number)),
        };
        let turns = AccountTurns::default();
        let first = turns.take(account(1)).await;
        assert!(turns.take(account(2)).now_or_never().is_some(), "another account is free");
        let mut second = Box::pin(turns.take(account(1)));
        let mut third = Box::pin(turns.take(account(1)));
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "it is not its turn");
        let second = second.now_or_never().unwrap();
        drop(third);
        drop(second);
        assert!(turns.0.lock().is_empty());
    }
}
