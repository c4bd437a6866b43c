//! Where operators hold and release the work: changes the gate, and asks the listeners whether they
//! obey.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use postonce_shared::adapters::http::{
    BroadcastRequest, CallFault, GATE_PATH, GateEpoch, PeerBroadcast, PeerNetwork,
};
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::{Gate, GateState, GateValue};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{ProcessId, RegisteredProcess};
use postonce_shared::ports::world::World;
use postonce_worker::listening::gatekeeper::Gatekeeper;
use tracing::warn;

/// How long a listener may take to say that it obeys: the operator waits.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// What a listening process said when it was told of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgment {
    /// The process.
    pub listener: ProcessId,
    /// The epoch that it obeys; `None` when it did not answer.
    pub epoch: Option<u64>,
}

/// The gate, and whoever obeys it.
pub struct GateService {
    gate: Gate,
    world: Arc<dyn World>,
    own: ProcessId,
    gatekeeper: Option<Arc<Gatekeeper>>,
    broadcast: Arc<PeerBroadcast>,
}

impl GateService {
    /// The gate of a bank, obeyed by the worker of this process, if it has one, and by all that can be
    /// reached.
    pub fn new(bank: &Bank, exchange: &PeerNetwork, gatekeeper: Option<Arc<Gatekeeper>>) -> Self {
        let gate = Gate::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
        let (own, broadcast) = (exchange.id, Arc::clone(&exchange.broadcast));
        Self { gate, world: Arc::clone(&bank.world), own, gatekeeper, broadcast }
    }

    /// The time, for schedules.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// The gate as it is.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read: it counts as held then.
    pub async fn read(&self) -> Result<GateValue, StoreFault> {
        self.gate.read().await
    }

    /// Changes the gate, and tells every listener.
    ///
    /// # Errors
    /// [`StoreFault`]: it may be changed. Asking again is safe.
    pub async fn set(&self, state: GateState) -> Result<(GateValue, Vec<Acknowledgment>), StoreFault> {
        let order = self.gate.set(state).await?;
        let (mut told, here) = join(self.tell_others(order.epoch), self.tell_here(order.epoch)).await;
        told.extend(here);
        told.sort_by_key(|acknowledgment| acknowledgment.listener);
        Ok((order, told))
    }

    async fn tell_here(&self, epoch: u64) -> Option<Acknowledgment> {
        let gatekeeper = self.gatekeeper.as_ref()?;
        Some(Acknowledgment { listener: self.own, epoch: Some(gatekeeper.heard(epoch).await) })
    }

    async fn tell_others(&self, epoch: u64) -> Vec<Acknowledgment> {
        let request = BroadcastRequest::put(GATE_PATH, GateEpoch { epoch }.encode()).to_workers();
        let answers = match self.broadcast.send(&request, ANSWER_TIME_MAX).await {
            Ok(answers) => answers,
            Err(fault) => {
                // The gate is changed; they notice by themselves.
                warn!("The listeners could not be told of the gate: {}", chain(&fault));
                return Vec::new();
            }
        };
        let acknowledgment = |(entry, answer): (RegisteredProcess, Result<Vec<u8>, CallFault>)| {
            let listener = entry.id;
            let epoch = answer.ok().and_then(|body| GateEpoch::decode(&body)).map(|obeyed| obeyed.epoch);
            if epoch.is_none() {
                warn!(worker = %listener, "Worker {listener} at {} does not answer", entry.address);
            }
            Acknowledgment { listener, epoch }
        };
        answers.into_iter().map(acknowledgment).collect()
    }
}
