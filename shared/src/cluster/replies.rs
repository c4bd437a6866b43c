//! Replies to the processes whose clients wait for a transaction. A lost reply costs delay, never an answer: a
//! request reads the transaction row when its waiting time ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::completions::{Completion, Completions, Waiter};
use crate::cluster::reply_to::ReplyTo;
use crate::domain::ids::TransactionKey;

/// Sends outcomes to the processes that requested them.
pub trait Replies: Send + Sync {
    /// Sends the outcome of a final transaction to the address that came with the work. Nothing is sent to an address
    /// without a valid proof that a process of the bank wrote it. Never waits, never fails.
    fn send(&self, to: &ReplyTo, completion: Completion);
}

/// Sends nothing: for a process without peers.
#[derive(Debug, Clone, Copy)]
pub struct NoReplies;

impl Replies for NoReplies {
    fn send(&self, _: &ReplyTo, _: Completion) {}
}

/// The replies to send after work is posted. Add the addresses **before** the work is posted, and send after.
pub struct PendingReplies {
    completions: Arc<Completions>,
    replies: Arc<dyn Replies>,
    pending: Vec<PendingReply>,
    known: BTreeSet<(TransactionKey, ReplyTo)>,
}

struct PendingReply {
    key: TransactionKey,
    to: ReplyTo,
    waiter: Waiter,
}

impl PendingReplies {
    /// Creates an empty set of replies. `completions` are those of the process that posts.
    pub fn new(completions: &Arc<Completions>, replies: &Arc<dyn Replies>) -> Self {
        Self {
            completions: Arc::clone(completions),
            replies: Arc::clone(replies),
            pending: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Adds a reply for a transaction. Requests that wait in this process are completed without one.
    pub fn add(&mut self, key: &TransactionKey, to: &ReplyTo) {
        let elsewhere = self.completions.address().is_none_or(|own| !to.is_at(own));
        if elsewhere && self.known.insert((key.clone(), to.clone())) {
            let waiter = self.completions.register(key);
            self.pending.push(PendingReply { key: key.clone(), to: to.clone(), waiter });
        }
    }

    /// Sends the outcomes of the transactions that are final. The others are replied to by the worker to which the
    /// work is redelivered.
    pub fn send(self) {
        for PendingReply { key, to, waiter } in self.pending {
            if let Some(outcome) = waiter.known_outcome() {
                self.replies.send(&to, Completion { key, outcome });
            }
        }
    }
}
