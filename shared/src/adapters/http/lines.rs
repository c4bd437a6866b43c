//! Lines to other processes. On each at most one request is in flight; what comes meanwhile collects,
//! and goes with the next one. A process that does not answer is tried again after a growing wait, and
//! holds up nobody else.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::backoff::RetryPolicy;
use crate::ports::world::World;

/// What collects on a line.
pub(super) trait Load: Default + Clone + Send + Sync + 'static {
    /// Adds what came later. May leave out what is too much.
    fn add(&mut self, more: Self);

    /// Whether there is nothing to send.
    fn is_empty(&self) -> bool;
}

/// Sends a load to the process of a line. False when it has to be sent again.
pub(super) type Deliver<K, L> = Arc<dyn Fn(K, L) -> BoxFuture<'static, bool> + Send + Sync>;

/// A line is in the map while a task sends on it.
type Collected<K, L> = Arc<Mutex<BTreeMap<K, L>>>;

/// The lines to all processes.
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

    /// Sends a load to a process, as soon as the line is free. Never waits.
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

    /// Whether nothing is on its way.
    pub(super) fn are_quiet(&self) -> bool {
        self.collected.lock().is_empty()
    }
}

struct Sender<K: Ord, L> {
    /// Whether the line is in the map because of this sender.
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

    /// What collected meanwhile.
    fn take(&self) -> L {
        let mut collected = self.collected.lock();
        collected.get_mut(&self.to).map(std::mem::take).unwrap_or_default()
    }

    /// The next load; `None` when there is none, and then the line is free again.
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
    /// After a panic the line must not look busy for ever.
    fn drop(&mut self) {
        if self.owns_line {
            self.collected.lock().remove(&self.to);
        }
    }
}
