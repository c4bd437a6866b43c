//! The work queue: at-least-once delivery without guaranteed order, and a lease on each received message.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::fault::StoreFault;
use crate::domain::time::Timestamp;

/// Maximum number of messages in one receive.
pub const RECEIVE_MAX: usize = 32;

/// Maximum size of a message body in bytes. Its base64 form fits the 64 KiB of an Azure queue message.
pub const BODY_BYTES_MAX: usize = 48 * 1024;

/// Maximum length of a queue name in characters. With a prefix, it fits the 63 characters of Azure.
const NAME_CHARS_MAX: usize = 32;

/// The kind of every ingest queue.
pub const INGEST: &str = "ingest";

/// Separates the kind of an ingest queue from its own name. No other name contains it.
const INGEST_SEPARATOR: char = ':';

/// The name of a queue within the store. A queue of the bank has a kind and a number, such as `work-0`. An ingest queue, to which
/// direct producers write, is named by its operator: `ingest:orders` is the queue `orders`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// Returns the queue of one partition of a kind of work, such as `work-0`.
    pub fn of_partition(work: &str, partition: u16) -> Self {
        let valid = work.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        assert!(valid && !work.is_empty(), "{work:?} cannot name a queue");
        Self(format!("{work}-{partition}"))
    }

    /// Returns the ingest queue with this name of its own, which any store accepts: 3 to 63 lower-case letters, digits and single
    /// hyphens, with a letter or a digit at both ends; `None` for any other name.
    pub fn of_ingest(name: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let has_lone_hyphen = name.starts_with('-') || name.ends_with('-') || name.contains("--");
        let is_valid = (3..=63).contains(&name.len()) && name.bytes().all(is_allowed) && !has_lone_hyphen;
        is_valid.then(|| Self(format!("{INGEST}{INGEST_SEPARATOR}{name}")))
    }

    /// Parses a queue name sent by another process; `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let name = Self::of_stored(text)?;
        // Only the normal form is valid, so that every queue has one name and memory per name is bounded.
        (name.as_str() == text && (name.ingest().is_some() || text.len() <= NAME_CHARS_MAX)).then_some(name)
    }

    /// Parses a queue name that a store contains, which may be longer than those that [`Self::parse`] accepts.
    pub fn of_stored(text: &str) -> Option<Self> {
        if let Some((INGEST, name)) = text.split_once(INGEST_SEPARATOR) {
            return Self::of_ingest(name);
        }
        let (work, partition) = text.rsplit_once('-')?;
        let is_valid = work.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !is_valid || work.is_empty() {
            return None;
        }
        Some(Self::of_partition(work, partition.parse().ok()?))
    }

    /// Returns the own name of an ingest queue; `None` for a queue of the bank.
    pub fn ingest(&self) -> Option<&str> {
        self.0.split_once(INGEST_SEPARATOR).map(|(_, name)| name)
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the kind of work in the queue.
    pub fn kind(&self) -> &str {
        if self.ingest().is_some() {
            return INGEST;
        }
        self.0.rsplit_once('-').map_or(self.as_str(), |(kind, _)| kind)
    }

    /// Returns the number of a queue of the bank within its kind.
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

/// A lease on one delivery of a message. Each renewal returns a new lease and invalidates the old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The id that the queue gave the message, the same for every delivery.
    pub message_id: String,
    /// The identifier of this delivery.
    pub pop_receipt: String,
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The lease on the message.
    pub lease: Lease,
    /// The body, at most [`BODY_BYTES_MAX`] bytes if the bank sent it.
    pub body: Vec<u8>,
    /// The number of deliveries, including this one.
    pub dequeue_count: u32,
    /// When the message was sent.
    pub inserted_at: Timestamp,
}

/// Result of an operation on a received message.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held<T> {
    /// The lease was valid, and the operation was done.
    Ours(T),
    /// The lease was lost, because the message was delivered again or deleted. Nothing was done.
    Lost,
}

