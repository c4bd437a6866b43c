//! Responses about single transactions, for operators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Transaction;
use super::codes::{TransactionEventKind, TransactionWay};

/// The transactions that were found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FoundTransactions {
    /// The transactions, by partner; none if there is none.
    pub transactions: Vec<FoundTransaction>,
}

/// A transaction with its way through the bank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "transaction": {
        "message_id": "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11",
        "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", "type": "deposit", "amount": "125.50", "currency": "EUR",
        "status": "posted", "accepted_at": "2026-11-21T08:00:00.123Z", "order_number": "10000422", "sequence": 12,
        "balance_after": "325.50", "posted_at": "2026-11-21T08:00:00.321Z", "partner_id": "shop"
    },
    "way": "queued", "request_id": "9b2d4c6e8f1a4b3c9d5e7f0a1b2c3d4e",
    "events": [
        {"event": "accepted", "at": "2026-11-21T08:00:00.123Z"}, {"event": "sent", "at": "2026-11-21T08:00:00.140Z"},
        {"event": "received", "at": "2026-11-21T08:00:00.300Z"}, {"event": "posted", "at": "2026-11-21T08:00:00.321Z"}
    ],
    "is_dead_letter": false, "enqueued_again": 0
}))]
pub struct FoundTransaction {
    /// The transaction, with its partner.
    pub transaction: Transaction,
    /// `immediate` if the request waited and was posted at once, `queued` if a worker posted it, `batch` if it is from a batch, or
    /// `open` if it is neither posted nor rejected yet.
    #[schema(value_type = String, pattern = "^(immediate|queued|batch|open)$", example = "queued")]
    pub way: TransactionWay,
    /// The `X-Request-Id` of the request that was accepted: log lines of all processes about it contain it. Absent for items of
    /// batches and orders of direct producers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "9b2d4c6e8f1a4b3c9d5e7f0a1b2c3d4e")]
    pub request_id: Option<String>,
    /// The batch that it is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uuid")]
    pub batch_id: Option<String>,
    /// The line of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 7, minimum = 1)]
    pub batch_line: Option<u32>,
    /// What is known of its way, in the order of the protocol. The clocks of the processes may differ.
    pub events: Vec<TransactionEvent>,
    /// Whether its work is in the dead letters, where an operator decides about it.
    pub is_dead_letter: bool,
    /// How often its work was enqueued again because its message was lost.
    pub enqueued_again: u32,
}

/// An event in the life of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransactionEvent {
    /// `accepted`, `sent` (its message was put on the queue), `received` (by the worker that decided it), `enqueued_again` (the
    /// last time), `posted` or `rejected`.
    #[schema(
        value_type = String,
        pattern = "^(accepted|sent|received|enqueued_again|posted|rejected)$",
        example = "posted"
    )]
    pub event: TransactionEventKind,
    /// The time.
    #[schema(format = "date-time", example = "2026-11-21T08:00:00.321Z")]
    pub at: String,
}
