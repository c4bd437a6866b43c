//! Administration of the gate: changes it, and collects acknowledgments from the listeners.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use postonce_shared::adapters::http::{BroadcastRequest, CallFault, GATE_PATH, GateEpoch, PeerNetwork};
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::{Gate, GateState, GateValue};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{ProcessId, RegisteredProcess};
use postonce_shared::ports::world::World;
use postonce_worker::listening::gatekeeper::Gatekeeper;
use tracing::warn;

/// Maximum time for a listener to acknowledge: the operator waits for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// Answer of a listening process to a new epoch of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgment {
    /// The process.
    pub listener: ProcessId,
    /// The epoch that it applies; `None` when it did not answer.
    pub epoch: Option<u64>,
}

/// Reads and changes the gate, and notifies the listeners.
pub struct GateService {
    gate: Gate,
    world: Arc<dyn World>,
    gatekeeper: Option<Arc<Gatekeeper>>,
    network: PeerNetwork,
}

impl GateService {
    /// Creates the service for a bank. Listeners are the worker of this process, if it has one, and the workers
    /// of all reachable processes.
    pub fn new(bank: &Bank, network: &PeerNetwork, gatekeeper: Option<Arc<Gatekeeper>>) -> Self {
        let gate = Gate::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
        Self { gate, world: Arc::clone(&bank.world), gatekeeper, network: network.clone() }
    }

    /// Returns the current time, for schedules.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Reads the current state.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read. Listeners treat it as held then.
    pub async fn read(&self) -> Result<GateValue, StoreFault> {
        self.gate.read().await
    }

    /// Changes the gate, and notifies every listener.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry.
    pub async fn set(&self, state: GateState) -> Result<(GateValue, Vec<Acknowledgment>), StoreFault> {
        let order = self.gate.set(state).await?;
        // Listeners that are not notified now read the gate at the next ping.
        self.network.bell.note_gate_epoch(order.epoch);
        let (mut acknowledgments, own) =
            join(self.notify_others(order.epoch), self.notify_own_worker(order.epoch)).await;
        acknowledgments.extend(own);
        acknowledgments.sort_by_key(|acknowledgment| acknowledgment.listener);
        Ok((order, acknowledgments))
    }

    async fn notify_own_worker(&self, epoch: u64) -> Option<Acknowledgment> {
        let gatekeeper = self.gatekeeper.as_ref()?;
        Some(Acknowledgment { listener: self.network.id, epoch: Some(gatekeeper.refresh(epoch).await) })
    }

    async fn notify_others(&self, epoch: u64) -> Vec<Acknowledgment> {
        let request = BroadcastRequest::put(GATE_PATH, GateEpoch { epoch }.encode()).to_workers();
        let answers = match self.network.broadcast.send(&request, ANSWER_TIME_MAX).await {
            Ok(answers) => answers,
            Err(fault) => {
                // The gate is changed; the listeners read it at their next poll.
                warn!("The listeners could not be notified of the gate: {}", chain(&fault));
                return Vec::new();
            }
        };
        let acknowledgment = |(entry, answer): (RegisteredProcess, Result<Vec<u8>, CallFault>)| {
            let listener = entry.id;
            let epoch = answer.ok().and_then(|body| GateEpoch::decode(&body)).map(|applied| applied.epoch);
            if epoch.is_none() {
                warn!(worker = %listener, "Worker {listener} at {} does not answer", entry.address);
            }
            Acknowledgment { listener, epoch }
        };
        answers.into_iter().map(acknowledgment).collect()
    }
}
