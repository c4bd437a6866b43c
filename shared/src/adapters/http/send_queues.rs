//! Send queues to other processes. At most one request to each process is in flight. Items that are added meanwhile are merged
//! and sent with the next request. A failed request is retried with back-off and does not delay requests to other processes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::backoff::RetryPolicy;
use crate::ports::world::World;

/// Items that accumulate in a send queue.
pub(super) trait Pending: Default + Clone + Send + Sync + 'static {
    /// Merges items that were added later. May drop items beyond a limit.
    fn add(&mut self, more: Self);

    /// Returns whether there is nothing to send.
    fn is_empty(&self) -> bool;
}

/// Sends items to a process. Returns false if they must be sent again.
pub(super) type SendFn<K, L> = Arc<dyn Fn(K, L) -> BoxFuture<'static, bool> + Send + Sync>;

/// The waiting items by recipient. A recipient is in the map while a task sends to it.
type PendingMap<K, L> = Arc<Mutex<BTreeMap<K, L>>>;

/// The send queues of all recipients.
pub(super) struct SendQueues<K: Ord, L> {
    world: Arc<dyn World>,
    send: SendFn<K, L>,
    policy: RetryPolicy,
    pending: PendingMap<K, L>,
}

impl<K, L> SendQueues<K, L>
where
    K: Clone + Ord + Send + Sync + 'static,
    L: Pending,
{
    pub(super) fn new(world: Arc<dyn World>, policy: RetryPolicy, send: SendFn<K, L>) -> Self {
        Self { world, send, policy, pending: Arc::default() }
    }

    /// Adds items to the queue of a recipient. They are sent after the request in flight has ended. Does not block.
    pub(super) fn add(&self, to: K, items: L) {
        let mut pending = self.pending.lock();
        if let Some(waiting) = pending.get_mut(&to) {
            waiting.add(items);
            return;
        }
        pending.insert(to.clone(), items);
        drop(pending);
        let sender = Sender {
            owns_queue: true,
            to,
            world: Arc::clone(&self.world),
            send: Arc::clone(&self.send),
            policy: self.policy,
            pending: Arc::clone(&self.pending),
        };
        self.world.spawn(sender.run().boxed());
    }

    /// Returns whether nothing is waiting or in flight.
    pub(super) fn are_empty(&self) -> bool {
        self.pending.lock().is_empty()
    }
}

struct Sender<K: Ord, L> {
    /// Whether this sender must remove the entry of the map when it ends.
    owns_queue: bool,
    to: K,
    world: Arc<dyn World>,
    send: SendFn<K, L>,
    policy: RetryPolicy,
    pending: PendingMap<K, L>,
}

impl<K: Clone + Ord, L: Pending> Sender<K, L> {
    async fn run(mut self) {
        while let Some(items) = self.take_or_close() {
            self.deliver(items).await;
        }
    }

    async fn deliver(&self, mut items: L) {
        for attempt in 1..=self.policy.attempts {
            if (self.send)(self.to.clone(), items.clone()).await || attempt == self.policy.attempts {
                return;
            }
            self.policy.pause(attempt, &*self.world).await;
            items.add(self.take());
        }
    }

    /// Takes the items that were added while a request was in flight.
    fn take(&self) -> L {
        let mut pending = self.pending.lock();
        pending.get_mut(&self.to).map(std::mem::take).unwrap_or_default()
    }

    /// Takes the next items. If there are none, removes the queue and returns `None`.
    fn take_or_close(&mut self) -> Option<L> {
        let mut pending = self.pending.lock();
        let waiting = pending.get_mut(&self.to)?;
        if waiting.is_empty() {
            pending.remove(&self.to);
            self.owns_queue = false;
            return None;
        }
        Some(std::mem::take(waiting))
    }
}

impl<K: Ord, L> Drop for Sender<K, L> {
    /// Removes the queue after a panic. Otherwise no later items would be sent to the recipient.
    fn drop(&mut self) {
        if self.owns_queue {
            self.pending.lock().remove(&self.to);
        }
    }
}
