//! Messages that could not be posted, kept permanently for operators, with the reason.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::Listing;
use super::queue::QueueName;
use crate::domain::time::Timestamp;

/// A queue message that was removed from processing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The id that the queue gave the message. It is also the id of the dead letter.
    pub id: String,
    /// The queue of origin.
    pub queue: QueueName,
    /// The reason, as a sentence for operators of at most
    /// [`crate::protocol::dead_letters::REASON_CHARS_MAX`] characters.
    pub reason: String,
    /// The complete body of the queue message.
    pub body: Vec<u8>,
    /// The number of deliveries.
    pub dequeue_count: u32,
    /// When the message was sent.
    pub inserted_at: Timestamp,
    /// When the dead letter was created.
    pub dead_at: Timestamp,
    /// The decision of an operator; `None` while the dead letter is open.
    pub resolution: Option<Resolution>,
}

/// The decision of an operator about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The kind of decision.
    pub kind: ResolutionKind,
    /// The partner of the API key that the operator used.
    pub by: String,
    /// The time of the decision.
    pub at: Timestamp,
}

/// The possible decisions about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolutionKind {
    /// The work was sent again.
    Replayed,
    /// The work was abandoned: transactions that were not final have been rejected.
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
    /// Stores a dead letter. Adding the same id again has no effect: the first reason and its resolution are kept.
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault>;

    /// Reads one dead letter.
    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault>;

    /// Returns at most `limit` dead letters in id order, only open ones if `open_only`. `cursor` is the `next` of the
    /// previous page.
    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault>;

    /// Closes an open dead letter with a decision. It can still be read. Returns `false` if there is no open dead letter
    /// with this id.
    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault>;

    /// Returns the number of open dead letters by queue of origin.
    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault>;
}
