//! Overview of the bank for the console: gate, processes, activity, queues, scaling and costs.
//!
//! All callers in all web processes together cause at most [`OPERATIONS_PER_MINUTE`] storage operations a minute. Two
//! [reads](readings) are [shared and limited](cached_reading). Values that change every second come from the
//! [processes](statuses), which answer without the store. The limit does not include that each process reads the API
//! keys of its callers and their partners once a minute, as for all requests.

pub mod cached_reading;
pub mod flight;
pub mod readings;
pub mod series;
pub mod statuses;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::join;
use postonce_process::activity::{ActivityCounts, Steps};
use postonce_process::http::{ActivitySteps, PeerState, Status};
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::GateState;
use postonce_shared::cluster::gate::change::GateRecord;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::oversight::scaling::{
    Demand, ScalingPolicy, SharedFault, WorkersWanted, workers_wanted,
};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::process_registry::{Address, LEVEL, ProcessId, ProcessKind, RegisteredProcess};
use postonce_shared::ports::queue::{Backlog, QueueName};
use postonce_shared::ports::world::World;

use self::cached_reading::CachedReading;
use self::readings::{BankReading, Reader, WorkReading};
use self::series::{Series, history_of};
use self::statuses::{StatusWatch, Statuses};
use crate::admin::costs::{CostReport, ProcessReport};
use crate::admin::gate::GateService;
use crate::admin::service::AdminTerms;

/// Maximum number of storage operations per minute, for all callers in all processes.
pub const OPERATIONS_PER_MINUTE: u64 = WORK_OPERATIONS_PER_MINUTE + BANK_OPERATIONS_PER_MINUTE;
/// Share of the work queues.
const WORK_OPERATIONS_PER_MINUTE: u64 = 30;
/// Share of all other reads. The rest is for the first minute of a process, which does not know the others yet.
const BANK_OPERATIONS_PER_MINUTE: u64 = 25;

/// State of a live process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessState {
    /// Entry of the process in the registry.
    pub entry: RegisteredProcess,
    /// Time at which the process last renewed its entry; the current time for this process.
    pub seen_at: Timestamp,
    /// Status of the process; `None` if it did not answer.
    pub status: Option<Status>,
}

/// State of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Name of the queue.
    pub name: QueueName,
    /// Time before the backlog was read.
    pub read_at: Timestamp,
    /// Waiting messages at that time.
    pub backlog: Backlog,
    /// Receivers of the queue.
    pub receivers: Receivers,
}

/// Receivers of a queue, summed over all processes that answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receivers {
    /// Number of receivers that handle messages.
    pub active: u64,
    /// Maximum number of receivers.
    pub max: u64,
    /// Number of messages that they hold under a lease.
    pub leased: u64,
    /// Processes that hold the lease which assigns the queue.
    pub assigned_to: Vec<ProcessId>,
}

/// State of the bank at one time.
#[derive(Debug, Clone)]
pub struct BankOverview {
    /// Time of the overview.
    pub at: Timestamp,
    /// The gate as this process applies it. The act that changed it is unknown if the change is newer than the last read.
    pub gate: GateRecord,
    /// Reason why this process does not perform scheduled releases, if there is one.
    pub clock_problem: Option<String>,
    /// Live processes, by id.
    pub processes: Vec<ProcessState>,
    /// Activity of the processes that answered.
    pub activity: Series,
    /// Their activity during the last 10 seconds.
    pub recent: ActivityCounts,
    /// Queues, by name.
    pub queues: Vec<QueueState>,
    /// Time before the work queues were read.
    pub queues_read_at: Timestamp,
    /// Number of open dead letters, if a process counted them.
    pub dead_letters_open: Option<u64>,
    /// Work that waits for workers.
    pub demand: Demand,
    /// Number of workers wanted for the waiting work.
    pub wanted: WorkersWanted,
    /// Costs of the processes that answered.
    pub costs: CostReport,
}