/// Size and age of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Number of messages, visible and invisible. May be approximate.
    pub depth: u64,
    /// When the first visible message was sent; `None` if none is visible.
    pub head_inserted_at: Option<Timestamp>,
    /// When the oldest message was sent, even if it is invisible; `None` if there is no message, or the store does not
    /// show the time of invisible messages.
    pub oldest_inserted_at: Option<Timestamp>,
}

/// The queues of one store. A queue that was never used is empty.
#[async_trait]
pub trait WorkQueue: Send + Sync {
    /// Sends a message, which never expires. Success means that the message is stored. After a fault it may have been
    /// stored or may still be stored; sending it again is always safe.
    ///
    /// The message stays invisible for `delay`. A body of more than [`BODY_BYTES_MAX`] bytes is refused, unless the store
    /// can deliver bodies of that size: other producers may write larger bodies, and every received message can be sent
    /// again.
    async fn send(&self, queue: &QueueName, body: &[u8], delay: Duration) -> Result<(), StoreFault>;

    /// Receives at most `max` visible messages (at most [`RECEIVE_MAX`]), approximately in order, and hides them for
    /// `visibility`.
    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault>;

    /// Hides a received message for `visibility` from now (zero makes it visible immediately), and replaces its body. To
    /// extend only the time, pass the received body, whatever its size.
    async fn extend(
        &self,
        queue: &QueueName,
        lease: &Lease,
        body: &[u8],
        visibility: Duration,
    ) -> Result<Held<Lease>, StoreFault>;

    /// Deletes a received message.
    async fn delete(&self, queue: &QueueName, lease: &Lease) -> Result<Held<()>, StoreFault>;

    /// Returns the size and age of the queue.
    async fn backlog(&self, queue: &QueueName) -> Result<Backlog, StoreFault>;

    /// Creates a queue. Returns whether it did not exist; a store without separate queues returns `false`. Only a process
    /// that created or used a queue notices its deletion.
    async fn create(&self, _queue: &QueueName) -> Result<bool, StoreFault> {
        Ok(false)
    }

    /// Returns the queues used by this process that were deleted with all of their messages since the last call. Waits
    /// until there are some. A store whose queues cannot be deleted waits forever.
    async fn deleted(&self) -> BTreeSet<QueueName> {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::{INGEST, QueueName};

    #[test]
    fn only_valid_queue_names_are_parsed() {
        for partition in [0, 7, u16::MAX] {
            let name = QueueName::of_partition("work", partition);
            assert_eq!(QueueName::parse(name.as_str()), Some(name));
        }
        for wrong in ["", "work", "work-", "-1", "work-01", "work-+1", "Work-1", "work-65536", "a/b-1"] {
            assert_eq!(QueueName::parse(wrong), None, "{wrong}");
        }
        assert_eq!(QueueName::parse(&format!("{}-1", "w".repeat(40))), None);
    }

    #[test]
    fn an_ingest_queue_has_its_own_name_and_never_that_of_a_queue_of_the_bank() {
        let longest = "q".repeat(63);
        for name in ["abc", "orders", "0-1", "work-0", longest.as_str()] {
            let queue = QueueName::of_ingest(name).unwrap();
            assert_eq!((queue.ingest(), queue.kind()), (Some(name), INGEST));
            assert_eq!(QueueName::parse(queue.as_str()), Some(queue.clone()));
            assert_eq!(QueueName::of_stored(queue.as_str()), Some(queue));
        }
        let own = QueueName::of_partition("work", 0);
        assert_eq!((own.ingest(), own.kind()), (None, "work"));
        assert_ne!(QueueName::of_ingest("work-0"), Some(own));
        let too_long = "q".repeat(64);
        for wrong in ["", "ab", "a--b", "-ab", "ab-", "Orders", "or_ders", "or.ders", "a/b", &too_long] {
            assert_eq!(QueueName::of_ingest(wrong), None, "{wrong}");
            assert_eq!(QueueName::parse(&format!("ingest:{wrong}")), None, "{wrong}");
        }
        for wrong in ["other:orders", "ingest:", "ingest:a:b", ":orders"] {
            assert_eq!(QueueName::parse(wrong), None, "{wrong}");
        }
    }
}
