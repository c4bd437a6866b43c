//! Delivers the outcome of a transaction to waiting requests as soon as this process knows it, from its own posting or
//! from a reply of another process.
//!
//! This is only an optimization. Replies can be lost, so a request reads the transaction row when its waiting time ends.

pub mod reply_body;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cluster::reply_to::{ReplySeal, ReplyTo};
use crate::domain::ids::TransactionKey;
use crate::domain::transaction::Outcome;
use crate::ports::process_registry::Address;

type Waiters = Mutex<BTreeMap<TransactionKey, watch::Sender<WaitState>>>;

/// The known state of a transaction that requests wait for.
#[derive(Debug, Clone, Default)]
struct WaitState {
    /// The outcome, from an authenticated source.
    outcome: Option<Outcome>,
    /// The number of unauthenticated messages that claimed the transaction to be final.
    hints: u64,
}

/// An event for a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionEvent {
    /// The transaction is final.
    Final(Outcome),
    /// The transaction may be final. Only its row can prove it.
    Hint,
}

/// The outcome of a final transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The transaction.
    pub key: TransactionKey,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Registry of the requests that wait in this process. Its worker and replies of other processes complete them.
#[derive(Debug, Default)]
pub struct Completions {
    waiters: Arc<Waiters>,
    endpoint: OnceLock<ReplyEndpoint>,
    /// Whether waiting has ended for all requests.
    is_over: watch::Sender<bool>,
}

/// The address at which this process receives replies, and the seal that signs it.
#[derive(Debug)]
struct ReplyEndpoint {
    address: Address,
    seal: ReplySeal,
}

/// A registered wait. Register it **before** the work is enqueued, so that no event is missed.
#[derive(Debug)]
pub struct Waiter {
    key: TransactionKey,
    /// `None` only during drop.
    state: Option<watch::Receiver<WaitState>>,
    /// The number of hints that were already returned.
    hints: u64,
    waiters: Arc<Waiters>,
}

impl Completions {
    /// Registers a wait for one transaction.
    pub fn register(&self, key: &TransactionKey) -> Waiter {
        let mut waiters = self.waiters.lock();
        let sender = waiters.entry(key.clone()).or_insert_with(|| watch::Sender::new(WaitState::default()));
        let (state, hints) = (Some(sender.subscribe()), sender.borrow().hints);
        Waiter { key: key.clone(), state, hints, waiters: Arc::clone(&self.waiters) }
    }

    /// Completes the requests that wait for a transaction.
    pub fn complete(&self, key: &TransactionKey, outcome: &Outcome) {
        let waiters = self.waiters.lock();
        if let Some(sender) = waiters.get(key) {
            sender.send_modify(|state| state.outcome = Some(outcome.clone()));
        }
    }

    /// Wakes the requests that wait for a transaction, so that they read its row. Used when an unauthenticated message
    /// claims that the transaction is final.
    pub fn hint(&self, key: &TransactionKey) {
        let waiters = self.waiters.lock();
        if let Some(sender) = waiters.get(key) {
            sender.send_modify(|state| state.hints = state.hints.saturating_add(1));
        }
    }

    /// Ends all waits, and those that begin later, because the process drains. Clients can query the outcome from
    /// another process.
    pub fn end_waits(&self) {
        self.is_over.send_replace(true);
    }

    /// Returns whether waiting has ended ([`Self::end_waits`]).
    pub fn waits_are_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Completes when [`Self::end_waits`] is called.
    pub async fn until_waits_are_over(&self) {
        // Cannot fail: the sender lives as long as `self`.
        drop(self.is_over.subscribe().wait_for(|is_over| *is_over).await);
    }

    /// Sets the address at which this process receives replies. Until then, and while the seal has no secret, work is
    /// sent without a reply address. Only the first call has an effect.
    pub fn set_reply_address(&self, address: Address, seal: ReplySeal) {
        let kept = &self.endpoint.get_or_init(|| ReplyEndpoint { address: address.clone(), seal }).address;
        assert!(*kept == address, "a process has one address, not {kept} and {address}");
    }

    /// Returns the address at which this process receives replies, if it is set.
    pub fn address(&self) -> Option<&Address> {
        self.endpoint.get().map(|endpoint| &endpoint.address)
    }

    /// Returns the reply address for these transactions if a request in this process waits for one of them.
    pub fn reply_to<'a>(&self, keys: impl IntoIterator<Item = &'a TransactionKey>) -> Option<ReplyTo> {
        let ReplyEndpoint { address, seal } = self.endpoint.get()?;
        let waiters = self.waiters.lock();
        let awaited = keys.into_iter().any(|key| waiters.contains_key(key));
        drop(waiters);
        if awaited { seal.sign(address) } else { None }
    }
}

impl Waiter {
    /// Waits for the outcome, possibly forever.
    pub async fn outcome(&mut self) -> Outcome {
        loop {
            if let CompletionEvent::Final(outcome) = self.next_event().await {
                return outcome;
            }
        }
    }

    /// Waits for the outcome, or for a hint that was not returned yet. Several pending hints are returned as one. May
    /// wait forever.
    pub async fn next_event(&mut self) -> CompletionEvent {
        let known = self.hints;
        if let Some(receiver) = &mut self.state
            && let Ok(state) =
                receiver.wait_for(|state| state.outcome.is_some() || state.hints != known).await
        {
            self.hints = state.hints;
            return state.outcome.clone().map_or(CompletionEvent::Hint, CompletionEvent::Final);
        }
        // The sender lives as long as a waiter. Without it, no event can arrive.
        futures::future::pending().await
    }

    /// Returns the outcome if it is already known.
    pub fn known_outcome(&self) -> Option<Outcome> {
        self.state.as_ref().and_then(|receiver| receiver.borrow().outcome.clone())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        // Dropped under the lock, so that the second of two concurrent drops sees that it is the last.
        drop(self.state.take());
        if waiters.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            waiters.remove(&self.key);
        }
    }
}
