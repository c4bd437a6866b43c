//! Replies to the processes whose clients wait for a transaction. A lost reply only costs time: the request reads the
//! transaction row when its waiting time ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::completions::{Completion, Completions, Waiter};
use crate::cluster::reply_to::ReplyTo;
use crate::domain::ids::TransactionKey;

/// Sends outcomes to the processes that requested them.
pub trait Replies: Send + Sync {
    /// Sends the outcome of a final transaction to the return address of the work. Nothing is sent to an address
    /// without a valid proof that a process of the bank wrote it. Never waits and never fails.
    fn send(&self, to: &ReplyTo, completion: Completion);
}

/// Sends nothing. For a process without peers.
#[derive(Debug, Clone, Copy)]
pub struct NoReplies;

impl Replies for NoReplies {
    fn send(&self, _: &ReplyTo, _: Completion) {}
}

/// Replies to send after work is posted. Call [`Self::add`] **before** the work is posted.
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
    /// Creates an empty set. `completions` belong to the process that posts.
    pub fn new(completions: &Arc<Completions>, replies: &Arc<dyn Replies>) -> Self {
        Self {
            completions: Arc::clone(completions),
            replies: Arc::clone(replies),
            pending: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Adds a reply for a transaction. Requests that wait in this process need no reply.
    pub fn add(&mut self, key: &TransactionKey, to: &ReplyTo) {
        let elsewhere = self.completions.address().is_none_or(|own| !to.is_at(own));
        if elsewhere && self.known.insert((key.clone(), to.clone())) {
            let waiter = self.completions.register(key);
            self.pending.push(PendingReply { key: key.clone(), to: to.clone(), waiter });
        }
    }

    /// Sends the outcomes of the final transactions. The worker that receives the work again replies for the others.
    pub fn send(self) {
        for PendingReply { key, to, waiter } in self.pending {
            if let Some(outcome) = waiter.known_outcome() {
                self.replies.send(&to, Completion { key, outcome });
            }
        }
    }
}
