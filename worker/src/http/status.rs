//! The status that a process reports to others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PeerState;

/// Name of the counter of transactions that were posted or rejected by the process that received them.
pub const POSTED_IMMEDIATELY: &str = "posted_immediately";

/// Status of a process. Readers ignore unknown members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Id of the process.
    pub id: String,
    /// Time of its start, in milliseconds since 1970.
    pub started_at: i64,
    /// Receivers by queue.
    pub listeners: BTreeMap<String, QueueListeners>,
    /// Counters since the start, by the names of the metrics without their prefix.
    pub counters: BTreeMap<String, u64>,
    /// Storage operations since the start.
    pub storage_operations: Vec<OperationCount>,
}

/// The receivers of one queue in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueListeners {
    /// Receivers that handle messages now.
    pub active: u64,
    /// Largest allowed number of receivers.
    pub max: u64,
}

/// Number of storage operations of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCount {
    /// The service, such as `table`.
    pub service: String,
    /// The operation, such as `insert`.
    pub operation: String,
    /// Kind of price, such as `table_batch`.
    #[serde(default)]
    pub price: String,
    /// Number of operations.
    pub count: u64,
}

impl Status {
    /// Returns the status of this process. Makes no requests to the store.
    pub fn of(callee: &PeerState) -> Self {
        let listeners = callee.meter.all_listeners().into_iter().map(|(queue, gauges)| {
            (queue.to_string(), QueueListeners { active: gauges.active, max: gauges.max })
        });
        let counters =
            callee.meter.counters().into_iter().map(|(name, _, counter)| (name.to_owned(), counter.get()));
        let operations = callee.operations.snapshot().into_iter().map(|(operation, count)| OperationCount {
            service: operation.service.code().to_owned(),
            operation: operation.name.to_owned(),
            price: operation.price.code().to_owned(),
            count,
        });
        Self {
            id: callee.id.simple(),
            started_at: callee.started_at.unix_ms(),
            listeners: listeners.collect(),
            counters: counters.chain([(POSTED_IMMEDIATELY.to_owned(), callee.served.immediate())]).collect(),
            storage_operations: operations.collect(),
        }
    }
}
