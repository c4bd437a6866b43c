//! Accounts that other processes change as well. For some time, requests on them take the queue.

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::backoff::CONTENDED_ACCOUNT;
use crate::domain::ids::AccountKey;
use crate::ports::world::World;

/// Largest number of avoided accounts. An evicted account costs a refused commit.
const ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Time for which an account is left to a worker that could not commit.
const LEFT_TO_WORKER_FOR: Duration = Duration::from_secs(1);

pub(super) struct ContendedAccounts(Mutex<LruCache<AccountKey, Avoided>>);

/// Times are on the clock of [`World::uptime`].
#[derive(Clone, Copy, Default)]
struct Avoided {
    until: Duration,
    /// Number of contended commits since the last success.
    failures: u32,
}

impl Default for ContendedAccounts {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(ACCOUNTS_MAX)))
    }
}

impl ContendedAccounts {
    /// Returns whether requests on the account take the queue now.
    pub(super) fn contains(&self, account: AccountKey, world: &dyn World) -> bool {
        let accounts = self.0.lock();
        accounts.peek(&account).is_some_and(|avoided| world.uptime() < avoided.until)
    }

    /// Avoids an account after two refused commits, each time for longer.
    pub(super) fn contended(&self, account: AccountKey, world: &dyn World) {
        self.change(account, |avoided| {
            avoided.failures = avoided.failures.saturating_add(1);
            let pause = CONTENDED_ACCOUNT.delay(avoided.failures, world);
            avoided.until = avoided.until.max(world.uptime().saturating_add(pause));
        });
    }

    /// Avoids an account for a second, after a worker could not commit on it.
    pub(super) fn leave_to_worker(&self, account: AccountKey, world: &dyn World) {
        self.change(account, |avoided| {
            avoided.until = avoided.until.max(world.uptime().saturating_add(LEFT_TO_WORKER_FOR));
        });
    }

    /// Records a successful commit. An account that is still left to a worker stays avoided.
    pub(super) fn succeeded(&self, account: AccountKey, world: &dyn World) {
        let mut accounts = self.0.lock();
        if accounts.peek(&account).is_some_and(|avoided| avoided.until <= world.uptime()) {
            accounts.pop(&account);
        }
    }

    fn change(&self, account: AccountKey, change: impl FnOnce(&mut Avoided)) {
        change(self.0.lock().get_or_insert_mut(account, Avoided::default));
    }
}
