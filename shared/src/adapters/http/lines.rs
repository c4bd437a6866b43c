//! Send queues to other processes. At most one request to each process is in flight; items that are added meanwhile
//! are merged, and sent with the next request. A request that fails is retried with back-off, and delays no other
//! process.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::backoff::RetryPolicy;
use crate::ports::world::World;

/// Items that accumulate in a send queue.
pub(super) trait Load: Default + Clone + Send + Sync + 'static {
    /// Merges items that were added later. May drop items above a limit.
    fn add(&mut self, more: Self);

    /// Returns whether there is nothing to send.
    fn is_empty(&self) -> bool;
}

/// Sends items to a process. Returns false if they have to be sent again.
pub(super) type Deliver<K, L> = Arc<dyn Fn(K, L) -> BoxFuture<'static, bool> + Send + Sync>;

/// The waiting items. A process is in the map while a task sends to it.
type Collected<K, L> = Arc<Mutex<BTreeMap<K, L>>>;

/// The send queues to all processes.
pub(super) struct Lines<K: Ord, L> {
    world: Arc<dyn World>,
    send: Deliver<K, L>,
    policy: RetryPolicy,
    collected: Collected<K, L>,
}

impl<K, L> Lines<K, L>
where
    K: Clone + Ord + Send + Sync + 'static,
    L: Load,
{
    pub(super) fn new(world: Arc<dyn World>, policy: RetryPolicy, send: Deliver<K, L>) -> Self {
        Self { world, send, policy, collected: Arc::default() }
    }

    /// Adds items to the queue of a process. They are sent when the request in flight has ended. Never waits.
    pub(super) fn add(&self, to: K, load: L) {
        let mut collected = self.collected.lock();
        if let Some(waiting) = collected.get_mut(&to) {
            waiting.add(load);
            return;
        }
        collected.insert(to.clone(), load);
        drop(collected);
        let sender = Sender {
            owns_line: true,
            to,
            world: Arc::clone(&self.world),
            send: Arc::clone(&self.send),
            policy: self.policy,
            collected: Arc::clone(&self.collected),
        };
        self.world.spawn(sender.run().boxed());
    }

    /// Returns whether nothing is waiting or in flight.
    pub(super) fn are_quiet(&self) -> bool {
        self.collected.lock().is_empty()
    }
}

struct Sender<K: Ord, L> {
    /// Whether the map has an entry because of this sender.
    owns_line: bool,
    to: K,
    world: Arc<dyn World>,
    send: Deliver<K, L>,
    policy: RetryPolicy,
    collected: Collected<K, L>,
}

impl<K: Clone + Ord, L: Load> Sender<K, L> {
    async fn run(mut self) {
        while let Some(load) = self.take_or_leave() {
            self.deliver(load).await;
        }
    }

    async fn deliver(&self, mut load: L) {
        for attempt in 1..=self.policy.attempts {
            if (self.send)(self.to.clone(), load.clone()).await || attempt == self.policy.attempts {
                return;
            }
            self.policy.pause(attempt, &*self.world).await;
            load.add(self.take());
        }
    }

    /// Takes the items that were added meanwhile.
    fn take(&self) -> L {
        let mut collected = self.collected.lock();
        collected.get_mut(&self.to).map(std::mem::take).unwrap_or_default()
    }

    /// Takes the next items; if there are none, removes the queue and returns `None`.
    fn take_or_leave(&mut self) -> Option<L> {
        let mut collected = self.collected.lock();
        let waiting = collected.get_mut(&self.to)?;
        if waiting.is_empty() {
            collected.remove(&self.to);
            self.owns_line = false;
            return None;
        }
        Some(std::mem::take(waiting))
    }
}

impl<K: Ord, L> Drop for Sender<K, L> {
    /// Removes the queue after a panic; otherwise it would count as busy for ever.
    fn drop(&mut self) {
        if self.owns_line {
            self.collected.lock().remove(&self.to);
        }
    }
}
