//! The queue and the network of the model: what `ports::queue` promises, and requests that arrive
//! when nobody waits for them any more.
//!
//! A message that nobody works on is visible: when exactly its lease ends makes no difference to what
//! can happen. A lease that ends *while its holder is at work* is a fault of its own.

use super::rules::Rules;
use super::state::{Items, Late, Lease, Message, State, Work};

impl State {
    /// Puts a message on the queue.
    pub(super) fn send(&mut self, items: Items) {
        self.queue.push(Message { items, lease: Lease::Free });
        self.queue.sort_unstable();
    }

    /// A request gets lost on its way, for the time being.
    pub(super) fn delay(&mut self, late: Late) {
        self.late.push(late);
        self.late.sort_unstable();
    }

    /// A late request arrives.
    pub(super) fn land(&mut self, place: usize, rules: &Rules) {
        match self.late.remove(place) {
            Late::Insert { key, content } => drop(self.insert(key, content, rules)),
            Late::Send(items) => self.send(items),
            Late::Commit(commit, owner) => drop(self.commit(&commit, owner, rules)),
        }
    }

    /// A worker receives messages; whoever had them has lost its leases. Its work is each key once,
    /// in the order of the messages.
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

    /// Nobody has a receipt of that worker's messages any more.
    pub(super) fn release_all(&mut self, worker: usize) {
        for message in &mut self.queue {
            if message.lease.holder() == Some(worker) {
                message.lease = Lease::Free;
            }
        }
        self.queue.sort_unstable();
    }

    /// Changes what the newest receipt of a message is worth.
    pub(super) fn set_lease(&mut self, place: usize, lease: Lease) {
        self.queue[place].lease = lease;
        self.queue.sort_unstable();
    }
}
