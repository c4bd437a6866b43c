//! Replies that are owed for work in hand: to processes elsewhere, where somebody waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::completions::{Completion, Completions, Waiter};
use crate::domain::ids::TransactionKey;
use crate::ports::replies::Replies;
use crate::reply_to::ReplyTo;

/// What is owed for some work. Note it **before** the work is posted, and pay after.
pub struct OwedReplies {
    completions: Arc<Completions>,
    replies: Arc<dyn Replies>,
    owed: Vec<Owed>,
    noted: BTreeSet<(TransactionKey, ReplyTo)>,
}

struct Owed {
    key: TransactionKey,
    to: ReplyTo,
    waiter: Waiter,
}

impl OwedReplies {
    /// Nothing is owed yet. `completions` are those of the process that posts.
    pub fn new(completions: &Arc<Completions>, replies: &Arc<dyn Replies>) -> Self {
        Self {
            completions: Arc::clone(completions),
            replies: Arc::clone(replies),
            owed: Vec::new(),
            noted: BTreeSet::new(),
        }
    }

    /// Notes that a process waits for a transaction. Whoever waits in this process hears of it
    /// anyway.
    pub fn note(&mut self, key: &TransactionKey, to: &ReplyTo) {
        let elsewhere = self.completions.address().is_none_or(|own| !to.is_at(own));
        if elsewhere && self.noted.insert((key.clone(), to.clone())) {
            let waiter = self.completions.register(key);
            self.owed.push(Owed { key: key.clone(), to: to.clone(), waiter });
        }
    }

    /// Tells what became final. What did not stays owed by whoever receives the work again.
    pub fn pay(self) {
        for Owed { key, to, waiter } in self.owed {
            if let Some(outcome) = waiter.look() {
                self.replies.tell(&to, Completion { key, outcome });
            }
        }
    }
}
