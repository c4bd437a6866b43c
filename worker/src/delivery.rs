//! One receipt of one message: decode it, keep it leased while its work is done, and choose what
//! becomes of it. The choice is a pure function ([`choose`]).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postonce_shared::domain::decision::Work;
use postonce_shared::envelope::{Envelope, Unreadable};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::queue::{Held, Lease, Message, QueueName, WorkQueue};
use postonce_shared::post::PostFault;

/// A received message and the newest lease on it.
#[derive(Debug)]
pub struct Delivery {
    /// The message as it was received.
    pub message: Message,
    /// What is in it.
    pub content: Result<Envelope, Unreadable>,
    /// The newest lease; `None` when it was lost.
    lease: Mutex<Option<Lease>>,
}

impl Delivery {
    /// Decodes a message.
    pub fn new(message: Message) -> Self {
        let content = Envelope::decode(&message.body);
        let lease = Mutex::new(Some(message.lease.clone()));
        Self { message, content, lease }
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
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prolongs the lease. The body is sent along exactly as it came: a queue replaces it. A fault
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
        let Some(lease) = self.lease() else { return Ok(Held::Lost) };
        let renewed = queue.extend(name, &lease, &self.message.body, visibility).await?;
        let newest = match renewed {
            Held::Ours(lease) => Some(lease),
            Held::Lost => None,
        };
        let held = if newest.is_some() { Held::Ours(()) } else { Held::Lost };
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = newest;
        Ok(held)
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
/// a transient fault does not count.
pub fn choose(results: Results<'_>, receipts: u32, dequeue_count_max: u32) -> Disposition {
    let mut rest: Vec<Work> = Vec::new();
    let mut transient = false;
    let mut reason = String::new();
    for (work, result) in results {
        let Err(fault) = result else { continue };
        rest.push((*work).clone());
        if fault.is_transient() {
            transient = true;
        } else if reason.is_empty() {
            reason = sentence(fault);
        }
    }
    if rest.is_empty() {
        return Disposition::Delete;
    }
    if transient || receipts < dequeue_count_max {
        return Disposition::RetryLater { rest, forgive: transient };
    }
    alone_or_split(rest, reason)
}

/// Chooses before any work is done: a message that was received too often, and never settled, may
/// be what ends its workers. `None`: go on.
pub fn choose_before(items: &[Work], receipts: u32, dequeue_count_max: u32) -> Option<Disposition> {
    if receipts <= dequeue_count_max || items.is_empty() {
        return None;
    }
    let reason = format!(
        "it was received {receipts} times (at most {dequeue_count_max} are allowed) and never settled; \
         the worker may have died over it each time"
    );
    Some(alone_or_split(items.to_vec(), reason))
}

fn alone_or_split(mut rest: Vec<Work>, reason: String) -> Disposition {
    if rest.len() > 1 {
        return Disposition::Split { rest };
    }
    let item = rest.pop().expect("there is something left");
    Disposition::DeadLetter { item: Box::new(item), reason }
}

/// A fault and its causes, as one sentence.
pub fn sentence(fault: &(dyn std::error::Error + 'static)) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
