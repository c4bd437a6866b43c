//! Tells those who wait for a transaction what became of it, as soon as this process knows: because
//! it posted the transaction itself, or because the process that did replied.
//!
//! Only a shortcut: a reply may get lost, so whoever waits reads the row at the end of its patience.

pub mod note;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cluster::reply_to::{ReplySeal, ReplyTo};
use crate::domain::ids::TransactionKey;
use crate::domain::transaction::Outcome;
use crate::ports::process_registry::Address;

type Waiters = Mutex<BTreeMap<TransactionKey, watch::Sender<Heard>>>;

/// What is known of a transaction that a request waits for.
#[derive(Debug, Clone, Default)]
struct Heard {
    /// Its outcome, from a proven source.
    outcome: Option<Outcome>,
    /// How often an unproven message said that it is final.
    hints: u64,
}

/// What a waiter learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The transaction is final.
    Final(Outcome),
    /// The transaction may be final; only its row can show it.
    Hint,
}

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
    heard: Option<watch::Receiver<Heard>>,
    /// How many hints this waiter knows of.
    hints: u64,
    waiters: Arc<Waiters>,
}

impl Completions {
    /// Starts to listen for one transaction.
    pub fn register(&self, key: &TransactionKey) -> Waiter {
        let mut waiters = self.waiters.lock();
        let sender = waiters.entry(key.clone()).or_insert_with(|| watch::Sender::new(Heard::default()));
        let (heard, hints) = (Some(sender.subscribe()), sender.borrow().hints);
        Waiter { key: key.clone(), heard, hints, waiters: Arc::clone(&self.waiters) }
    }

    /// Tells that a transaction became final.
    pub fn announce(&self, key: &TransactionKey, outcome: &Outcome) {
        let waiters = self.waiters.lock();
        if let Some(sender) = waiters.get(key) {
            sender.send_modify(|heard| heard.outcome = Some(outcome.clone()));
        }
    }

    /// Wakes the requests that wait for a transaction, so that they read its row: an unproven message says
    /// that it is final.
    pub fn hint(&self, key: &TransactionKey) {
        let waiters = self.waiters.lock();
        if let Some(sender) = waiters.get(key) {
            sender.send_modify(|heard| heard.hints = heard.hints.saturating_add(1));
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
        let waiters = self.waiters.lock();
        let awaited = keys.into_iter().any(|key| waiters.contains_key(key));
        drop(waiters);
        if awaited { seal.ask(address) } else { None }
    }
}

impl Waiter {
    /// Returns when the outcome was announced in this process; maybe never.
    pub async fn outcome(&mut self) -> Outcome {
        loop {
            if let News::Final(outcome) = self.news().await {
                return outcome;
            }
        }
    }

    /// Returns when the outcome was announced in this process, or a hint came that was not returned yet;
    /// maybe never. Several hints that came meanwhile are one.
    pub async fn news(&mut self) -> News {
        let known = self.hints;
        if let Some(receiver) = &mut self.heard
            && let Ok(heard) =
                receiver.wait_for(|heard| heard.outcome.is_some() || heard.hints != known).await
        {
            self.hints = heard.hints;
            return heard.outcome.clone().map_or(News::Hint, News::Final);
        }
        // The sender lives as long as a waiter does; without it nothing will ever come.
        futures::future::pending().await
    }

    /// The outcome, if it was announced by now.
    pub fn look(&self) -> Option<Outcome> {
        self.heard.as_ref().and_then(|receiver| receiver.borrow().outcome.clone())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.waiters.lock();
        // Inside the lock: of two waiters that go at once, the second one has to see that it is last.
        drop(self.heard.take());
        if waiters.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            waiters.remove(&self.key);
        }
    }
}
