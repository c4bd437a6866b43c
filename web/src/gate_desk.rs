//! Where operators hold and release the work: changes the gate, and asks the listeners whether they
//! obey.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::bank::Bank;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::gate::{Gate, GateOrder, GateState};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::world::World;
use postonce_worker::gatekeeper::Gatekeeper;

/// What a listening process said when it was told of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgment {
    /// The process, by the address at which others reach it.
    pub listener: String,
    /// The epoch that it obeys; `None` when it did not answer.
    pub epoch: Option<u64>,
}

/// Processes that listen.
#[async_trait]
pub trait GateListeners: Send + Sync {
    /// Tells all of them that the gate has this epoch, and waits a bounded time for what they say.
    async fn tell(&self, epoch: u64) -> Vec<Acknowledgment>;
}

/// The worker of this process.
pub struct WorkerHere {
    /// Who obeys the gate in it.
    pub gatekeeper: Arc<Gatekeeper>,
    /// The address of this process.
    pub address: String,
}

#[async_trait]
impl GateListeners for WorkerHere {
    async fn tell(&self, epoch: u64) -> Vec<Acknowledgment> {
        let epoch = Some(self.gatekeeper.heard(epoch).await);
        vec![Acknowledgment { listener: self.address.clone(), epoch }]
    }
}

/// The gate, and whoever obeys it.
pub struct GateDesk {
    gate: Gate,
    world: Arc<dyn World>,
    listeners: Vec<Arc<dyn GateListeners>>,
}

impl GateDesk {
    /// The gate of a bank, obeyed by these listeners.
    pub fn new(bank: &Bank, listeners: Vec<Arc<dyn GateListeners>>) -> Self {
        let gate = Gate::new(Arc::clone(&bank.store.sync), Arc::clone(&bank.world));
        Self { gate, world: Arc::clone(&bank.world), listeners }
    }

    /// The time, for schedules.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// The gate as it is.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read: it counts as held then.
    pub async fn read(&self) -> Result<GateOrder, StoreFault> {
        self.gate.read().await
    }

    /// Changes the gate, and tells every listener.
    ///
    /// # Errors
    /// [`StoreFault`]: it may be changed. Asking again is safe.
    pub async fn set(&self, state: GateState) -> Result<(GateOrder, Vec<Acknowledgment>), StoreFault> {
        let order = self.gate.set(state).await?;
        let told = join_all(self.listeners.iter().map(|listeners| listeners.tell(order.epoch))).await;
        let mut told: Vec<Acknowledgment> = told.into_iter().flatten().collect();
        told.sort_by(|one, other| one.listener.cmp(&other.listener));
        Ok((order, told))
    }
}