/// Builds overviews. A process has one instance.
pub struct OverviewService {
    callee: Arc<PeerState>,
    address: Address,
    world: Arc<dyn World>,
    gate: GateService,
    work: CachedReading<WorkReading>,
    bank: CachedReading<BankReading>,
    statuses: StatusWatch,
    /// Number of processes that build overviews, as of the last read.
    web_processes: Arc<AtomicU64>,
    scaling: ScalingPolicy,
    prices: Prices,
}

impl OverviewService {
    /// Creates the service of a process, without reading anything.
    pub fn new(
        bank: &Bank,
        network: &PeerNetwork,
        (callee, address): (&Arc<PeerState>, Address),
        gate: &GateService,
        terms: &AdminTerms,
    ) -> Self {
        let reader = Arc::new(Reader::new(bank, &network.broadcast, gate));
        let web_processes = Arc::new(AtomicU64::new(1));
        let of_work = Arc::clone(&reader);
        let read_work = move || {
            let reader = Arc::clone(&of_work);
            async move { reader.work().await }.boxed()
        };
        let (known, own) = (Arc::clone(&web_processes), network.id);
        let read_bank = move || {
            let (reader, known) = (Arc::clone(&reader), Arc::clone(&known));
            async move {
                let reading = reader.bank().await?;
                known.store(serving(&reading.processes, own), Ordering::Relaxed);
                Ok(reading)
            }
            .boxed()
        };
        let (doing, all) = ("reading the queues", "reading processes, gate and batches");
        Self {
            callee: Arc::clone(callee),
            address,
            world: Arc::clone(&bank.world),
            gate: gate.clone(),
            work: CachedReading::new(doing, WORK_OPERATIONS_PER_MINUTE, &bank.world, Arc::new(read_work)),
            bank: CachedReading::new(all, BANK_OPERATIONS_PER_MINUTE, &bank.world, Arc::new(read_bank)),
            statuses: StatusWatch::new(callee, &network.broadcast),
            web_processes,
            scaling: terms.scaling.clone(),
            prices: terms.prices.clone(),
        }
    }

    /// Returns the policy that determines the wanted number of workers.
    pub const fn scaling(&self) -> &ScalingPolicy {
        &self.scaling
    }

    /// Returns the prices of storage operations.
    pub const fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Returns the overview, with the activity of the last `seconds`.
    ///
    /// # Errors
    /// [`SharedFault`] when the last read of the store failed, or the process is ending.
    pub async fn read(&self, seconds: u16) -> Result<BankOverview, SharedFault> {
        let processes = self.web_processes.load(Ordering::Relaxed);
        let (work, bank) = join(self.work.get(processes), self.bank.get(processes)).await;
        let (work, bank) = (work?, bank?);
        let ended =
            || StoreFault::Unavailable { doing: "asking the processes", source: "the process ends".into() };
        let statuses = self.statuses.get(&bank.processes, history_of(seconds)).await;
        Ok(self.overview((&work, &bank), &*statuses.ok_or_else(|| Arc::new(ended()))?, seconds))
    }

    fn overview(
        &self,
        (work, bank): (&WorkReading, &BankReading),
        statuses: &Statuses,
        seconds: u16,
    ) -> BankOverview {
        let at = self.world.now();
        let Statuses { at: asked_at, own, others } = statuses;
        let answered = || others.iter().filter_map(|(_, status)| status.as_ref()).chain([own]);
        let histories: Vec<Steps> =
            answered().filter_map(|status| status.activity.as_ref()).map(ActivitySteps::steps).collect();
        let demand = Demand::of(work.queues.iter().map(|(_, backlog)| *backlog), work.at, bank.batches);
        let gate = self.gate.applied(&bank.gate);
        let is_scheduled = matches!(gate.value.state, GateState::Held { release_at: Some(_) });
        let clock_problem = self.gate.untrusted_clock().filter(|_| is_scheduled);
        BankOverview {
            at,
            gate,
            clock_problem: clock_problem.map(|problem| problem.to_string()),
            processes: self.processes(&bank.processes, statuses, at),
            activity: Series::of(&histories, seconds, *asked_at),
            recent: Series::of_rates(&histories, *asked_at),
            queues: queues(work, bank, &receivers(self.callee.id, statuses)),
            queues_read_at: work.at,
            dead_letters_open: answered().find_map(|status| status.dead_letters_open),
            wanted: workers_wanted(&demand, &self.scaling, at),
            demand,
            costs: costs(&self.address, statuses, self.world.now()),
        }
    }

