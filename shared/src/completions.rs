//! Tells those who wait for a transaction what became of it, as soon as this process knows.
//!
//! Only a shortcut: whoever waits also reads the log, since another process may do the posting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::domain::ids::TransactionKey;
use crate::domain::transaction::Outcome;

type Waiters = Mutex<BTreeMap<TransactionKey, watch::Sender<Option<Outcome>>>>;

/// Where waiting requests and the worker of the same process meet.
#[derive(Debug, Default)]
pub struct Completions(Arc<Waiters>);

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
        let mut waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = waiters.entry(key.clone()).or_insert_with(|| watch::Sender::new(None));
        Waiter { key: key.clone(), outcome: Some(sender.subscribe()), waiters: Arc::clone(&self.0) }
    }

    /// Tells that a transaction became final.
    pub fn announce(&self, key: &TransactionKey, outcome: &Outcome) {
        let waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = waiters.get(key) {
            sender.send_replace(Some(outcome.clone()));
        }
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
