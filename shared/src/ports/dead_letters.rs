//! Messages that could not be posted, kept permanently for operators, with the reason.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::Listing;
use super::queue::QueueName;
use crate::domain::time::Timestamp;

/// A queue message that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue's id of the message, which is also the id of the dead letter.
    pub id: String,
    /// The queue that it came from.
    pub queue: QueueName,
    /// The reason, as a sentence for operators of at most
    /// [`crate::protocol::dead_letters::REASON_CHARS_MAX`] characters.
    pub reason: String,
    /// The complete body, as it was on the queue.
    pub body: Vec<u8>,
    /// The number of deliveries.
    pub dequeue_count: u32,
    /// The time when the message was sent.
    pub inserted_at: Timestamp,
    /// The time when it was set aside.
    pub dead_at: Timestamp,
    /// The decision of an operator; `None` while the dead letter is open.
    pub resolution: Option<Resolution>,
}

/// The decision of an operator about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The kind of decision.
    pub kind: ResolutionKind,
    /// The partner of the API key that was used.
    pub by: String,
    /// The time of the decision.
    pub at: Timestamp,
}

/// The possible decisions about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolutionKind {
    /// Its work was sent again.
    Replayed,
    /// Its work was abandoned: transactions that were not final are rejected now.
    Discarded,
}

impl ResolutionKind {
    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }

    /// Returns the kind with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Replayed, Self::Discarded].into_iter().find(|kind| kind.code() == code)
    }
}

/// The dead letters of one store. Bodies of up to 64 KiB are kept completely.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Stores a dead letter. Adding the same id again changes nothing: the first reason and its resolution
    /// are kept.
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault>;

    /// Reads one dead letter.
    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault>;

    /// Returns open dead letters (`open_only`), or all of them, in the order of their ids. `cursor` is the `next`
    /// of the previous page. At most `limit`.
    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault>;

    /// Closes an open dead letter with a decision. It can still be read. Returns false when there is no open dead
    /// letter with this id.
    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault>;

    /// Returns the number of open dead letters by queue of origin.
    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault>;
}
