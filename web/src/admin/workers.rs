//! What all workers say of themselves: the one in this process, and those that can be asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_shared::adapters::http::{BroadcastRequest, PeerBroadcast, STATUS_PATH};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::operations::StorageOperations;
use postonce_shared::ports::queue::QueueName;
use postonce_worker::http::Status;
use postonce_worker::meter::Meter;
use tracing::warn;

use crate::admin::costs::{ProcessReport, WorkerReports};
use crate::admin::service::{ListenerStatus, Listeners};

/// How long a worker may take to say how it is: an operator waits.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Adds up what every worker process says.
pub struct AllWorkers {
    /// The address of this process.
    pub address: String,
    /// What the worker of this process counts.
    pub meter: Arc<Meter>,
    /// What this process asked of the store.
    pub operations: Arc<StorageOperations>,
    /// Asks the others.
    pub broadcast: Arc<PeerBroadcast>,
}

#[async_trait]
impl ListenerStatus for AllWorkers {
    async fn listeners(&self) -> BTreeMap<QueueName, Listeners> {
        let mut sums: BTreeMap<QueueName, Listeners> = BTreeMap::new();
        for (queue, look) in self.meter.all_listeners() {
            add(&mut sums, queue, look.active, look.max);
        }
        for (_, status) in self.statuses().await {
            for (queue, of_queue) in status.listeners {
                if let Some(queue) = QueueName::parse(&queue) {
                    add(&mut sums, queue, of_queue.active, of_queue.max);
                }
            }
        }
        sums
    }
}

#[async_trait]
impl WorkerReports for AllWorkers {
    async fn reports(&self) -> Vec<ProcessReport> {
        let mut reports = vec![ProcessReport::here(&self.address, &self.meter, &self.operations)];
        for (address, status) in self.statuses().await {
            match ProcessReport::told(&address, &status) {
                Some(report) => reports.push(report),
                None => warn!("The worker at {address} counts in words that are not known here"),
            }
        }
        reports
    }
}

impl AllWorkers {
    /// What the other processes say, with their addresses. One that does not answer is missing.
    async fn statuses(&self) -> Vec<(String, Status)> {
        let answers = match self.broadcast.send(&BroadcastRequest::get(STATUS_PATH), ANSWER_TIME_MAX).await {
            Ok(answers) => answers,
            Err(fault) => {
                warn!("Other processes cannot be asked how they are: {}", chain(&fault));
                return Vec::new();
            }
        };
        let mut statuses = Vec::with_capacity(answers.len());
        for (entry, answer) in answers {
            let why = match answer.as_deref().map(serde_json::from_slice) {
                Ok(Ok(status)) => {
                    statuses.push((entry.address.to_string(), status));
                    continue;
                }
                Ok(Err(error)) => chain(&error),
                Err(fault) => chain(fault),
            };
            let (id, address) = (entry.id, entry.address);
            warn!(worker = %id, "Worker {id} at {address} does not say how it is: {why}");
        }
        statuses
    }
}

fn add(sums: &mut BTreeMap<QueueName, Listeners>, queue: QueueName, active: u64, max: u64) {
    let sum = sums.entry(queue).or_default();
    let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
    sum.active = sum.active.saturating_add(count(active));
    sum.max = sum.max.saturating_add(count(max));
}
