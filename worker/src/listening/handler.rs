//! The interface between the listener and a kind of work with its own queues.
//!
//! The listener waits for work, receives, scales and applies the gate. A handler decodes messages, does their work and settles
//! them. A new kind of work needs a new handler, but no new listener.

use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::ports::queue::{Message, QueueName, RECEIVE_MAX};

use crate::listening::delivery::{Delivery, DeliveryError};

/// Whether the dependencies of a handler were available.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// All dependencies were available.
    Healthy,
    /// A dependency was unavailable: wait before receiving more, and call [`Handler::is_ready`].
    Unavailable,
}

impl Health {
    /// Returns [`Health::Healthy`] if both are.
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Healthy, Self::Healthy) => Self::Healthy,
            (Self::Unavailable, _) | (_, Self::Unavailable) => Self::Unavailable,
        }
    }
}

/// The result of settling.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handled {
    /// Whether to wait before receiving more.
    pub health: Health,
    /// Visibility delay of each released message.
    pub visibility_delays: Vec<Duration>,
}

/// Handles one kind of work.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The content of one message.
    type Work: Send + Sync;

    /// Handled messages and their results.
    type Done: Send;

    /// Prefix of the queue names of this kind: `NAME-0`, `NAME-1`, …; lower-case letters and digits.
    const NAME: &'static str;

    /// Maximum number of messages of one receive; at most [`RECEIVE_MAX`].
    const MESSAGES_AT_ONCE: usize = RECEIVE_MAX;

    /// Reads the content of a message, from the message or from the payload store. The messages of one receive are read
    /// concurrently. Their leases are not renewed yet, so reads must end well before the leases expire.
    async fn read(&self, message: &Message) -> Result<Self::Work, DeliveryError>;

    /// Does the work of messages that were received together, and renews their leases meanwhile. After [`Health::Healthy`],
    /// more messages are received while these are settled; otherwise they are settled first.
    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<Self::Work>>) -> (Self::Done, Health);

    /// Settles each message: deletes it, releases it, or writes it to the dead letters. A message that is not settled is
    /// redelivered when its lease expires.
    async fn settle(&self, queue: &QueueName, done: Self::Done) -> Handled;

    /// Returns whether the dependencies are available. Called before the next receive after [`Health::Unavailable`], because a
    /// receive without them would only add to the receipts of its messages.
    async fn is_ready(&self) -> bool;
}
