//! Delivers the outcome of a transaction to waiting requests as soon as this process knows it, from its own
//! posting or from a reply of another process.
//!
//! This is only an optimization: replies can get lost, so a request reads the transaction row when its waiting
//! time ends.

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
    /// The number of unauthenticated messages that claimed that it is final.
    hints: u64,
}

/// An event for a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionEvent {
    /// The transaction is final.
    Final(Outcome),
    /// The transaction may be final; only its row can prove it.
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

/// Registry of waiting requests. The worker of this process and replies of other processes complete them.
#[derive(Debug, Default)]
pub struct Completions {
    waiters: Arc<Waiters>,
    endpoint: OnceLock<ReplyEndpoint>,
    /// Whether requests do not wait any more.
    is_over: watch::Sender<bool>,
}

/// The address at which this process receives replies, and the seal that authenticates it.
#[derive(Debug)]
struct ReplyEndpoint {
    address: Address,
    seal: ReplySeal,
}

/// A registered wait. Register **before** the work is enqueued, so that no event is missed.
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

    /// Wakes the requests that wait for a transaction, so that they read its row. Called when an unauthenticated
    /// message claims that it is final.
    pub fn hint(&self, key: &TransactionKey) {
        let waiters = self.waiters.lock();
        if let Some(sender) = waiters.get(key) {
            sender.send_modify(|state| state.hints = state.hints.saturating_add(1));
        }
    }

    /// Ends the waiting of all requests, and of those that begin later: the process drains. Their clients read the outcome
    /// from another process.
    pub fn end_waits(&self) {
        self.is_over.send_replace(true);
    }

    /// Returns whether requests do not wait any more.
    pub fn waits_are_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Returns when requests do not wait any more.
    pub async fn until_waits_are_over(&self) {
        // It cannot fail: the sender exists as long as this value.
        drop(self.is_over.subscribe().wait_for(|is_over| *is_over).await);
    }

    /// Sets the address at which this process receives replies. Before this call, and while the seal has no
    /// secret, work is sent without a reply address. Only the first call has an effect.
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
    /// Waits for the outcome. May wait for ever.
    pub async fn outcome(&mut self) -> Outcome {
        loop {
            if let CompletionEvent::Final(outcome) = self.next_event().await {
                return outcome;
            }
        }
    }

    /// Waits for the outcome or for a hint that was not returned yet. Several pending hints are returned as one.
    /// May wait for ever.
    pub async fn next_event(&mut self) -> CompletionEvent {
        let known = self.hints;
        if let Some(receiver) = &mut self.state
            && let Ok(state) =
                receiver.wait_for(|state| state.outcome.is_some() || state.hints != known).await
        {
            self.hints = state.hints;
            return state.outcome.clone().map_or(CompletionEvent::Hint, CompletionEvent::Final);
        }
        // The sender exists as long as a waiter does; without it no event can come.
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
        // Inside the lock: of two waiters dropped at the same time, the second one must see that it is the last.
        drop(self.state.take());
        if waiters.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            waiters.remove(&self.key);
        }
    }
}
