//! Status of all workers: in this process, and in the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postonce_process::http::Status;
use postonce_process::meter::Meter;
use postonce_shared::adapters::http::{BroadcastRequest, CallFault, PeerBroadcast, STATUS_PATH};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::operations::StorageOperations;
use postonce_shared::ports::process_registry::RegisteredProcess;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use postonce_shared::posting::waiting::ServedCounts;
use tracing::warn;

use crate::admin::costs::{ProcessReport, WorkerReports};
use crate::admin::service::{AllListeners, ListenerStatus, Listeners};

/// Time limit for the status of a worker, because an operator waits for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Collects the status of all worker processes.
pub struct AllWorkers {
    /// Address of this process; empty for a command.
    pub address: String,
    /// Start of this process.
    pub started_at: Timestamp,
    /// Clock.
    pub world: Arc<dyn World>,
    /// Counters of the worker in this process.
    pub meter: Arc<Meter>,
    /// Counts of the requests of this process, by the way in which they were processed.
    pub served: Arc<ServedCounts>,
    /// Storage operations of this process.
    pub operations: Arc<StorageOperations>,
    /// Sends requests to the other processes.
    pub broadcast: Arc<PeerBroadcast>,
}

#[async_trait]
impl ListenerStatus for AllWorkers {
    async fn listeners(&self) -> AllListeners {
        let mut sums: BTreeMap<QueueName, Listeners> = BTreeMap::new();
        let mut rules: BTreeSet<String> =
            self.meter.receivers_rule().map(str::to_owned).into_iter().collect();
        for (queue, listeners) in self.meter.all_listeners() {
            add(&mut sums, queue, listeners.active, listeners.max);
        }
        for (_, status) in self.statuses().await {
            rules.extend(status.receivers_rule);
            for (queue, of_queue) in status.listeners {
                if let Some(queue) = QueueName::parse(&queue) {
                    add(&mut sums, queue, of_queue.active, of_queue.max);
                }
            }
        }
        AllListeners { by_queue: sums, rules }
    }
}

#[async_trait]
impl WorkerReports for AllWorkers {
    async fn reports(&self) -> Vec<ProcessReport> {
        let own = || {
            let counted_for = self.world.now().since(self.started_at);
            let process = (self.address.as_str(), counted_for);
            ProcessReport::of_this_process(process, &self.meter, &self.served, &self.operations)
        };
        // A command is not one of the processes.
        let mut reports: Vec<ProcessReport> = (!self.address.is_empty()).then(own).into_iter().collect();
        for (address, status) in self.statuses().await {
            match ProcessReport::from_status(&address, &status, self.world.now()) {
                Some(report) => reports.push(report),
                None => warn!("The worker at {address} reports an unknown category of operations"),
            }
        }
        reports
    }
}

impl AllWorkers {
    /// Returns the address and status of each other process. Processes that do not answer are omitted.
    async fn statuses(&self) -> Vec<(String, Status)> {
        match self.processes().await {
            Ok(processes) => {
                let answered = |(entry, status): (RegisteredProcess, Option<Status>)| {
                    Some((entry.address.to_string(), status?))
                };
                processes.into_iter().filter_map(answered).collect()
            }
            Err(fault) => {
                warn!("The status of other processes cannot be read: {}", chain(&fault));
                Vec::new()
            }
        }
    }

    /// Returns the other registered processes, each with its status if it answers.
    ///
    /// # Errors
    /// [`StoreFault`] when the process registry cannot be read.
    pub async fn processes(&self) -> Result<Vec<(RegisteredProcess, Option<Status>)>, StoreFault> {
        let answers = self.broadcast.send(&BroadcastRequest::get(STATUS_PATH), ANSWER_TIME_MAX).await?;
        let status = |(entry, answer): (RegisteredProcess, Result<Vec<u8>, CallFault>)| {
            let why = match answer.as_deref().map(serde_json::from_slice) {
                Ok(Ok(status)) => return (entry, Some(status)),
                Ok(Err(error)) => chain(&error),
                Err(fault) => chain(fault),
            };
            let (id, address) = (entry.id, &entry.address);
            warn!(worker = %id, "Worker {id} at {address} does not report its status: {why}");
            (entry, None)
        };
        Ok(answers.into_iter().map(status).collect())
    }
}

fn add(sums: &mut BTreeMap<QueueName, Listeners>, queue: QueueName, active: u64, max: u64) {
    let sum = sums.entry(queue).or_default();
    let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
    sum.active = sum.active.saturating_add(count(active));
    sum.max = sum.max.saturating_add(count(max));
}
