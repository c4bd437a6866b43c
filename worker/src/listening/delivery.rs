//! One receipt of one message: what is in it, and the lease on it while its work is done.

use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::decision::Work;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{Envelope, Names, Unreadable};
use postonce_shared::ports::fault::{Cause, StoreFault};
use postonce_shared::ports::queue::{Held, Lease, Message, QueueName, WorkQueue};

/// Why there is no work to be done for a message.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// It cannot be read, or not all of it, or not yet.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// All of its work is final.
    #[error("its work is settled")]
    Settled,
    /// It can be read, but what it asks for cannot be accepted: a sentence for a person.
    #[error("{0}")]
    Refused(String),
    /// It has no valid seal: the rows of the transactions that it names have to be read first.
    #[error("it has no valid seal")]
    Unsealed(Names),
    /// Its work lies in the payload store, which could not be used now.
    #[error("the payload {name} could not be read")]
    PayloadAway {
        /// The name of the payload.
        name: String,
        /// The body to wait with.
        body: Vec<u8>,
        /// Why.
        #[source]
        source: Cause,
    },
    /// Its work has to be accepted first, and the ledger could not be used now.
    #[error("its work could not be accepted")]
    LedgerAway(#[source] Cause),
    /// It is an order above the rate of its partner.
    #[error("its partner is above its rate")]
    Postponed {
        /// How long it has to wait until there may be room for it.
        delay: Duration,
    },
}

/// A received message and the newest lease on it.
#[derive(Debug)]
pub struct Delivery<W> {
    /// The message as it was received.
    pub message: Message,
    /// What is in it.
    pub content: Result<W, Unopened>,
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

impl<W> Delivery<W> {
    /// A message, and what was read in it.
    pub fn new(message: Message, content: Result<W, Unopened>) -> Self {
        let hold = Hold { lease: Some(message.lease.clone()), body: message.body.clone() };
        Self { message, content, hold: Mutex::new(hold) }
    }

    /// The newest lease; `None` when it was lost.
    pub fn lease(&self) -> Option<Lease> {
        self.hold.lock().lease.clone()
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
        let body = self.hold.lock().body.clone();
        self.rewrite(queue, name, body, visibility).await
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
        let mut hold = self.hold.lock();
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

impl Delivery<Envelope> {
    /// The same with another content.
    #[must_use]
    pub fn with(self, content: Result<Envelope, Unopened>) -> Self {
        Self { content, ..self }
    }

    /// The transactions that it names without a valid seal; `None` where it has one, or is no envelope.
    pub const fn names(&self) -> Option<&Names> {
        match &self.content {
            Err(Unopened::Unsealed(names)) => Some(names),
            Ok(_) | Err(_) => None,
        }
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

    /// Writes on the message that an attempt on its item alone begins. Should the worker die over
    /// it, the next one knows.
    ///
    /// # Errors
    /// [`StoreFault`] when the queue could not be reached; the attempt must not begin then.
    pub async fn begin_alone(
        &self,
        queue: &dyn WorkQueue,
        name: &QueueName,
        seal: &Seal,
        visibility: Duration,
    ) -> Result<Held<()>, StoreFault> {
        let Ok(envelope) = &self.content else { return Ok(Held::Lost) };
        let begun = Envelope { suspect: envelope.suspect.saturating_add(1), ..envelope.clone() };
        self.rewrite(queue, name, begun.encode(seal), visibility).await
    }
}
