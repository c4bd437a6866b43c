//! One receipt of a message: its content, and its lease while the work is done.

use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::decision::Work;
use postonce_shared::messaging::envelope::{Envelope, Names, Unreadable};
use postonce_shared::ports::fault::{Cause, StoreFault};
use postonce_shared::ports::queue::{Held, Lease, Message, QueueName, WorkQueue};

/// Reason why a message has no work that can be posted now.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// This version cannot decode the message completely.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Only a newer version can decode the message.
    #[error(transparent)]
    Newer(Cause),
    /// All work of the message is final.
    #[error("its work is settled")]
    Settled,
    /// The message must not be in this queue. Contains the reason for operators.
    #[error("{0}")]
    Refused(String),
    /// The message has no valid seal, so the transactions that it names must be read from the ledger first.
    #[error("it has no valid seal")]
    Unsealed(Names),
    /// The work is in the payload store, which is unavailable.
    #[error("the payload {name} could not be read")]
    PayloadUnavailable {
        /// Name of the payload.
        name: String,
        /// Body to write while the message waits.
        body: Vec<u8>,
        /// The fault of the payload store.
        #[source]
        source: Cause,
    },
    /// The payload does not exist or was replaced, and the work is not known to be settled.
    #[error(
        "its payload {0} was lost, and its transactions may have no other message: `postonce-web recover` finds them, \
         from 15 minutes after the message was sent; until then the message waits"
    )]
    PayloadMissing(String),
    /// The ledger, which is needed to read the transactions, is unavailable.
    #[error("the ledger could not be used")]
    LedgerUnavailable(#[source] Cause),
}

/// A received message with its current lease.
#[derive(Debug)]
pub struct Delivery<W> {
    /// The message as received.
    pub message: Message,
    /// The decoded content, or the reason why there is none.
    pub content: Result<W, DeliveryError>,
    state: Mutex<LeaseState>,
}

/// State that renewals read and change.
#[derive(Debug, Clone)]
struct LeaseState {
    /// The current lease; `None` after it was lost.
    lease: Option<Lease>,
    /// The current body of the message in the queue.
    body: Vec<u8>,
    /// Whether this receipt deleted or released the message.
    is_settled: bool,
}

impl<W> Delivery<W> {
    /// Creates the delivery of a message with this content.
    pub fn new(message: Message, content: Result<W, DeliveryError>) -> Self {
        let state =
            LeaseState { lease: Some(message.lease.clone()), body: message.body.clone(), is_settled: false };
        Self { message, content, state: Mutex::new(state) }
    }

    /// Returns the current lease; `None` after it was lost.
    pub fn lease(&self) -> Option<Lease> {
        self.state.lock().lease.clone()
    }

    /// Records that the message was deleted, or released with the received body or a newer one.
    pub fn settled(&self) {
        self.state.lock().is_settled = true;
    }

    /// Returns whether this receipt deleted or released the message. If not, the message may still record its attempt.
    pub fn is_settled(&self) -> bool {
        self.state.lock().is_settled
    }

    /// Renews the lease. Sends the current body again, because a queue replaces the body. A fault leaves the state unchanged:
    /// the lease may still be valid.
    ///
    /// # Errors
    /// [`StoreFault`] when the queue is unavailable.
    pub async fn renew(
        &self,
        queue: &dyn WorkQueue,
        name: &QueueName,
        visibility: Duration,
    ) -> Result<Held<()>, StoreFault> {
        let body = self.state.lock().body.clone();
        self.rewrite(queue, name, body, visibility).await
    }

    /// Replaces the body of the message, and hides the message for `visibility` from now. A fault leaves the state unchanged:
    /// the body may have been replaced, and the lease may be lost.
    ///
    /// # Errors
    /// [`StoreFault`] when the queue is unavailable.
    pub async fn rewrite(
        &self,
        queue: &dyn WorkQueue,
        name: &QueueName,
        body: Vec<u8>,
        visibility: Duration,
    ) -> Result<Held<()>, StoreFault> {
        let Some(lease) = self.lease() else { return Ok(Held::Lost) };
        let rewritten = queue.extend(name, &lease, &body, visibility).await?;
        let mut state = self.state.lock();
        match rewritten {
            Held::Ours(newest) => {
                *state = LeaseState { lease: Some(newest), body, is_settled: false };
                Ok(Held::Ours(()))
            }
            Held::Lost => {
                state.lease = None;
                Ok(Held::Lost)
            }
        }
    }
}

impl Delivery<Envelope> {
    /// Returns the delivery with other content.
    #[must_use]
    pub fn with(self, content: Result<Envelope, DeliveryError>) -> Self {
        Self { content, ..self }
    }

    /// Returns the transactions named in a message without a valid seal; `None` for any other message.
    pub const fn names(&self) -> Option<&Names> {
        match &self.content {
            Err(DeliveryError::Unsealed(names)) => Some(names),
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns the work of the message.
    pub fn items(&self) -> &[Work] {
        self.content.as_ref().map_or(&[], |envelope| envelope.items.as_slice())
    }

    /// Returns the number of receipts that count towards the maximum, including this one.
    pub fn receipts(&self) -> u32 {
        let forgiven = self.content.as_ref().map_or(0, |envelope| envelope.forgiven);
        self.message.dequeue_count.saturating_sub(forgiven)
    }
}
