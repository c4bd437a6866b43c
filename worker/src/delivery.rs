//! One receipt of one message: decode it, keep it leased while its work is done, and choose what
//! becomes of it. The choice is a pure function ([`choose`]).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postonce_shared::domain::decision::Work;
use postonce_shared::envelope::{Envelope, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::queue::{Held, Lease, Message, QueueName, WorkQueue};
use postonce_shared::post::PostFault;

/// A received message and the newest lease on it.
#[derive(Debug)]
pub struct Delivery {
    /// The message as it was received.
    pub message: Message,
    /// What is in it.
    pub content: Result<Envelope, Unreadable>,
    hold: Mutex<Hold>,
}

/// What a renewal needs, and changes.
#[derive(Debug, Clone)]
struct Hold {
    /// The newest lease; `None` when it was lost.
    lease: Option<Lease>,
    /// The body as it now stands on the queue.
    body: Vec<u8>,
}

impl Delivery {
    /// Decodes a message.
    pub fn new(message: Message) -> Self {
        let content = Envelope::decode(&message.body);
        let hold = Hold { lease: Some(message.lease.clone()), body: message.body.clone() };
        Self { message, content, hold: Mutex::new(hold) }
    }

    /// The work in it.
    pub fn items(&self) -> &[Work] {
        self.content.as_ref().map_or(&[], |envelope| envelope.items.as_slice())
    }

    /// Receipts that count against the maximum, this one included.
    pub fn receipts(&self) -> u32 {
        let forgiven = self.content.as_ref().map_or(0, |envelope| envelope.forgiven);
        self.message.dequeue_count.saturating_sub(forgiven)
    }

    /// The newest lease; `None` when it was lost.
    pub fn lease(&self) -> Option<Lease> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner).lease.clone()
    }

    /// Prolongs the lease. The body is sent along exactly as it stands: a queue replaces it. A fault
    /// changes nothing; the lease may still be ours.
    ///
    /// # Errors
    /// [`StoreFault`] when the queue could not be reached.
    pub async fn renew(
        &self,
        queue: &dyn WorkQueue,
        name: &QueueName,
        visibility: Duration,
    ) -> Result<Held<()>, StoreFault> {
        let body = self.hold.lock().unwrap_or_else(PoisonError::into_inner).body.clone();
        self.rewrite(queue, name, body, visibility).await
    }

    /// Writes on the message that an attempt on its item alone begins. Should the worker die over
    /// it, the next one knows.
    ///
    /// # Errors
    /// [`StoreFault`] when the queue could not be reached; the attempt must not begin then.
    pub async fn begin_alone(
        &self,
        queue: &dyn WorkQueue,
        name: &QueueName,
        visibility: Duration,
    ) -> Result<Held<()>, StoreFault> {
        let Ok(envelope) = &self.content else { return Ok(Held::Lost) };
        let begun = Envelope { suspect: envelope.suspect.saturating_add(1), ..envelope.clone() };
        self.rewrite(queue, name, begun.encode(), visibility).await
    }

    async fn rewrite(
        &self,
        queue: &dyn WorkQueue,
        name: &QueueName,
        body: Vec<u8>,
        visibility: Duration,
    ) -> Result<Held<()>, StoreFault> {
        let Some(lease) = self.lease() else { return Ok(Held::Lost) };
        let rewritten = queue.extend(name, &lease, &body, visibility).await?;
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        match rewritten {
            Held::Ours(newest) => {
                *hold = Hold { lease: Some(newest), body };
                Ok(Held::Ours(()))
            }
            Held::Lost => {
                hold.lease = None;
                Ok(Held::Lost)
            }
        }
    }
}

/// How a message is to be worked off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Treatment {
    /// Together with all others.
    Together,
    /// It was received too often and never settled. Perhaps nobody ever tried; perhaps it ended its
    /// workers. Its single item is tried alone, and that is written on the message first.
    Alone,
    /// As above, but it has many items: they are taken apart, and each starts afresh.
    Apart,
    /// Its single item was tried alone too often, and no attempt ever ended.
    GiveUp,
}

/// How to work off a message: by its items, the receipts that count (this one included), and the
/// attempts on it alone that never ended.
///
/// A receipt is no attempt: answers get lost, and a worker that dies takes along what it holds
/// beside the one message that killed it. So receipts alone never make a dead letter.
pub const fn treat(items: usize, receipts: u32, suspect: u32, dequeue_count_max: u32) -> Treatment {
    if receipts <= dequeue_count_max || items == 0 {
        Treatment::Together
    } else if items > 1 {
        Treatment::Apart
    } else if suspect < dequeue_count_max {
        Treatment::Alone
    } else {
        Treatment::GiveUp
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Its work is final: it is removed.
    Delete,
    /// What is left of it is tried again later. `forgive`: this receipt was nobody's failure.
    RetryLater {
        /// What is not final.
        rest: Vec<Work>,
        /// Whether this receipt must not count.
        forgive: bool,
    },
    /// What is left of it is sent again, one item per message, so that a bad one stands alone.
    Split {
        /// What is not final.
        rest: Vec<Work>,
    },
    /// It is set aside for a person, unless its row says by now that it is final.
    DeadLetter {
        /// The single item that cannot be posted.
        item: Box<Work>,
        /// Why: a sentence for a person.
        reason: String,
    },
}

/// What became of each item of a message, in order.
pub type Results<'a> = &'a [(&'a Work, Result<(), PostFault>)];

/// Chooses from what became of the items. `receipts` are those that count, this one included.
///
/// An outage never turns healthy work into dead letters, however long it lasts: a receipt that met
/// a transient fault does not count. And only an item that was tried alone is set aside, since work
/// of the same account that is tried together can fail together.
pub fn choose(results: Results<'_>, receipts: u32, alone: bool, dequeue_count_max: u32) -> Disposition {
    let mut rest: Vec<Work> = Vec::new();
    let mut transient = false;
    let mut reason = String::new();
    for (work, result) in results {
        let Err(fault) = result else { continue };
        rest.push((*work).clone());
        if fault.is_transient() {
            transient = true;
        } else if reason.is_empty() {
            reason = chain(fault);
        }
    }
    match rest.as_slice() {
        [] => Disposition::Delete,
        _ if transient => Disposition::RetryLater { rest, forgive: true },
        [item] if alone => Disposition::DeadLetter { item: Box::new(item.clone()), reason },
        [_, _, ..] if receipts >= dequeue_count_max => Disposition::Split { rest },
        _ => Disposition::RetryLater { rest, forgive: false },
    }
}

#[cfg(test)]
mod tests;
