//! Requests and responses of the operations for queues, gate, dead letters and order numbers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::codes;

/// The work queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueList {
    /// By name.
    pub queues: Vec<Queue>,
}

/// One work queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Its name.
    #[schema(example = "work-0")]
    pub name: String,
    /// Messages, visible and not. One message holds many transactions.
    pub depth: u64,
    /// Seconds since the message at the visible head was sent; 0 when none is visible.
    pub oldest_age_s: u64,
    /// Open dead letters that came from it.
    pub dead_letters: u64,
    /// Listeners at work; 0 when the worker runs in another process.
    pub active_listeners: u32,
    /// The most that there may be; 0 when the worker runs in another process.
    pub listeners_max: u32,
}

/// Whether listeners may receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// `held` or `released`.
    #[schema(example = "held", pattern = "^(held|released)$")]
    #[serde(deserialize_with = "codes::gate_state")]
    pub state: Cow<'static, str>,
    /// Grows with every change.
    pub epoch: u64,
    /// When a held gate is released by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub release_at: Option<String>,
}

/// What the gate is to be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"state": "held", "release_at": "2026-11-23T06:00:00Z"}))]
pub struct GateChange {
    /// `held` or `released`.
    #[schema(example = "held", pattern = "^(held|released)$")]
    pub state: String,
    /// Releases a held gate at that time, RFC 3339.
    #[schema(format = DateTime)]
    pub release_at: Option<String>,
}

/// The gate after a change, and who obeys it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GateChanged {
    /// `held` or `released`.
    #[schema(example = "held", pattern = "^(held|released)$")]
    #[serde(deserialize_with = "codes::gate_state")]
    pub state: Cow<'static, str>,
    /// Grows with every change.
    pub epoch: u64,
    /// When a held gate is released by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub release_at: Option<String>,
    /// The processes that listen.
    pub listeners: Vec<GateListener>,
}

/// A process that listens, and what it obeys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GateListener {
    /// The process, as its log names it.
    #[schema(format = Uuid)]
    pub listener: String,
    /// Whether it obeys the epoch of the answer. Held, it receives nothing more from then on.
    pub acknowledged: bool,
    /// The epoch that it obeys; `null` when it did not answer in time.
    #[schema(required = true)]
    pub epoch: Option<u64>,
}

/// A queue message that was set aside for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    /// Names it.
    pub id: String,
    /// Where it came from.
    pub queue: String,
    /// Why it was set aside.
    pub reason: String,
    /// How often it had been received.
    pub dequeue_count: u32,
    /// When it was sent.
    #[schema(format = "date-time")]
    pub inserted_at: String,
    /// When it was set aside.
    #[schema(format = "date-time")]
    pub dead_at: String,
    /// The body of the message; what is not text in it is replaced.
    pub body: String,
    /// The message ids of the transactions in it, when it can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<String>>,
    /// What a person decided; null while nobody did.
    #[schema(required = true)]
    pub resolution: Option<Resolution>,
}

/// What a person decided about a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// `replayed` or `discarded`.
    #[schema(pattern = "^(replayed|discarded)$")]
    #[serde(deserialize_with = "codes::resolution")]
    pub kind: Cow<'static, str>,
    /// The partner of the API key that did it.
    pub by: String,
    /// When.
    #[schema(format = "date-time")]
    pub at: String,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterPage {
    /// By id.
    pub dead_letters: Vec<DeadLetter>,
    /// Pass it as `cursor` for the next page; null at the end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// Where the order numbers went. Counts are of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderNumbers {
    /// Reserved by processes so far.
    pub reserved: u64,
    /// Given to transactions.
    pub issued: u64,
    /// Given back at a clean shutdown.
    pub returned: u64,
    /// Never to be given to anybody.
    pub lost: u64,
    /// The ranges that are in use.
    pub ranges: Vec<OrderNumberRange>,
}

/// A reserved range of order numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderNumberRange {
    /// The process that reserved it.
    pub holder: String,
    /// Its first number.
    #[schema(pattern = "^[0-9]+$")]
    pub first: String,
    /// Its last number.
    #[schema(pattern = "^[0-9]+$")]
    pub last: String,
    /// When it was reserved.
    #[schema(format = "date-time")]
    pub at: String,
}
