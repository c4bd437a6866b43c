//! A pool of resources that is fair between clients. Clients get resources in round-robin order, and the requests of
//! one client in order of arrival.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

/// A pool of resources for the requests of numbered clients.
pub(super) struct FairPool<T>(Mutex<State<T>>);

/// Callback of a request. It may run on any thread that releases a resource, so it only starts the use of the resource,
/// or returns the resource if the request was canceled.
type Start<T> = Box<dyn FnOnce(Pooled<T>) -> Option<Pooled<T>> + Send>;

struct State<T> {
    /// Free resources. The most recently used is taken first.
    free: Vec<T>,
    /// The waiting requests of each client. Invariant: no queue is empty, and no request waits while a resource is free.
    waiting: BTreeMap<u64, VecDeque<Start<T>>>,
    /// The client that received a resource last.
    last: u64,
}

/// A resource that returns to its pool when it is dropped.
pub(super) struct Pooled<T> {
    /// `None` only during `drop`.
    resource: Option<T>,
    pool: Arc<FairPool<T>>,
}

impl<T> State<T> {
    /// Removes and returns the request that gets the next resource.
    fn next(&mut self) -> Option<Start<T>> {
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
    /// Creates a pool of free resources.
    pub(super) fn new(resources: impl IntoIterator<Item = T>) -> Arc<Self> {
        let free = resources.into_iter().collect();
        Arc::new(Self(Mutex::new(State { free, waiting: BTreeMap::new(), last: 0 })))
    }

    /// Calls `start` with a resource: immediately if one is free, otherwise when it is this request's turn. A request
    /// that waits occupies no resource.
    pub(super) fn request(
        self: &Arc<Self>,
        client: u64,
        start: impl FnOnce(Pooled<T>) -> Option<Pooled<T>> + Send + 'static,
    ) {
        let free = {
            let mut state = self.0.lock();
            let Some(free) = state.free.pop() else {
                state.waiting.entry(client).or_default().push_back(Box::new(start));
                return;
            };
            state.last = client;
            free
        };
        drop(start(self.lend(free)));
    }

    fn lend(self: &Arc<Self>, resource: T) -> Pooled<T> {
        Pooled { resource: Some(resource), pool: Arc::clone(self) }
    }

    fn give_on(self: &Arc<Self>, mut resource: T) {
        loop {
            let start = {
                let mut state = self.0.lock();
                let Some(start) = state.next() else {
                    state.free.push(resource);
                    return;
                };
                start
            };
            // The resource is taken out of the guard, whose drop would call this function recursively.
            let Some(returned) = start(self.lend(resource)).and_then(|mut it| it.resource.take()) else {
                return;
            };
            resource = returned;
        }
    }
}

impl<T> Pooled<T> {
    /// Returns the resource, to which this request has exclusive access.
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
    use super::*;

    /// Requests a resource of the pool, and keeps it once it arrives.
    fn held_by(pool: &Arc<FairPool<()>>, client: u64) -> Arc<Mutex<Option<Pooled<()>>>> {
        let held = Arc::new(Mutex::new(None));
        let place = Arc::clone(&held);
        pool.request(client, move |pooled| {
            *place.lock() = Some(pooled);
            None
        });
        held
    }

    #[test]
    fn clients_get_resources_in_turn_however_many_requests_one_has() {
        let pool = FairPool::new([()]);
        let (first, order) = (held_by(&pool, 7), Arc::new(Mutex::new(Vec::new())));
        for (number, client) in [7, 7, 7, 9, 3].into_iter().enumerate() {
            let order = Arc::clone(&order);
            pool.request(client, move |pooled| {
                order.lock().push(number);
                // Request 1 was canceled, which does not affect the other requests.
                (number == 1).then_some(pooled)
            });
        }
        assert!(order.lock().is_empty(), "the first one still has it");
        drop(first.lock().take());
        assert_eq!(*order.lock(), [3, 4, 0, 1, 2]);
        let state = pool.0.lock();
        assert!(state.free.len() == 1 && state.waiting.is_empty());
    }

    #[test]
    fn a_resource_that_many_requests_do_not_need_any_more_is_free_again() {
        let pool = FairPool::new([()]);
        let first = held_by(&pool, 1);
        (0..100_000).for_each(|_| pool.request(1, Some));
        drop(first.lock().take());
        assert_eq!(pool.0.lock().free.len(), 1);
    }
}
