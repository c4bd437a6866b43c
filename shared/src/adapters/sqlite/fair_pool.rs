//! A pool that is fair between clients: their requests get a resource in round-robin order, and those of each client in the order in
//! which they came.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

/// Resources for requests of numbered clients.
pub(super) struct FairPool<T>(Mutex<State<T>>);

/// What a request does as soon as it has a resource, on whichever thread gives it. It only starts the use of the resource, or returns
/// it if that is not needed any more.
type Start<T> = Box<dyn FnOnce(Pooled<T>) -> Option<Pooled<T>> + Send>;

struct State<T> {
    /// The one that was used last is used first.
    free: Vec<T>,
    /// The waiting requests of each client. Invariant: no queue is empty, and there is none while a resource is free.
    waiting: BTreeMap<u64, VecDeque<Start<T>>>,
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
    /// Creates a pool of resources that are all free.
    pub(super) fn new(resources: impl IntoIterator<Item = T>) -> Arc<Self> {
        let free = resources.into_iter().collect();
        Arc::new(Self(Mutex::new(State { free, waiting: BTreeMap::new(), last: 0 })))
    }

    /// Calls `start` with a resource: at once if one is free, and otherwise when it is the turn of this request of the client. So no
    /// resource is unused while a request has it.
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
            // Not dropped, which would give it on in this function once more.
            let Some(returned) = start(self.lend(resource)).and_then(|mut it| it.resource.take()) else {
                return;
            };
            resource = returned;
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
    use super::*;

    /// Requests the free resource of a pool, and keeps it.
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
                // One request does not need it any more, which makes no difference to the others.
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
