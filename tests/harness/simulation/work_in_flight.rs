//! The messages and the open dead letters that contain work.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use flate2::read::GzDecoder;
use postonce_shared::testing::prelude::*;
use serde_json::Value;

/// Work that is not settled yet.
#[derive(Debug, Default)]
pub struct WorkInFlight {
    /// Number of messages that contain each transaction.
    messages: BTreeMap<TransactionKey, u64>,
    /// Content of each received message. A queue assigns the id of a message only when it is received.
    contents: BTreeMap<String, Vec<TransactionKey>>,
    /// The transactions of each claimed payload, which may be lost.
    payloads: BTreeMap<String, Vec<TransactionKey>>,
    letters: BTreeMap<String, BTreeSet<TransactionKey>>,
    /// Resolved dead letters. Adding one of them again has no effect.
    resolved: BTreeSet<String>,
}

impl WorkInFlight {
    /// Records the content of a payload of work.
    pub fn payload_stored(&mut self, name: &str, body: &[u8]) {
        let mut content = Vec::new();
        if name.starts_with(PAYLOADS) && GzDecoder::new(body).read_to_end(&mut content).is_ok() {
            self.payloads.insert(name.to_owned(), self.keys_in(&content));
        }
    }

    /// Returns the transactions in a message body or in the payload that it claims, without the decoder of the bank.
    pub fn keys_in(&self, body: &[u8]) -> Vec<TransactionKey> {
        let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(name) = envelope["payload"].as_str() {
            return self.payloads.get(name).cloned().unwrap_or_default();
        }
        let items = envelope["items"].as_array().cloned().unwrap_or_default();
        let key = |item: &Value| {
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            Some(TransactionKey {
                account: AccountKey { user: text("u").parse().ok()?, account: text("c").parse().ok()? },
                partner: PartnerId::parse(&text("p")).ok()?,
                message: text("m").parse().ok()?,
            })
        };
        items.iter().filter_map(key).collect()
    }

    /// Adds the work of a sent message.
    pub fn sent(&mut self, keys: Vec<TransactionKey>) {
        for key in keys {
            let count = self.messages.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Records the content of a received message.
    pub fn received(&mut self, id: &str, keys: Vec<TransactionKey>) {
        self.contents.entry(id.to_owned()).or_insert(keys);
    }

    /// Replaces the content of a message. Returns the previous content.
    pub fn changed(&mut self, id: &str, keys: Vec<TransactionKey>) -> Vec<TransactionKey> {
        let before = self.deleted(id);
        self.sent(keys.clone());
        self.contents.insert(id.to_owned(), keys);
        before
    }

    /// Removes a message. Returns its content.
    pub fn deleted(&mut self, id: &str) -> Vec<TransactionKey> {
        let keys = self.contents.remove(id).unwrap_or_default();
        for key in &keys {
            if let Some(count) = self.messages.get_mut(key) {
                *count = count.saturating_sub(1);
            }
        }
        keys
    }

    /// Adds a dead letter.
    pub fn set_aside(&mut self, id: &str, keys: Vec<TransactionKey>) {
        if !self.resolved.contains(id) {
            self.letters.entry(id.to_owned()).or_insert_with(|| keys.into_iter().collect());
        }
    }

    /// Removes a dead letter. Returns its content.
    pub fn resolved(&mut self, id: &str) -> Vec<TransactionKey> {
        self.resolved.insert(id.to_owned());
        self.letters.remove(id).unwrap_or_default().into_iter().collect()
    }

    /// Returns whether a message or an open dead letter contains the transaction.
    pub fn exists(&self, key: &TransactionKey) -> bool {
        self.messages.get(key).is_some_and(|count| *count > 0)
            || self.letters.values().any(|keys| keys.contains(key))
    }
}
