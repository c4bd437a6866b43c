//! What the listener is generic over: a kind of work that comes over queues of its own.
//!
//! The listener wakes, receives, scales, and can be held; a handler says what a message means and
//! what becomes of it. Another kind of work is one more handler, and not one more loop.

use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::ports::queue::{Message, QueueName};

use crate::listening::delivery::{Delivery, Unopened};

/// Whether what a handler needs did its part.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It did.
    Well,
    /// Something was away: better wait before more is received, and ask [`Handler::is_ready`].
    Away,
}

impl Health {
    /// Well only if both are.
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Well, Self::Well) => Self::Well,
            (Self::Away, _) | (_, Self::Away) => Self::Away,
        }
    }
}

/// How handling went.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handled {
    /// Whether it is better to wait before more is received.
    pub health: Health,
    /// In how long messages that were not settled for good can be received again, each.
    pub back_in: Vec<Duration>,
}

/// A kind of work.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// What one message carries.
    type Work: Send + Sync;

    /// Messages whose work is done, and what is known of it.
    type Done: Send;

    /// Names the queues of this kind: `NAME-0`, `NAME-1`, …; lower-case letters and digits.
    const NAME: &'static str;

    /// Reads what a message carries, from wherever that lies. Messages that came together are read
    /// side by side. Their leases are not renewed yet, so it has to end well before they do.
    async fn read(&self, message: &Message) -> Result<Self::Work, Unopened>;

    /// Does the work of messages that were received together. Keeps their leases while that takes. Where it
    /// says [`Health::Well`], others are received while these are settled, else only after that.
    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<Self::Work>>) -> (Self::Done, Health);

    /// Settles each of them: deletes it, gives it back, or sets it aside. What it leaves unsettled comes back
    /// when its lease ends.
    async fn settle(&self, queue: &QueueName, done: Self::Done) -> Handled;

    /// Whether what it needs is there. Asked before the next receive after [`Health::Away`]:
    /// receiving what cannot be handled would only burn receipts.
    async fn is_ready(&self) -> bool;
}
