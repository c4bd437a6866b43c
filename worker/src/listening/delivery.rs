//! One receipt of a message: its content, and the lease on it while its work is done.

use std::time::Duration;

use parking_lot::Mutex;
use postonce_shared::domain::decision::Work;
use postonce_shared::messaging::envelope::{Envelope, Names, Unreadable};
use postonce_shared::ports::fault::{Cause, StoreFault};
use postonce_shared::ports::queue::{Held, Lease, Message, QueueName, WorkQueue};

/// The reason why a message contains no work to post now.
#[derive(Debug, thiserror::Error)]
pub enum NoWork {
    /// The message cannot be decoded, or only in part, or only by a newer version.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Only a newer version can decode the message.
    #[error(transparent)]
    Newer(Cause),
    /// All of its work is final.
    #[error("its work is settled")]
    Settled,
    /// The message can be decoded, but its order is not accepted. Contains a reason for operators.
    #[error("{0}")]
    Refused(String),
    /// The message has no valid seal: the rows of the transactions that it names have to be read first.
    #[error("it has no valid seal")]
    Unsealed(Names),
    /// The work is in the payload store, which is unavailable.
    #[error("the payload {name} could not be read")]
    PayloadUnavailable {
        /// Name of the payload.
        name: String,
        /// Body to write while the message waits.
        body: Vec<u8>,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The payload does not exist or was replaced, and nothing proves that its work is settled.
    #[error(
        "its payload {0} was lost, and its transactions may have no other message: `postonce-web recover` finds them, \
         from 15 minutes after the message was sent; until then the message waits"
    )]
    PayloadMissing(String),
    /// The ledger is unavailable: the work has to be accepted or read from its rows first.
    #[error("the ledger could not be used")]
    LedgerUnavailable(#[source] Cause),
    /// The order exceeds the request rate of its partner.
    #[error("the request rate of its partner is exceeded")]
    Postponed {
        /// Time until the order may be accepted.
        delay: Duration,
    },
}

/// A received message with its current lease.
#[derive(Debug)]
pub struct Delivery<W> {
    /// The message as received.
    pub message: Message,
    /// Its content.
    pub content: Result<W, NoWork>,
    state: Mutex<LeaseState>,
}

/// State that a renewal reads and changes.
#[derive(Debug, Clone)]
struct LeaseState {
    /// The current lease; `None` when it was lost.
    lease: Option<Lease>,
    /// The current body of the message on the queue.
    body: Vec<u8>,
    /// Whether the message was deleted or released by this receipt.
    is_settled: bool,
}

impl<W> Delivery<W> {
    /// Creates the delivery of a message with this content.
    pub fn new(message: Message, content: Result<W, NoWork>) -> Self {
        let state =
            LeaseState { lease: Some(message.lease.clone()), body: message.body.clone(), is_settled: false };
        Self { message, content, state: Mutex::new(state) }
    }

    /// Returns the current lease; `None` when it was lost.
    pub fn lease(&self) -> Option<Lease> {
        self.state.lock().lease.clone()
    }

    /// Records that the message was deleted, or released with the body that it had at the receipt or a newer one.
    pub fn settled(&self) {
        self.state.lock().is_settled = true;
    }

    /// Returns whether that is recorded. If not, the message may still record an attempt of this receipt.
    pub fn is_settled(&self) -> bool {
        self.state.lock().is_settled
    }

    /// Renews the lease. Sends the current body again, because a queue replaces the body. After a fault the state is
    /// unchanged: the lease may still be valid.
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

    /// Replaces the body of the message, and hides it for `visibility` from now. After a fault the state is unchanged:
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
    /// Returns the delivery with another content.
    #[must_use]
    pub fn with(self, content: Result<Envelope, NoWork>) -> Self {
        Self { content, ..self }
    }

    /// Returns the transactions that a message without a valid seal names; `None` for any other message.
    pub const fn names(&self) -> Option<&Names> {
        match &self.content {
            Err(NoWork::Unsealed(names)) => Some(names),
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns the work of the message.
    pub fn items(&self) -> &[Work] {
        self.content.as_ref().map_or(&[], |envelope| envelope.items.as_slice())
    }

    /// Returns the number of receipts that count against the maximum, including this one.
    pub fn receipts(&self) -> u32 {
        let forgiven = self.content.as_ref().map_or(0, |envelope| envelope.forgiven);
        self.message.dequeue_count.saturating_sub(forgiven)
    }
}
