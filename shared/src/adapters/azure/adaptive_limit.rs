//! Limits the concurrent requests of a process to what the storage can answer in time.
//!
//! An overloaded storage service would otherwise work only on requests whose clients have already timed out and
//! retried. So the limit is halved when a request times out or is throttled, and increased by one per round of
//! successful requests (additive increase, multiplicative decrease, as in TCP congestion control).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Minimum limit. Some requests must be sent to detect that the storage has recovered. A few requests to a slow
/// partition, which are never answered, must not block all others.
const LIMIT_MIN: usize = 8;
/// Minimum time between two reductions. Requests that were sent together fail together, and count as one overload.
const REDUCTION_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    max: usize,
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// Number of permits to discard when they are returned.
    excess: usize,
    /// Number of requests answered since the last change of the limit.
    answered: usize,
    reduced_at: Option<Duration>,
}

impl AdaptiveLimit {
    /// Creates a limit that starts at its maximum value.
    pub(super) fn new(max: usize) -> Self {
        let state = State { limit: max, excess: 0, answered: 0, reduced_at: None };
        Self { max, permits: Semaphore::new(max), state: Mutex::new(state) }
    }

    /// Waits until a request may be sent.
    pub(super) async fn acquire(&self) -> Permit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        Permit { limit: self, permit: Some(permit) }
    }

    /// Records that the storage answered a request in time.
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

    /// Records that the storage did not answer a request in time, or refused it because it was busy.
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

/// Permission to send one request, held until it is dropped.
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

    /// Acquires all available permits.
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
        // Overloads within the interval count once.
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
