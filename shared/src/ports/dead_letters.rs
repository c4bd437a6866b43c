//! What could not be posted, kept for a person: with its reason, for ever.

use async_trait::async_trait;

use super::fault::StoreFault;
use super::ledger::Listing;
use super::queue::QueueName;
use crate::domain::time::Timestamp;

/// A queue message that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The queue's id of the message; the letter's id as well.
    pub id: String,
    /// Where it came from.
    pub queue: QueueName,
    /// Why it was set aside: a sentence for a person, of at most
    /// [`crate::protocol::dead_letters::REASON_CHARS_MAX`] characters.
    pub reason: String,
    /// The body, whole, as it stood on the queue.
    pub body: Vec<u8>,
    /// How often it had been received.
    pub dequeue_count: u32,
    /// When it was sent.
    pub inserted_at: Timestamp,
    /// When it was set aside.
    pub dead_at: Timestamp,
    /// What a person decided; `None` while nobody did.
    pub resolution: Option<Resolution>,
}

/// What a person decided about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// What was decided.
    pub kind: ResolutionKind,
    /// By whom: the partner of the API key.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// The two things that can be done with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolutionKind {
    /// Its work was sent again.
    Replayed,
    /// Its work was given up: what was not final is rejected now.
    Discarded,
}

impl ResolutionKind {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }

    /// The kind with that code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Replayed, Self::Discarded].into_iter().find(|kind| kind.code() == code)
    }
}

/// The dead letters of one store. Bodies of any size up to 64 KiB are kept whole.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Keeps a letter. Adding the same id again changes nothing: the first reason stands, and so
    /// does its resolution.
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault>;

    /// Reads one letter.
    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault>;

    /// Letters that nobody resolved yet (`open_only`), or all of them, in the order of their ids.
    /// `cursor` is the `next` of the page before. At most `limit`.
    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault>;

    /// Takes a letter out of the open ones, with what was decided. The letter stays readable. False
    /// when there is no open letter with that id.
    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault>;

    /// How many open letters came from each queue.
    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault>;
}
