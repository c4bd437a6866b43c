//! A semaphore that is fair between clients: waiting clients get a permit in round-robin order, and each client's requests in the
//! order in which they came.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A semaphore for requests of numbered clients.
pub(super) struct FairPermits(Mutex<State>);

struct State {
    free: usize,
    /// The waiting requests of each client. Invariant: no queue is empty, and there is none while a permit is free.
    waiting: BTreeMap<u64, VecDeque<oneshot::Sender<FairPermit>>>,
    /// The client that got the last permit.
    last: u64,
}

/// A permit, until it is dropped.
#[must_use = "the permit is free again when it is dropped"]
pub(super) struct FairPermit(Option<Arc<FairPermits>>);

impl State {
    /// Removes the waiting request that gets the next permit.
    fn next(&mut self) -> Option<oneshot::Sender<FairPermit>> {
        let behind = (Bound::Excluded(self.last), Bound::Unbounded);
        let client = self.waiting.range(behind).next().or_else(|| self.waiting.first_key_value());
        let client = *client?.0;
        self.last = client;
        let queue = self.waiting.get_mut(&client)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&client);
        }
        next
    }
}

impl FairPermits {
    /// Creates permits that are all free.
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { free: count, waiting: BTreeMap::new(), last: 0 })))
    }

    /// Waits for a permit for a request of a client. If the future is dropped, the next request gets it.
    pub(super) async fn take(self: &Arc<Self>, client: u64) -> FairPermit {
        let given = {
            let mut state = self.0.lock();
            if let Some(free) = state.free.checked_sub(1) {
                (state.free, state.last) = (free, client);
                return FairPermit(Some(Arc::clone(self)));
            }
            let (give, given) = oneshot::channel();
            state.waiting.entry(client).or_default().push_back(give);
            given
        };
        given.await.expect("every permit in use is given on")
    }

    fn give_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                let next = state.next();
                if next.is_none() {
                    state.free = state.free.saturating_add(1);
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(FairPermit(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // That request was cancelled, so the loop gives the permit to the next one.
                Err(mut permit) => permit.0 = None,
            }
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(permits) = self.0.take() {
            permits.give_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn clients_get_permits_in_turn_however_many_requests_one_has() {
        let permits = FairPermits::new(1);
        let first = permits.take(7).now_or_never().unwrap();
        let mut waiting: Vec<_> =
            [7, 7, 7, 9, 3].map(|client| Box::pin(permits.take(client))).into_iter().collect();
        assert!(waiting.iter_mut().all(|it| it.as_mut().now_or_never().is_none()));
        drop(first);
        let mut order = Vec::new();
        for _ in 0..5 {
            let got = waiting.iter_mut().position(|it| {
                let permit = it.as_mut().now_or_never();
                permit.is_some()
            });
            order.push(got.unwrap());
            drop(waiting.remove(*order.last().unwrap()));
        }
        // Positions among those that were left.
        assert_eq!(order, [3, 3, 0, 0, 0]);
        assert_eq!(permits.0.lock().free, 1);
    }

    #[test]
    fn a_permit_of_a_request_that_ended_is_given_to_the_next_one() {
        let permits = FairPermits::new(1);
        let first = permits.take(1).now_or_never().unwrap();
        let mut gone = [(); 2].map(|()| Box::pin(permits.take(1)));
        let mut next = Box::pin(permits.take(1));
        assert!(gone.iter_mut().all(|it| it.as_mut().now_or_never().is_none()));
        assert!(next.as_mut().now_or_never().is_none());
        let [ended, not_looked_at] = gone;
        drop(ended);
        drop(first);
        assert!(next.as_mut().now_or_never().is_none());
        // It was given the permit, and ends before it looks at it.
        drop(not_looked_at);
        drop(next.now_or_never().unwrap());
        assert_eq!(permits.0.lock().free, 1);
        assert!(permits.0.lock().waiting.is_empty());
    }
}
