//! The work queue: at least once, in any order, with a lease on what was received.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::time::Timestamp;

/// Most messages of one receive.
pub const RECEIVE_MAX: usize = 32;

/// Most bytes of a message body: base64 of it fits the 64 KiB of an Azure queue message.
pub const BODY_BYTES_MAX: usize = 48 * 1024;

/// Longest name of a queue, in characters: a prefix before it still fits the 63 of Azure.
const NAME_CHARS_MAX: usize = 32;

/// The name of a queue within the store: lower-case letters, digits and `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// The queue of one partition of a type of work, such as `work-0`.
    pub fn of_partition(work: &str, partition: u16) -> Self {
        let sound = work.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        assert!(sound && !work.is_empty(), "{work:?} cannot name a queue");
        Self(format!("{work}-{partition}"))
    }

    /// The queue that another process named; `None` when no queue can have that name.
    pub fn parse(text: &str) -> Option<Self> {
        let (work, partition) = text.rsplit_once('-')?;
        let sound = work.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !sound || work.is_empty() {
            return None;
        }
        let name = Self::of_partition(work, partition.parse().ok()?);
        // One text for one queue, and none that only costs memory.
        (name.as_str() == text && text.len() <= NAME_CHARS_MAX).then_some(name)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind of work that it carries.
    pub fn kind(&self) -> &str {
        self.0.rsplit_once('-').map_or(self.as_str(), |(kind, _)| kind)
    }

    /// Its number among the queues of its kind.
    pub fn partition(&self) -> u16 {
        self.0.rsplit_once('-').and_then(|(_, partition)| partition.parse().ok()).unwrap_or(0)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The proof of a lease on one receipt of one message. Every renewal gives a new one; only the
/// newest counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The queue's own id of the message, the same at every receipt.
    pub message_id: String,
    /// The queue's word for this receipt.
    pub pop_receipt: String,
}

/// A message as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The lease on it.
    pub lease: Lease,
    /// Its body, at most [`BODY_BYTES_MAX`] bytes when it was sent by us.
    pub body: Vec<u8>,
    /// How often it was received, this time included.
    pub dequeue_count: u32,
    /// When it was sent.
    pub inserted_at: Timestamp,
}

/// What became of an operation on a received message.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held<T> {
    /// It was still ours; done.
    Ours(T),
    /// The lease was lost: somebody else received the message, or it is gone. Nothing was done.
    Lost,
}

/// How much waits in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Messages, visible and not. May be approximate.
    pub depth: u64,
    /// When the message at the visible head was sent; `None` when none is visible.
    pub head_inserted_at: Option<Timestamp>,
}

/// The queues of one store. A queue that was never used is empty.
#[async_trait]
pub trait WorkQueue: Send + Sync {
    /// Puts a message on the queue; it never expires. Confirmed means that it is stored. After a
    /// fault it may be there or may still come: sending twice is always safe.
    ///
    /// Invisible for `delay` first. A body of more than [`BODY_BYTES_MAX`] bytes is refused, unless
    /// the store can have given it: foreign producers may write more, and what was received can be
    /// sent again.
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault>;

    /// Takes up to `max` (at most [`RECEIVE_MAX`]) visible messages and hides them for
    /// `visibility`. Roughly in order.
    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault>;

    /// Hides a received message for `visibility` from now (zero: gives it back at once) and replaces
    /// its body. Whoever only wants more time passes the body that was received, however large.
    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault>;

    /// Removes a received message for ever.
    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault>;

    /// How much waits.
    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault>;
}

#[cfg(test)]
mod tests {
    use super::QueueName;

    #[test]
    fn only_names_of_queues_are_read() {
        for partition in [0, 7, u16::MAX] {
            let name = QueueName::of_partition("work", partition);
            assert_eq!(QueueName::parse(name.as_str()), Some(name));
        }
        for wrong in ["", "work", "work-", "-1", "work-01", "work-+1", "Work-1", "work-65536", "a/b-1"] {
            assert_eq!(QueueName::parse(wrong), None, "{wrong}");
        }
        assert_eq!(QueueName::parse(&format!("{}-1", "w".repeat(40))), None);
    }
}
