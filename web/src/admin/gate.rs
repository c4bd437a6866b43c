//! Administration of the gate: changes it, and collects acknowledgments from all processes.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join;
use postonce_process::gatekeeper::Gatekeeper;
use postonce_shared::adapters::http::{BroadcastRequest, CallFault, GATE_PATH, GateEpoch, PeerNetwork};
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::change::{GateAct, GateRecord};
use postonce_shared::cluster::gate::{Gate, GateState, UnexpectedEpoch, UntrustedClock};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{Address, ProcessId, RegisteredProcess};
use postonce_shared::ports::world::World;
use tokio::sync::oneshot;
use tracing::warn;

/// Maximum time for a process to acknowledge: the operator waits for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// Answer of a process to a new epoch of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgment {
    /// The process.
    pub listener: ProcessId,
    /// Its address.
    pub address: Address,
    /// When it last renewed its registry entry; now for the process that answers the operator.
    pub seen_at: Timestamp,
    /// The epoch that it applies, or why that is not known.
    pub epoch: Result<u64, String>,
}

/// A change of the gate, and the answers of the processes that were notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifiedChange {
    /// The gate after the change.
    pub order: GateRecord,
    /// The answers of all processes, by id.
    pub acknowledgments: Vec<Acknowledgment>,
    /// Why the other processes are not known, so that none of them was told; they apply the change later.
    pub registry_problem: Option<String>,
}

/// Reads and changes the gate, and notifies all processes: workers and web processes post only while it is released.
#[derive(Clone)]
pub struct GateService {
    gate: Gate,
    world: Arc<dyn World>,
    gatekeeper: Arc<Gatekeeper>,
    network: PeerNetwork,
    /// `None` if this process does not post.
    address: Option<Address>,
}

impl GateService {
    /// Creates the service for a bank. `gatekeeper` applies the gate in this process.
    /// Other processes reach this one at `address`; without one it does not post, and acknowledges nothing itself.
    pub fn new(
        bank: &Bank,
        network: &PeerNetwork,
        gatekeeper: Arc<Gatekeeper>,
        address: Option<Address>,
    ) -> Self {
        let gate = Gate::new(&bank.store, &bank.world);
        Self { gate, world: Arc::clone(&bank.world), gatekeeper, network: network.clone(), address }
    }

    /// Returns the current time, for schedules.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Reads the current state.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read. The processes treat it as held then.
    pub async fn read(&self) -> Result<GateRecord, StoreFault> {
        let record = self.gate.read_record().await?;
        // If the process that changed it ended before it notified the others, the pings of this one do.
        self.gatekeeper.catch_up(record.value.epoch).await;
        Ok(record)
    }

    /// Returns the gate as this process applies it, without accessing the store, given the record that was read last: if this
    /// process applies another value by now, the act that changed it is not known.
    pub fn applied(&self, read: &GateRecord) -> GateRecord {
        let newer = self.gatekeeper.known().filter(|known| known.epoch != read.value.epoch);
        newer.map_or_else(|| read.clone(), |value| GateRecord { value, ..GateRecord::UNSET })
    }

    /// Returns why this process does not perform scheduled releases, if so.
    pub fn untrusted_clock(&self) -> Option<UntrustedClock> {
        self.gate.untrusted_clock()
    }

    /// Changes the gate, and notifies every process. If the caller is cancelled, the change continues: without the
    /// notification, the processes would learn of it late.
    ///
    /// Nothing is done unless `is_expected` admits the epoch of the gate.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry. [`UnexpectedEpoch`] when nothing was done.
    pub async fn set(
        &self,
        state: GateState,
        act: GateAct,
        is_expected: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Result<Result<NotifiedChange, UnexpectedEpoch>, StoreFault> {
        let (result, set) = oneshot::channel();
        let service = self.clone();
        let change = async move {
            let changed = service.gate.set_if(state, &act, is_expected).await;
            let notified = match changed {
                Ok(Ok(record)) => Ok(Ok(service.notify(record).await)),
                Ok(Err(unexpected)) => Ok(Err(unexpected)),
                Err(fault) => Err(fault),
            };
            drop(result.send(notified));
        };
        self.world.spawn(change.boxed());
        let ended =
            |_| StoreFault::Unavailable { doing: "changing the gate", source: "the process ends".into() };
        set.await.map_err(ended)?
    }

    /// Notifies every process of a change.
    async fn notify(&self, order: GateRecord) -> NotifiedChange {
        let epoch = order.value.epoch;
        // Listeners that are not notified now read the gate at the next ping.
        self.network.bell.note_gate_epoch(epoch);
        let (others, own) = join(self.notify_others(epoch), self.gatekeeper.refresh(epoch)).await;
        let (mut acknowledgments, registry_problem) = match others {
            Ok(acknowledgments) => (acknowledgments, None),
            Err(fault) => (Vec::new(), Some(chain(&fault))),
        };
        acknowledgments.extend(self.address.clone().map(|address| Acknowledgment {
            listener: self.network.id,
            address,
            seen_at: self.now(),
            epoch: Ok(own),
        }));
        acknowledgments.sort_by_key(|acknowledgment| acknowledgment.listener);
        NotifiedChange { order, acknowledgments, registry_problem }
    }

    /// # Errors
    /// [`StoreFault`] when the process registry cannot be read: no process was told.
    async fn notify_others(&self, epoch: u64) -> Result<Vec<Acknowledgment>, StoreFault> {
        let request = BroadcastRequest::put(GATE_PATH, GateEpoch { epoch }.encode());
        let sent = self.network.broadcast.send(&request, ANSWER_TIME_MAX).await;
        // The gate is changed; the processes read it later.
        let answers = sent.inspect_err(|fault| {
            warn!("The other processes could not be notified of the gate: {}", chain(fault));
        })?;
        let acknowledgment = |(entry, answer): (RegisteredProcess, Result<Vec<u8>, CallFault>)| {
            let (listener, seen_at, address) = (entry.id, entry.written_at(), entry.address);
            let epoch = match answer.map(|body| GateEpoch::decode(&body)) {
                Ok(Some(applied)) => Ok(applied.epoch),
                Ok(None) => Err("the answer of the process cannot be read".to_owned()),
                Err(fault) => Err(fault.to_string()),
            };
            if let Err(why) = &epoch {
                warn!(process = %listener, "Process {listener} at {address} does not acknowledge the gate: {why}");
            }
            Acknowledgment { listener, address, seen_at, epoch }
        };
        Ok(answers.into_iter().map(acknowledgment).collect())
    }
}
