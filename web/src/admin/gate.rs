//! Administration of the gate: changes it, and collects the acknowledgments of all processes.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join;
use postonce_process::process_gate::ProcessGate;
use postonce_shared::adapters::http::{BroadcastRequest, CallFault, GATE_PATH, GateEpoch, PeerNetwork};
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::change::{GateAct, GateRecord};
use postonce_shared::cluster::gate::{ClockError, EpochError, Gate, GateState};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::process_registry::{Address, ProcessId, RegisteredProcess};
use postonce_shared::ports::world::World;
use tokio::sync::oneshot;
use tracing::warn;

/// Time limit for the acknowledgment of a process, because the operator waits for it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);

/// Answer of a process to a new epoch of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgment {
    /// Id of the process.
    pub listener: ProcessId,
    /// Address of the process.
    pub address: Address,
    /// Time at which the process last renewed its registry entry; the current time for this process.
    pub seen_at: Timestamp,
    /// The epoch that the process applies, or the reason why it is unknown.
    pub epoch: Result<u64, String>,
}

/// Result of a change: the new gate, and the answers of the notified processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifiedChange {
    /// The gate after the change.
    pub order: GateRecord,
    /// Answers of the processes, by process id.
    pub acknowledgments: Vec<Acknowledgment>,
    /// Reason why the registry could not be read. The other processes were then not notified, and apply the change later.
    pub registry_problem: Option<String>,
}

/// Reads and changes the gate, and notifies all processes. Workers and web processes post only while it is released.
#[derive(Clone)]
pub struct GateService {
    gate: Gate,
    world: Arc<dyn World>,
    process_gate: Arc<ProcessGate>,
    network: PeerNetwork,
    /// Address of this process; `None` if it does not post.
    address: Option<Address>,
}

impl GateService {
    /// Creates the service for a bank. `process_gate` applies the gate in this process. Without an `address`, this
    /// process does not post and does not acknowledge changes.
    pub fn new(
        bank: &Bank,
        network: &PeerNetwork,
        process_gate: Arc<ProcessGate>,
        address: Option<Address>,
    ) -> Self {
        let gate = Gate::new(&bank.store, &bank.world);
        Self { gate, world: Arc::clone(&bank.world), process_gate, network: network.clone(), address }
    }

    /// Returns the current time, for schedules.
    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// Reads the gate from the store.
    ///
    /// # Errors
    /// [`StoreFault`] when it cannot be read. Processes then treat the gate as held.
    pub async fn read(&self) -> Result<GateRecord, StoreFault> {
        let record = self.gate.read_record().await?;
        // A process that ended before it notified the others may have changed the gate. The pings of this process then do.
        self.process_gate.catch_up(record.value.epoch).await;
        Ok(record)
    }

    /// Returns the gate as this process applies it, without a store access. `read` is the record that was read last.
    /// If this process now applies another epoch, the act that changed it is unknown.
    pub fn applied(&self, read: &GateRecord) -> GateRecord {
        let newer = self.process_gate.known().filter(|known| known.epoch != read.value.epoch);
        newer.map_or_else(|| read.clone(), |value| GateRecord { value, ..GateRecord::UNSET })
    }

    /// Returns the reason why this process does not perform scheduled releases, if there is one.
    pub fn untrusted_clock(&self) -> Option<ClockError> {
        self.gate.untrusted_clock()
    }

    /// Changes the gate, and notifies every process, even if the caller is cancelled: unnotified processes apply it late.
    ///
    /// Does nothing if `is_expected` returns `false` for the current epoch.
    ///
    /// # Errors
    /// [`StoreFault`]: the outcome is unknown. It is safe to retry. [`EpochError`] when nothing was done.
    pub async fn set(
        &self,
        state: GateState,
        act: GateAct,
        is_expected: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Result<Result<NotifiedChange, EpochError>, StoreFault> {
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

    /// Notifies every process of a change, including this one.
    async fn notify(&self, order: GateRecord) -> NotifiedChange {
        let epoch = order.value.epoch;
        // Listeners that do not receive this notification read the gate after the next ping.
        self.network.bell.note_gate_epoch(epoch);
        let (others, own) = join(self.notify_others(epoch), self.process_gate.refresh(epoch)).await;
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
    /// [`StoreFault`] when the process registry cannot be read. No process was notified.
    async fn notify_others(&self, epoch: u64) -> Result<Vec<Acknowledgment>, StoreFault> {
        let request = BroadcastRequest::put(GATE_PATH, GateEpoch { epoch }.encode());
        let sent = self.network.broadcast.send(&request, ANSWER_TIME_MAX).await;
        // The gate is changed already, so the processes apply it later.
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
