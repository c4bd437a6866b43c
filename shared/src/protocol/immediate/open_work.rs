//! The work that this process put on the queue and that is not known to be final: no later request of the same account
//! may be posted before it. Other processes may have more; order among requests to several processes is not promised.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::ids::{AccountKey, TransactionKey};
use crate::ports::world::World;

/// Transactions of one account that are tracked one by one. Beyond, the account is only known to have open work until
/// the time limit.
const TRACKED_MAX: usize = 32;

/// The open work of a process, by account. Times are on the clock of [`World::uptime`].
pub struct OpenWork {
    world: Arc<dyn World>,
    /// Time after which work counts as final: it was redelivered at least once by then.
    limit: Duration,
    accounts: Mutex<Accounts>,
}

#[derive(Default)]
struct Accounts {
    open: BTreeMap<AccountKey, OfAccount>,
    /// The same accounts in the order of their time limits, so that all are removed in the end.
    limits: VecDeque<(Duration, AccountKey)>,
}

#[derive(Default)]
struct OfAccount {
    /// The tracked transactions, with their time limits.
    tracked: Vec<(TransactionKey, Duration)>,
    /// Time limit of the others.
    others_until: Duration,
}

impl OfAccount {
    fn is_open(&self, now: Duration) -> bool {
        now < self.others_until || self.tracked.iter().any(|(_, until)| now < *until)
    }
}

impl OpenWork {
    /// Creates the memory of a process. Work counts as final after `limit`.
    pub fn new(world: Arc<dyn World>, limit: Duration) -> Self {
        Self { world, limit, accounts: Mutex::default() }
    }

    /// Records that work is about to be put on the queue.
    pub fn begin(&self, key: &TransactionKey) {
        let now = self.world.uptime();
        let until = now.saturating_add(self.limit);
        let mut accounts = self.accounts.lock();
        accounts.remove_expired(now);
        let of_account = accounts.open.entry(key.account).or_default();
        let has_room = of_account.tracked.len() < TRACKED_MAX;
        match of_account.tracked.iter_mut().find(|(tracked, _)| tracked == key) {
            Some((_, limit)) => *limit = until,
            None if has_room => of_account.tracked.push((key.clone(), until)),
            None => of_account.others_until = until,
        }
        accounts.limits.push_back((until, key.account));
    }

    /// Records that a transaction is final.
    pub fn end(&self, key: &TransactionKey) {
        let mut accounts = self.accounts.lock();
        let Some(of_account) = accounts.open.get_mut(&key.account) else { return };
        of_account.tracked.retain(|(tracked, _)| tracked != key);
        if !of_account.is_open(self.world.uptime()) {
            accounts.open.remove(&key.account);
        }
    }

    /// Returns whether an account has open work of this process.
    pub fn is_open(&self, account: AccountKey) -> bool {
        let accounts = self.accounts.lock();
        accounts.open.get(&account).is_some_and(|of_account| of_account.is_open(self.world.uptime()))
    }
}

impl Accounts {
    fn remove_expired(&mut self, now: Duration) {
        while let Some((until, account)) = self.limits.front().copied() {
            if now < until {
                return;
            }
            self.limits.pop_front();
            if self.open.get(&account).is_some_and(|of_account| !of_account.is_open(now)) {
                self.open.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::world::TestWorld;
    use crate::domain::ids::{AccountId, MessageId, PartnerId, UserId};
    use uuid::Uuid;

    fn key(account: u128, message: u128) -> TransactionKey {
        let account = AccountKey {
            user: UserId::from_uuid(Uuid::from_u128(1)),
            account: AccountId::from_uuid(Uuid::from_u128(account)),
        };
        let partner = PartnerId::parse("shop").unwrap();
        TransactionKey { account, partner, message: MessageId::from_uuid(Uuid::from_u128(message)) }
    }

    #[test]
    fn work_is_open_until_its_end_is_known_or_the_time_limit() {
        let world = Arc::new(TestWorld::new(1));
        let open = OpenWork::new(world.clone(), Duration::from_secs(40));
        let (one, two) = (key(1, 1), key(1, 2));
        open.begin(&one);
        open.begin(&two);
        open.end(&one);
        assert!(open.is_open(one.account), "one of two is open");
        assert!(!open.is_open(key(2, 1).account), "another account");
        open.end(&two);
        assert!(!open.is_open(one.account));
        open.begin(&one);
        world.advance(Duration::from_secs(39));
        assert!(open.is_open(one.account));
        open.begin(&two);
        world.advance(Duration::from_secs(1));
        open.end(&two);
        assert!(!open.is_open(one.account), "the time limit");
    }

    #[test]
    fn memory_is_bounded_by_account_and_by_time() {
        let world = Arc::new(TestWorld::new(1));
        let open = OpenWork::new(world.clone(), Duration::from_secs(40));
        for message in 0..1000 {
            open.begin(&key(1, message));
        }
        for message in 0..1000 {
            open.end(&key(1, message));
        }
        assert!(open.is_open(key(1, 0).account), "not all were tracked");
        assert_eq!(open.accounts.lock().open.len(), 1);
        world.advance(Duration::from_secs(40));
        open.begin(&key(2, 1));
        let accounts = open.accounts.lock();
        assert_eq!((accounts.open.len(), accounts.limits.len()), (1, 1));
    }
}
