//! The queue and the network of the model: the promises of `ports::queue`, and requests that arrive after
//! their sender gave up.
//!
//! A message that no worker works on is visible, since the exact end of its lease makes no difference. A
//! lease that ends *while its holder works* is a separate fault.

use super::rules::Rules;
use super::state::{Items, Late, Lease, Message, State, Work};

impl State {
    /// Adds a message to the queue.
    pub(super) fn send(&mut self, items: Items) {
        self.queue.push(Message { items, lease: Lease::Free });
        self.queue.sort_unstable();
    }

    /// Delays a request; it may arrive later.
    pub(super) fn delay(&mut self, late: Late) {
        self.late.push(late);
        self.late.sort_unstable();
    }

    /// A late request arrives.
    pub(super) fn arrive(&mut self, place: usize, rules: &Rules) {
        match self.late.remove(place) {
            Late::Insert { key, content } => drop(self.insert(key, content, None, rules)),
            Late::Send(items) => self.send(items),
            Late::Commit(commit, owner) => drop(self.commit(&commit, owner, rules)),
        }
    }

    /// A worker receives messages; previous holders lose their leases. The work contains each key once, in
    /// the order of the messages.
    pub(super) fn receive(&mut self, worker: usize, places: &[usize]) {
        let mut work: Vec<Work> = Vec::new();
        for place in places {
            let message = &mut self.queue[*place];
            message.lease = Lease::Held(worker);
            for (key, revision) in message.items.iter().enumerate() {
                if let Some(revision) = *revision
                    && work.iter().all(|work| work.key != key)
                {
                    work.push(Work { key, revision });
                }
            }
        }
        self.workers[worker].work = work;
        self.queue.sort_unstable();
    }

    /// Frees all messages of a worker; its receipts are lost.
    pub(super) fn release_all(&mut self, worker: usize) {
        for message in &mut self.queue {
            if message.lease.holder() == Some(worker) {
                message.lease = Lease::Free;
            }
        }
        self.queue.sort_unstable();
    }

    /// Changes the lease of a message.
    pub(super) fn set_lease(&mut self, place: usize, lease: Lease) {
        self.queue[place].lease = lease;
        self.queue.sort_unstable();
    }
}
