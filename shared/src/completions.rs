//! Tells those who wait for a transaction what became of it, as soon as this process knows: because
//! it posted the transaction itself, or because the process that did replied.
//!
//! Only a shortcut: a reply may get lost, so whoever waits reads the row at the end of its patience.

pub mod note;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::watch;

use crate::domain::ids::TransactionKey;
use crate::domain::transaction::Outcome;
use crate::ports::roster::Address;
use crate::reply_to::{ReplySeal, ReplyTo};

type Waiters = Mutex<BTreeMap<TransactionKey, watch::Sender<Option<Outcome>>>>;

/// That a transaction became final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The transaction.
    pub key: TransactionKey,
    /// What became of it.
    pub outcome: Outcome,
}

/// Where waiting requests meet the worker of the same process, and the replies of others.
#[derive(Debug, Default)]
pub struct Completions {
    waiters: Arc<Waiters>,
    place: OnceLock<Place>,
}

/// Where this process takes replies, and what proves that it is one of the bank.
#[derive(Debug)]
struct Place {
    address: Address,
    seal: ReplySeal,
}

/// A registered wait. Register **before** the work is enqueued: then nothing can be missed.
#[derive(Debug)]
pub struct Waiter {
    key: TransactionKey,
    /// `None` only while it is dropped.
    outcome: Option<watch::Receiver<Option<Outcome>>>,
    waiters: Arc<Waiters>,
}

impl Completions {
    /// Starts to listen for one transaction.
    pub fn register(&self, key: &TransactionKey) -> Waiter {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = waiters.entry(key.clone()).or_insert_with(|| watch::Sender::new(None));
        Waiter { key: key.clone(), outcome: Some(sender.subscribe()), waiters: Arc::clone(&self.waiters) }
    }

    /// Tells that a transaction became final.
    pub fn announce(&self, key: &TransactionKey, outcome: &Outcome) {
        let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = waiters.get(key) {
            sender.send_replace(Some(outcome.clone()));
        }
    }

    /// Names the address at which this process takes the replies of others. Until then no work asks
    /// for a reply, and none while the seal cannot prove it. The first address stands.
    pub fn take_replies_at(&self, address: Address, seal: ReplySeal) {
        let kept = &self.place.get_or_init(|| Place { address: address.clone(), seal }).address;
        assert!(*kept == address, "a process has one address, not {kept} and {address}");
    }

    /// The address at which this process takes replies, if it does.
    pub fn address(&self) -> Option<&Address> {
        self.place.get().map(|place| &place.address)
    }

    /// Where to reply about these transactions: here, if anybody here waits for one of them now.
    pub fn reply_to<'a>(&self, keys: impl IntoIterator<Item = &'a TransactionKey>) -> Option<ReplyTo> {
        let Place { address, seal } = self.place.get()?;
        let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let awaited = keys.into_iter().any(|key| waiters.contains_key(key));
        drop(waiters);
        if awaited { seal.ask(address) } else { None }
    }
}

impl Waiter {
    /// Returns when the outcome was announced in this process; maybe never.
    pub async fn outcome(&mut self) -> Outcome {
        if let Some(receiver) = &mut self.outcome
            && let Ok(outcome) = receiver.wait_for(Option::is_some).await
            && let Some(outcome) = outcome.clone()
        {
            return outcome;
        }
        // The sender lives as long as a waiter does; without it nothing will ever come.
        futures::future::pending().await
    }

    /// The outcome, if it was announced by now.
    pub fn look(&self) -> Option<Outcome> {
        self.outcome.as_ref().and_then(|receiver| receiver.borrow().clone())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        // Inside the lock: of two waiters that go at once, the second one has to see that it is last.
        drop(self.outcome.take());
        if waiters.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            waiters.remove(&self.key);
        }
    }
}
