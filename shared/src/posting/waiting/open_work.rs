//! The work that this process put on the queue and that may not be final. No later request on the same account may be
//! posted before it. Other processes may have more; the order of requests to different processes is not guaranteed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::domain::ids::{AccountKey, TransactionKey};
use crate::ports::world::World;

/// Largest number of tracked transactions, about 20 MB. While it is exceeded, every account counts as having open work.
const TRACKED_MAX: usize = 100_000;

/// The open work of a process, by account. Times are on the clock of [`World::uptime`].
pub struct OpenWork {
    world: Arc<dyn World>,
    /// Time after which work counts as final, since it has been redelivered at least once by then.
    limit: Duration,
    tracked: Mutex<Tracked>,
}

#[derive(Default)]
struct Tracked {
    /// The transactions that may not be final, with the time until which they count as open.
    accounts: BTreeMap<AccountKey, BTreeMap<TransactionKey, Duration>>,
    /// The entries by their time, including those that have ended, which bounds memory.
    limits: VecDeque<(Duration, TransactionKey)>,
    /// The time until which untracked transactions count as open.
    others_until: Duration,
}

impl OpenWork {
    /// Creates an empty list. Work counts as final after `limit`.
    pub fn new(world: Arc<dyn World>, limit: Duration) -> Self {
        Self { world, limit, tracked: Mutex::default() }
    }

    /// Records that work is about to be put on the queue. Returns false if it was recorded before or the list is full.
    pub fn begin(&self, key: &TransactionKey) -> bool {
        let now = self.world.uptime();
        let until = now.saturating_add(self.limit);
        let mut tracked = self.tracked.lock();
        tracked.remove_expired(now);
        if tracked.limits.len() >= TRACKED_MAX {
            tracked.others_until = until;
            return false;
        }
        tracked.limits.push_back((until, key.clone()));
        tracked.accounts.entry(key.account).or_default().insert(key.clone(), until).is_none()
    }

    /// Records that a transaction is final.
    pub fn end(&self, key: &TransactionKey) {
        self.tracked.lock().remove(key);
    }

    /// Returns whether an account has open work of this process.
    pub fn is_open(&self, account: AccountKey) -> bool {
        let now = self.world.uptime();
        let tracked = self.tracked.lock();
        let is_open = |open: &BTreeMap<_, Duration>| open.values().any(|until| now < *until);
        now < tracked.others_until || tracked.accounts.get(&account).is_some_and(is_open)
    }
}

impl Tracked {
    fn remove_expired(&mut self, now: Duration) {
        while let Some((_, key)) = self.limits.pop_front_if(|(until, _)| *until <= now) {
            let until = self.accounts.get(&key.account).and_then(|open| open.get(&key));
            // The transaction may have been recorded again.
            if until.is_some_and(|until| *until <= now) {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &TransactionKey) {
        let Some(open) = self.accounts.get_mut(&key.account) else { return };
        open.remove(key);
        if open.is_empty() {
            self.accounts.remove(&key.account);
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
        assert!(open.begin(&one) && open.begin(&two) && !open.begin(&two));
        open.end(&one);
        assert!(open.is_open(one.account), "one of two is open");
        assert!(!open.is_open(key(2, 1).account), "another account");
        open.end(&two);
        assert!(!open.is_open(one.account));
        assert!(open.begin(&one));
        world.advance(Duration::from_secs(39));
        assert!(open.is_open(one.account));
        assert!(open.begin(&two));
        world.advance(Duration::from_secs(1));
        open.end(&two);
        assert!(!open.is_open(one.account), "the time limit");
    }

    #[test]
    fn memory_is_bounded_by_number_and_by_time() {
        let world = Arc::new(TestWorld::new(1));
        let open = OpenWork::new(world.clone(), Duration::from_secs(40));
        for message in 0..TRACKED_MAX {
            let key = key(1, message.try_into().unwrap());
            assert!(open.begin(&key));
            open.end(&key);
        }
        assert!(!open.is_open(key(1, 0).account), "all have ended");
        assert!(open.tracked.lock().accounts.is_empty());
        world.advance(Duration::from_secs(20));
        assert!(!open.begin(&key(2, 1)));
        assert!(open.is_open(key(1, 0).account) && open.is_open(key(2, 1).account), "one is not tracked");
        world.advance(Duration::from_secs(20));
        assert!(open.begin(&key(3, 1)));
        let sizes = |tracked: &Tracked| (tracked.accounts.len(), tracked.limits.len());
        assert_eq!(sizes(&open.tracked.lock()), (1, 1));
        world.advance(Duration::from_secs(20));
        assert!(!open.is_open(key(2, 1).account) && open.is_open(key(3, 1).account));
    }
}
