//! Where work is: in how many messages, and in which open dead letters.

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::domain::ids::TransactionKey;

/// Work on its way.
#[derive(Debug, Default)]
pub struct WorkInFlight {
    /// In how many messages each transaction stands.
    messages: BTreeMap<TransactionKey, u64>,
    /// What stands in a message, since it was seen. A queue names a message only when it is received.
    seen: BTreeMap<String, Vec<TransactionKey>>,
    letters: BTreeMap<String, BTreeSet<TransactionKey>>,
    /// Letters that were taken out: keeping one again changes nothing.
    resolved: BTreeSet<String>,
}

impl WorkInFlight {
    /// A message is on a queue.
    pub fn sent(&mut self, keys: Vec<TransactionKey>) {
        for key in keys {
            let count = self.messages.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// A message was received.
    pub fn seen(&mut self, id: &str, keys: Vec<TransactionKey>) {
        self.seen.entry(id.to_owned()).or_insert(keys);
    }

    /// A message has another body now. The answer is what stood in it before.
    pub fn changed(&mut self, id: &str, keys: Vec<TransactionKey>) -> Vec<TransactionKey> {
        let before = self.deleted(id);
        self.sent(keys.clone());
        self.seen.insert(id.to_owned(), keys);
        before
    }

    /// A message is gone. The answer is what stood in it.
    pub fn deleted(&mut self, id: &str) -> Vec<TransactionKey> {
        let keys = self.seen.remove(id).unwrap_or_default();
        for key in &keys {
            if let Some(count) = self.messages.get_mut(key) {
                *count = count.saturating_sub(1);
            }
        }
        keys
    }

    /// A letter is kept.
    pub fn set_aside(&mut self, id: &str, keys: Vec<TransactionKey>) {
        if !self.resolved.contains(id) {
            self.letters.entry(id.to_owned()).or_insert_with(|| keys.into_iter().collect());
        }
    }

    /// A letter is taken out. The answer is what stood in it.
    pub fn resolved(&mut self, id: &str) -> Vec<TransactionKey> {
        self.resolved.insert(id.to_owned());
        self.letters.remove(id).unwrap_or_default().into_iter().collect()
    }

    /// Whether the work of a transaction is anywhere.
    pub fn is_somewhere(&self, key: &TransactionKey) -> bool {
        self.messages.get(key).is_some_and(|count| *count > 0)
            || self.letters.values().any(|keys| keys.contains(key))
    }
}