    /// Returns the live processes by id. Adds this process if it is not registered yet.
    fn processes(
        &self,
        registered: &[RegisteredProcess],
        statuses: &Statuses,
        at: Timestamp,
    ) -> Vec<ProcessState> {
        let (id, started_at) = (self.callee.id, self.callee.started_at);
        let entry = registered.iter().find(|entry| entry.id == id).cloned();
        let entry = entry.unwrap_or_else(|| RegisteredProcess {
            id,
            kind: ProcessKind::Web,
            address: self.address.clone(),
            started_at,
            next_by: at,
            attempts_survived: 0,
            level: LEVEL,
        });
        let own = ProcessState { entry, seen_at: at, status: Some(statuses.own.clone()) };
        let others = statuses.others.iter().map(|(entry, status)| ProcessState {
            entry: entry.clone(),
            seen_at: entry.written_at(),
            status: status.clone(),
        });
        let mut all: Vec<ProcessState> = others.chain([own]).collect();
        all.sort_by_key(|process| process.entry.id);
        all
    }
}

/// Returns the number of processes that serve the API: the registered web processes, including this process.
fn serving(processes: &[RegisteredProcess], own: ProcessId) -> u64 {
    let others = processes.iter().filter(|entry| entry.kind == ProcessKind::Web && entry.id != own).count();
    u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1)
}

/// Sums the receivers of each queue over the processes that answered.
fn receivers(own: ProcessId, statuses: &Statuses) -> BTreeMap<&str, Receivers> {
    let others = statuses.others.iter().filter_map(|(entry, status)| Some((entry.id, status.as_ref()?)));
    let mut sums: BTreeMap<&str, Receivers> = BTreeMap::new();
    for (process, status) in others.chain([(own, &statuses.own)]) {
        for (queue, of_process) in &status.listeners {
            let sum = sums.entry(queue).or_default();
            sum.active = sum.active.saturating_add(of_process.active);
            sum.max = sum.max.saturating_add(of_process.max);
            sum.leased = sum.leased.saturating_add(of_process.leased);
            sum.assigned_to.extend(of_process.is_assigned.then_some(process));
        }
    }
    sums
}

fn queues(work: &WorkReading, bank: &BankReading, receivers: &BTreeMap<&str, Receivers>) -> Vec<QueueState> {
    let (of_batches_at, of_batches) = &bank.queues;
    let all = work.queues.iter().map(|queue| (work.at, queue));
    let all = all.chain(of_batches.iter().map(|queue| (*of_batches_at, queue)));
    let state = |(read_at, (name, backlog)): (Timestamp, &(QueueName, Backlog))| QueueState {
        name: name.clone(),
        read_at,
        backlog: *backlog,
        receivers: receivers.get(name.as_str()).cloned().unwrap_or_default(),
    };
    let mut queues: Vec<QueueState> = all.map(state).collect();
    queues.sort_by(|a, b| a.name.cmp(&b.name));
    queues
}

/// Sums the costs of the processes that answered. A process that reports an unknown category of operations is omitted.
fn costs(own: &Address, statuses: &Statuses, now: Timestamp) -> CostReport {
    let others =
        statuses.others.iter().filter_map(|(entry, status)| Some((&entry.address, status.as_ref()?)));
    let reports = others.chain([(own, &statuses.own)]);
    CostReport::of(
        reports
            .filter_map(|(address, status)| ProcessReport::from_status(address.as_str(), status, now))
            .collect(),
    )
}
