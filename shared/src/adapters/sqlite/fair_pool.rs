//! A pool that is fair between clients: waiting clients get a resource in round-robin order, and each client's requests in the
//! order in which they came.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Resources for requests of numbered clients.
pub(super) struct FairPool<T>(Mutex<State<T>>);

struct State<T> {
    /// The one that was used last is used first.
    free: Vec<T>,
    /// The waiting requests of each client. Invariant: no queue is empty, and there is none while a resource is free.
    waiting: BTreeMap<u64, VecDeque<oneshot::Sender<Pooled<T>>>>,
    /// The client that got the last resource.
    last: u64,
}

/// A resource of a pool, which gets it back when this is dropped.
pub(super) struct Pooled<T> {
    /// `None` only during `drop`.
    resource: Option<T>,
    pool: Arc<FairPool<T>>,
}

impl<T> State<T> {
    /// Removes the waiting request that gets the next resource.
    fn next(&mut self) -> Option<oneshot::Sender<Pooled<T>>> {
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

impl<T> FairPool<T> {
    /// Creates a pool of resources that are all free.
    pub(super) fn new(resources: impl IntoIterator<Item = T>) -> Arc<Self> {
        let free = resources.into_iter().collect();
        Arc::new(Self(Mutex::new(State { free, waiting: BTreeMap::new(), last: 0 })))
    }

    /// Waits for a resource for a request of a client. If the future is dropped, the next request gets it.
    pub(super) async fn take(self: &Arc<Self>, client: u64) -> Pooled<T> {
        let given = {
            let mut state = self.0.lock();
            if let Some(resource) = state.free.pop() {
                state.last = client;
                return self.lend(resource);
            }
            let (give, given) = oneshot::channel();
            state.waiting.entry(client).or_default().push_back(give);
            given
        };
        given.await.expect("every resource in use is given on")
    }

    fn lend(self: &Arc<Self>, resource: T) -> Pooled<T> {
        Pooled { resource: Some(resource), pool: Arc::clone(self) }
    }

    fn give_on(self: &Arc<Self>, mut resource: T) {
        loop {
            let next = {
                let mut state = self.0.lock();
                let Some(next) = state.next() else {
                    state.free.push(resource);
                    return;
                };
                next
            };
            match next.send(self.lend(resource)) {
                Ok(()) => return,
                // That request was cancelled, so the loop gives the resource to the next one.
                Err(mut pooled) => {
                    let Some(returned) = pooled.resource.take() else { return };
                    resource = returned;
                }
            }
        }
    }
}

impl<T> Pooled<T> {
    /// Returns the resource, which is used by this request alone.
    pub(super) fn resource(&mut self) -> &mut T {
        self.resource.as_mut().expect("it is there until the drop")
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take() {
            self.pool.give_on(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn clients_get_resources_in_turn_however_many_requests_one_has() {
        let pool = FairPool::new([()]);
        let first = pool.take(7).now_or_never().unwrap();
        let mut waiting: Vec<_> =
            [7, 7, 7, 9, 3].map(|client| Box::pin(pool.take(client))).into_iter().collect();
        assert!(waiting.iter_mut().all(|it| it.as_mut().now_or_never().is_none()));
        drop(first);
        let mut order = Vec::new();
        for _ in 0..5 {
            let got = waiting.iter_mut().position(|it| {
                let pooled = it.as_mut().now_or_never();
                pooled.is_some()
            });
            order.push(got.unwrap());
            drop(waiting.remove(*order.last().unwrap()));
        }
        // Positions among those that were left.
        assert_eq!(order, [3, 3, 0, 0, 0]);
        assert_eq!(pool.0.lock().free.len(), 1);
    }

    #[test]
    fn a_resource_of_a_request_that_ended_is_given_to_the_next_one() {
        let pool = FairPool::new([()]);
        let first = pool.take(1).now_or_never().unwrap();
        let mut gone = [(); 2].map(|()| Box::pin(pool.take(1)));
        let mut next = Box::pin(pool.take(1));
        assert!(gone.iter_mut().all(|it| it.as_mut().now_or_never().is_none()));
        assert!(next.as_mut().now_or_never().is_none());
        let [ended, not_looked_at] = gone;
        drop(ended);
        drop(first);
        assert!(next.as_mut().now_or_never().is_none());
        // It was given the resource, and ends before it looks at it.
        drop(not_looked_at);
        drop(next.now_or_never().unwrap());
        assert_eq!(pool.0.lock().free.len(), 1);
        assert!(pool.0.lock().waiting.is_empty());
    }
}
