//! How a worker is, as it tells others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PeerState;

/// How a process with a worker is. Members that a reader does not know are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The process.
    pub id: String,
    /// When it started, milliseconds since 1970.
    pub started_at: i64,
    /// Its listeners, by queue.
    pub listeners: BTreeMap<String, QueueListeners>,
    /// What it counted since it started, by the names of the metrics without their prefix.
    pub counters: BTreeMap<String, u64>,
    /// What it asked of the store since it started.
    pub storage_operations: Vec<OperationCount>,
}

/// The listeners of one queue in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueListeners {
    /// At work now.
    pub active: u64,
    /// The most that there may be.
    pub max: u64,
}

/// How often one kind of storage operation was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCount {
    /// The service, such as `table`.
    pub service: String,
    /// The operation, such as `insert`.
    pub operation: String,
    /// How it is priced, such as `table_batch`.
    #[serde(default)]
    pub price: String,
    /// How often.
    pub count: u64,
}

impl Status {
    /// How this process is. Asks nothing of the store.
    pub fn of(callee: &PeerState) -> Self {
        let listeners =
            callee.meter.all_listeners().into_iter().map(|(queue, look)| {
                (queue.to_string(), QueueListeners { active: look.active, max: look.max })
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
            counters: counters.collect(),
            storage_operations: operations.collect(),
        }
    }
}
