//! Delays between attempts. Each retry policy of the bank is a row of the table below.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::ports::fault::{StoreFault, chain};
use crate::ports::world::{World, WorldExt as _};

/// The number of attempts of a policy without a limit.
const UNLIMITED: u32 = u32::MAX;

/// A guarded write of an account that postings change concurrently.
pub const ACCOUNT_WRITE: RetryPolicy = row(ms(5), 2, ms(500), 10, Jitter::Full);
/// A commit of a batch, before its chunk is tried again as a whole.
pub const BATCH_COMMIT: RetryPolicy = row(secs(1), 2, secs(5), 5, Jitter::Half);
/// How long requests on an account go through the queue, after both attempts of a commit met changes by other processes.
pub const CONTENDED_ACCOUNT: RetryPolicy = row(ms(250), 2, secs(5), UNLIMITED, Jitter::Half);
/// A guarded write of a small value that processes share: the gate, the number of queues, a partner.
pub const SHARED_VALUE_WRITE: RetryPolicy = row(ms(50), 1, ms(50), 10, Jitter::Full);
/// A write of the next row of the audit trail, until it is written.
pub const AUDIT_APPEND: RetryPolicy = row(ms(50), 2, secs(10), UNLIMITED, Jitter::Full);
/// A guarded write of the register of order numbers.
pub const ORDER_NUMBERS_WRITE: RetryPolicy = row(ms(20), 2, secs(1), 8, Jitter::Full);
/// The requests of one operation on Azure Storage. The operation also has a time limit.
pub const AZURE_OPERATION: RetryPolicy = row(ms(50), 2, secs(1), 8, Jitter::Full);
/// A store access that a process needs to start, or to read the gate.
pub const STORE_NEEDED: RetryPolicy = row(ms(200), 2, secs(5), UNLIMITED, Jitter::Half);
/// A check of a store that became unavailable.
pub const STORE_CHECK: RetryPolicy = row(ms(500), 2, secs(5), UNLIMITED, Jitter::Half);
/// A read by the audit, or one step of copying a store.
pub const AUDIT_READ: RetryPolicy = row(secs(1), 5, secs(15), 4, Jitter::None);
/// A receive from a queue.
pub const RECEIVE: RetryPolicy = row(ms(100), 2, secs(5), UNLIMITED, Jitter::Half);
/// A poll of empty queues. The maximum delay is configured.
pub const IDLE_POLL: RetryPolicy = row(ms(100), 2, Duration::MAX, UNLIMITED, Jitter::HalfThenLittle);
/// The redelivery of a message that could not be processed.
pub const MESSAGE: RetryPolicy = row(secs(1), 2, secs(10), UNLIMITED, Jitter::Half);
/// A message that needs a worker of a newer version, which may start soon during a rolling upgrade. The delay is
/// constant because each wait begins with a new message.
pub const NEWER_MESSAGE: RetryPolicy = row(secs(15), 1, secs(15), UNLIMITED, Jitter::Half);
/// A message whose payload was lost, until a recovery has found its work.
pub const MISSING_PAYLOAD: RetryPolicy = row(secs(10), 2, secs(120), UNLIMITED, Jitter::Half);
/// A send of work whose previous send was not confirmed.
pub const UNSENT_WORK: RetryPolicy = row(secs(5), 2, secs(60), UNLIMITED, Jitter::Half);
/// The repair of a transaction that stays accepted.
pub const REPAIR: RetryPolicy = row(secs(600), 2, secs(24 * 3600), UNLIMITED, Jitter::None);
/// A ring to another process, retried for at most about 13 s. The next ring starts a new count.
pub const RING: RetryPolicy = row(ms(100), 2, Duration::MAX, 8, Jitter::Half);
/// A reply to another process. If both attempts fail, the waiting request reads the transaction row.
pub const REPLY: RetryPolicy = row(ms(100), 2, Duration::MAX, 2, Jitter::Half);
/// A read of the process registry to find the receivers of a ring.
pub const REGISTRY_READ: RetryPolicy = row(ms(200), 2, Duration::MAX, 3, Jitter::None);
/// The broadcast of a changed partner.
pub const BROADCAST: RetryPolicy = row(ms(100), 2, Duration::MAX, 3, Jitter::None);
/// A request that a command sends to the service. A time limit applies as well.
pub const CLIENT_REQUEST: RetryPolicy = row(ms(200), 2, secs(10), UNLIMITED, Jitter::Half);
/// A request for an Azure Storage access token. Storage operations keep retrying meanwhile.
pub const TOKEN: RetryPolicy = row(ms(500), 2, secs(30), UNLIMITED, Jitter::Half);
/// The restart of a worker process that ended unexpectedly.
pub const PROCESS_START: RetryPolicy = row(ms(500), 2, secs(30), UNLIMITED, Jitter::Half);

/// The delays between attempts, and the number of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum delay before the second attempt.
    pub first: Duration,
    /// Factor from each delay to the next.
    pub factor: u32,
    /// Maximum of all delays.
    pub longest: Duration,
    /// Maximum number of attempts, including the first.
    pub attempts: u32,
    /// The random part of each delay.
    pub jitter: Jitter,
}

