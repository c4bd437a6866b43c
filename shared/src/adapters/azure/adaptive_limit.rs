//! How many requests a process may have in progress: as many as the storage answers in time.
//!
//! A storage that is slower than its clients are patient would otherwise work only on requests whose senders have given up,
//! for as long as they are repeated. So the limit is halved when a request is not answered in time or is throttled, and grows
//! by one for each round of requests that succeed, as in the congestion control of TCP (additive increase, multiplicative
//! decrease).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The lowest limit: some requests must be tried, to find out that the storage is faster again, and a few that are never
/// answered, because only their partition is slow, must not stop all others.
const LIMIT_MIN: usize = 8;
/// Time between two reductions: requests that were sent together fail together, and count once.
const REDUCTION_INTERVAL: Duration = Duration::from_secs(2);

/// An adaptive limit of concurrent requests.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    max: usize,
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// Permits to be taken out of use when they are returned.
    excess: usize,
    /// Requests that were answered since the last change of the limit.
    answered: usize,
    reduced_at: Option<Duration>,
}

impl AdaptiveLimit {
    /// Creates a limit that starts at its maximum.
    pub(super) fn new(max: usize) -> Self {
        let state = State { limit: max, excess: 0, answered: 0, reduced_at: None };
        Self { max, permits: Semaphore::new(max), state: Mutex::new(state) }
    }

    /// Waits until a request may be sent.
    pub(super) async fn acquire(&self) -> Permit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        Permit { limit: self, permit: Some(permit) }
    }

    /// Notes that the storage answered a request in time.
    pub(super) fn answered(&self) {
        let mut state = self.state.lock();
        state.answered = state.answered.saturating_add(1);
        if state.answered < state.limit || state.limit >= self.max {
            return;
        }
        state.answered = 0;
        state.limit = state.limit.saturating_add(1);
        match state.excess.checked_sub(1) {
            Some(excess) => state.excess = excess,
            None => self.permits.add_permits(1),
        }
    }

    /// Notes that the storage did not answer a request in time, or refused it because it is busy.
    pub(super) fn overloaded(&self, now: Duration) {
        let mut state = self.state.lock();
        if state.reduced_at.is_some_and(|at| now.saturating_sub(at) < REDUCTION_INTERVAL) {
            return;
        }
        let limit = state.limit.div_ceil(2).max(LIMIT_MIN.min(self.max));
        state.excess = state.excess.saturating_add(state.limit.saturating_sub(limit));
        (state.limit, state.answered, state.reduced_at) = (limit, 0, Some(now));
    }
}

/// The right to send one request, until it is dropped.
pub(super) struct Permit<'a> {
    limit: &'a AdaptiveLimit,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        if let Some(excess) = state.excess.checked_sub(1) {
            state.excess = excess;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Takes as many permits as there are.
    fn take_all(limit: &AdaptiveLimit) -> Vec<Permit<'_>> {
        std::iter::from_fn(|| limit.acquire().now_or_never()).collect()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_limit_is_halved_by_requests_without_an_answer_and_grows_with_answers() {
        let limit = AdaptiveLimit::new(40);
        let all = take_all(&limit);
        assert_eq!(all.len(), 40);
        // Those that were sent together count once.
        (0..40).for_each(|_| limit.overloaded(seconds(10)));
        drop(all);
        assert_eq!(take_all(&limit).len(), 20);
        for at in [12, 14, 16, 18] {
            limit.overloaded(seconds(at));
        }
        drop(take_all(&limit));
        assert_eq!(take_all(&limit).len(), 8, "some requests are always tried");
        (0..8).for_each(|_| limit.answered());
        assert_eq!(take_all(&limit).len(), 9);
        (0..9 + 10).for_each(|_| limit.answered());
        assert_eq!(take_all(&limit).len(), 11);
        (0..10_000).for_each(|_| limit.answered());
        assert_eq!(take_all(&limit).len(), 40, "not more than at first");
    }

    #[test]
    fn a_limit_that_grows_again_keeps_permits_that_are_still_in_use() {
        let limit = AdaptiveLimit::new(20);
        let all = take_all(&limit);
        limit.overloaded(seconds(1));
        (0..10).for_each(|_| limit.answered());
        drop(all);
        assert_eq!(take_all(&limit).len(), 11);
    }
}