/// The random part of a delay. It prevents processes that failed together from retrying together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// No part is random.
    None,
    /// Half of the delay is random.
    Half,
    /// The whole delay is random.
    Full,
    /// Half of the delay is random, but only a fiftieth once the delay is at its maximum: earlier polls would cost money.
    HalfThenLittle,
}

const fn row(first: Duration, factor: u32, longest: Duration, attempts: u32, jitter: Jitter) -> RetryPolicy {
    RetryPolicy { first, factor, longest, attempts, jitter }
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl RetryPolicy {
    /// Returns the maximum delay after this number of failed attempts.
    pub fn delay_max(&self, failures: u32) -> Duration {
        let factor = self.factor.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Returns a delay, with its random part, after this number of failed attempts.
    pub fn delay(&self, failures: u32, world: &dyn World) -> Duration {
        let longest = self.delay_max(failures);
        let part = |divisor| longest.checked_div(divisor).unwrap_or_default();
        let random = match self.jitter {
            Jitter::None => Duration::ZERO,
            Jitter::Full => longest,
            Jitter::HalfThenLittle if longest == self.longest => part(50),
            Jitter::Half | Jitter::HalfThenLittle => part(2),
        };
        longest.saturating_sub(random).saturating_add(world.jitter(random))
    }

    /// Repeats an idempotent operation while the store is unavailable. Adds each attempt to `operations`, and logs each
    /// failed attempt as a warning that starts with `repeats`.
    ///
    /// # Errors
    /// The [`StoreFault`] of the last attempt, or the first fault of any other kind.
    pub async fn while_unavailable<'a, T>(
        &self,
        world: &dyn World,
        operations: &AtomicU64,
        repeats: &str,
        mut operation: impl FnMut() -> BoxFuture<'a, Result<T, StoreFault>> + Send,
    ) -> Result<T, StoreFault> {
        let mut attempt = 1;
        loop {
            operations.fetch_add(1, Ordering::Relaxed);
            match operation().await {
                Err(fault @ StoreFault::Unavailable { .. }) if attempt < self.attempts => {
                    tracing::warn!("{repeats}: {}", chain(&fault));
                    self.pause(attempt, world).await;
                }
                answer => return answer,
            }
            attempt = attempt.saturating_add(1);
        }
    }

    /// Waits for the delay after this number of failed attempts.
    pub async fn pause(&self, failures: u32, world: &dyn World) {
        world.sleep(self.delay(failures, world)).await;
    }

    /// Returns a [`Backoff`] that has counted no failures.
    pub const fn start(self) -> Backoff {
        Backoff { policy: self, failures: 0 }
    }
}

/// A [`RetryPolicy`] with its number of consecutive failures.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    policy: RetryPolicy,
    failures: u32,
}

impl Backoff {
    /// Counts a failure, and returns the delay after it.
    pub fn next(&mut self, world: &dyn World) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.policy.delay(self.failures, world)
    }

    /// Sets the maximum of all later delays.
    pub const fn set_longest(&mut self, longest: Duration) {
        self.policy.longest = longest;
    }

    /// Resets the number of failures after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::memory::world::TestWorld;

    #[test]
    fn delays_increase_up_to_the_maximum() {
        let check = |policy: RetryPolicy, expected: &[Duration]| {
            let delays: Vec<Duration> =
                (1..).map(|failures| policy.delay_max(failures)).take(expected.len()).collect();
            assert_eq!(delays, expected, "{policy:?}");
            assert_eq!(policy.delay_max(u32::MAX), policy.longest, "{policy:?}");
        };
        check(MESSAGE, &[secs(1), secs(2), secs(4), secs(8), secs(10), secs(10)]);
        check(AUDIT_READ, &[secs(1), secs(5), secs(15), secs(15)]);
        check(SHARED_VALUE_WRITE, &[ms(50), ms(50)]);
    }

    #[test]
    fn the_random_part_of_a_delay_follows_the_policy() {
        let world = TestWorld::new(1);
        let check = |jitter: Jitter, longest: Duration, least_percent: u32| {
            let policy = row(secs(10), 2, longest, UNLIMITED, jitter);
            let delays: Vec<Duration> = (0..1000).map(|_| policy.delay(1, &world)).collect();
            let (least, most) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
            let bound = secs(10) * least_percent / 100;
            assert!(
                bound <= least && least <= bound + ms(100) && most <= secs(10),
                "{policy:?} {least:?} {most:?}"
            );
            assert!(most > ms(9900), "{policy:?} {most:?}");
        };
        check(Jitter::None, secs(60), 100);
        check(Jitter::Half, secs(60), 50);
        check(Jitter::Full, secs(60), 0);
        check(Jitter::HalfThenLittle, secs(60), 50);
        check(Jitter::HalfThenLittle, secs(10), 98);
    }

    #[test]
    fn a_success_resets_the_failures() {
        let world = TestWorld::new(1);
        let mut backoff = AUDIT_READ.start();
        assert_eq!([backoff.next(&world), backoff.next(&world)], [secs(1), secs(5)]);
        backoff.reset();
        assert_eq!(backoff.next(&world), secs(1));
    }
}
