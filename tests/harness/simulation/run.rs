//! One run of a seed: a phase with faults, then a phase without faults, in which all acknowledged work must become final.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_shared::messaging::envelope;
use postonce_shared::protocol::recover::RecoveryScope;
use postonce_shared::testing::prelude::*;

use super::adversary::Adversary;
use super::auditor::Auditor;
use super::azure::ports::raw;
use super::azure::tables::Tables;
use super::batches;
use super::event_counts::EventCounts;
use super::faults::{Fault, FaultCounts, FaultMix};
use super::immediate_counts::ImmediateCounts;
use super::mutations::Mutation;
use super::network::{Network, now};
use super::panics;
use super::ports::{memory, short};
use super::process_world::ProcessWorld;
use super::processes::{ProcessSettings, Processes, RING_SECRET, Role};
use super::scheduler::{ProcessId, Scheduler, Step};
use super::trace::Trace;
use super::workload::Workload;

/// Maximum duration of the phase with faults.
const FAULT_PHASE_MAX: Duration = Duration::from_secs(600);
/// Maximum time until everything is final after the faults stop: repair waits for 10 minutes, then for 20.
const RECOVERY_PHASE_MAX: Duration = Duration::from_secs(3 * 3600);
/// Interval of reads of unfinished transactions in the phase without faults.
const ENQUIRY_INTERVAL: Duration = Duration::from_secs(30);
/// Time of the sweep after the run, in milliseconds.
const SWEEP_AFTER_MS: i64 = 2 * 24 * 3_600_000;
/// Number of steps after which a run counts as endless.
const STEPS_MAX: u64 = 3_000_000;

/// The store of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorldStore {
    /// The memory adapter.
    Memory,
    /// The adapter for Azure, over a simulated table service; queues and payloads in memory.
    Azure,
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The seed of all random decisions.
    pub seed: u64,
    /// The store of the world.
    pub store: WorldStore,
    /// Number of transactions that clients send.
    pub transactions: u32,
    /// Number of batches that clients send.
    pub batches: u32,
    /// Faults that never occur.
    pub without: Vec<Fault>,
    /// The mistake that the run must find, if there is one.
    pub mutation: Option<Mutation>,
    /// Whether to print each event.
    pub print: bool,
    /// Number of steps after which the run stops.
    pub steps_max: Option<u64>,
}

impl RunPlan {
    /// Plans a run of a seed with the default parameters.
    pub const fn of(seed: u64) -> Self {
        Self {
            seed,
            store: WorldStore::Memory,
            transactions: 24,
            batches: 2,
            without: Vec::new(),
            mutation: None,
            print: false,
            steps_max: None,
        }
    }

    /// Plans a run over the adapter for Azure, otherwise with the default parameters.
    pub fn over_azure(seed: u64) -> Self {
        Self { store: WorldStore::Azure, ..Self::of(seed) }
    }

    /// Plans a run with a mistake, over the store whose adapter makes it.
    pub fn with(seed: u64, mutation: Mutation) -> Self {
        Self { store: mutation.store(), mutation: Some(mutation), ..Self::of(seed) }
    }
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed of the run.
    pub seed: u64,
    /// The first violated rule, if there is one.
    pub finding: Option<String>,
    /// Number of steps until the end or the finding.
    pub steps: u64,
    /// Number of posted transactions.
    pub posted: u64,
    /// Number of rejected transactions.
    pub rejected: u64,
    /// The faults that occurred.
    pub faults: FaultCounts,
    /// Counts of requests that were posted immediately, and of the reasons why others were not.
    pub immediate: ImmediateCounts,
    /// Counts of events of batches.
    pub batches: EventCounts,
    /// Hash of all events, which is equal for equal seeds.
    pub trace_sum: u64,
    /// The last events.
    pub trace_tail: Vec<String>,
}

struct Run {
    plan: RunPlan,
    network: Arc<Network>,
    processes: Arc<Processes>,
    workload: Workload,
    settings: ProcessSettings,
}

/// Executes a plan.
pub fn run(plan: &RunPlan) -> Report {
    panics::start_capture();
    let run = Run::new(plan.clone());
    let finding = run.execute().err();
    let (posted, rejected) = run.network.auditor.outcomes();
    let (trace_sum, trace_tail) = run.network.trace();
    let report = Report {
        seed: plan.seed,
        finding,
        steps: run.network.scheduler.steps(),
        posted,
        rejected,
        faults: run.network.counts(),
        immediate: run.processes.immediate_counts(),
        batches: run.network.auditor.batch_counts(),
        trace_sum,
        trace_tail,
    };
    run.clear();
    panics::stop_capture();
    report
}

impl Run {
    fn new(plan: RunPlan) -> Self {
        let scheduler = Scheduler::new(plan.seed);
        let world: Arc<dyn World> = Arc::new(ProcessWorld::new(scheduler.clone(), ProcessId::ENVIRONMENT, 0));
        let store = MemoryStore::empty(Arc::clone(&world));
        // Every third world checks the order, as SQLite does; the others do not, like Azure.
        let store = if scheduler.below(3) == 0 { store.checking_order() } else { store };
        let (store, unguarded) = memory(&store, plan.mutation);
        let stores = match plan.store {
            WorldStore::Memory => (store, unguarded, None),
            WorldStore::Azure => {
                let tables = Arc::new(Mutex::new(Tables::default()));
                (raw(&scheduler, world, &store, &tables), unguarded, Some(tables))
            }
        };
        let mix = FaultMix::draw(&scheduler, &plan.without);
        let mut settings = ProcessSettings::draw(&scheduler);
        if plan.mutation == Some(Mutation::SurvivorCountsAsEnded) {
            // Attempts are recorded only when messages are tried alone, which is otherwise rare.
            settings.dequeue_count_max = 1;
        }
        let open_work_limit = settings.visibility_timeout.saturating_mul(2);
        let trace = Trace::new(plan.print);
        let network = Arc::new(Network::new(
            scheduler,
            stores,
            Arc::new(Auditor::new(open_work_limit)),
            plan.mutation,
            (mix, trace),
        ));
        let processes = Processes::new(&network, settings);
        let workload = Workload::new(&processes);
        Self { plan, network, processes, workload, settings }
    }

    fn scheduler(&self) -> &Scheduler {
        &self.network.scheduler
    }

    /// # Errors
    /// The first violated rule.
    fn execute(&self) -> Result<(), String> {
        let roles: &[Role] = match self.scheduler().below(4) {
            0 => &[Role::WebWithWorker],
            1 => &[Role::Web, Role::Worker],
            2 => &[Role::Web, Role::Web, Role::Worker, Role::Worker],
            _ => &[Role::WebWithWorker, Role::Web, Role::Worker],
        };
        for (slot, role) in roles.iter().enumerate() {
            self.processes.start(slot, *role);
        }
        self.workload.spawn_clients(self.plan.transactions, self.plan.batches);
        self.workload.spawn_operators();
        let work = envelope::queues(self.settings.queue_count);
        Adversary::spawn(&self.network, work, Adversary::forge_work);
        Adversary::spawn(&self.network, self.settings.batch_queues(), batches::adversary::forge);
        let longest = self.scheduler().up_to(FAULT_PHASE_MAX);
        // Long enough for every client to start, but not longer than a client waits.
        let shortest = longest.checked_div(2).unwrap_or_default();
        let lasts = |now: Duration| now < longest && (self.workload.has_waiting_clients() || now < shortest);
        while lasts(self.scheduler().now()) {
            self.network.start_lasting_faults();
            self.processes.inject_faults();
            self.step()?;
        }
        self.network.note("the faults stop");
        self.network.stop_faults();
        self.recover()?;
        self.sweep();
        self.network.auditor.close(&self.network.raw, &self.settings.queues());
        self.network.auditor.finding().map_or(Ok(()), Err)
    }

    /// Runs the phase without faults, in which every acknowledged transaction becomes final.
    fn recover(&self) -> Result<(), String> {
        let (workload, done) = (self.workload.clone(), Arc::new(AtomicBool::new(false)));
        let (network, finished) = (Arc::clone(&self.network), Arc::clone(&done));
        let settings = self.settings;
        workload.recovers();
        let task = async move {
            for round in 1_u32.. {
                // Repeated, because a late write may have held the gate again.
                workload.release().await;
                let web = workload.wait_for_web().await;
                // With increasing intervals, because a message of a newer version waits for some minutes each time. A claim
                // for a lost payload waits for a recovery.
                if round.is_power_of_two() {
                    workload.replay_letters(&web).await;
                    drop(web.bank.repair.recover(RecoveryScope::Old).await);
                }
                for key in network.auditor.unfinished() {
                    workload.enquire(&key).await;
                }
                let (open, unread) = network.auditor.unfinished_batches();
                open.iter().chain(&unread).for_each(|key| workload.ask_batch(key));
                // Rings as a later batch would, for messages whose rings were lost.
                web.bank.batches.ring();
                network.scheduler.sleep(ProcessId::ENVIRONMENT, ENQUIRY_INTERVAL).await;
                if !workload.has_waiting_clients() && network.is_at_rest(&settings.queues()) {
                    break;
                }
            }
            finished.store(true, Ordering::Relaxed);
        };
        self.scheduler().spawn(ProcessId::ENVIRONMENT, task.boxed());
        let until = self.scheduler().now().saturating_add(RECOVERY_PHASE_MAX);
        while !done.load(Ordering::Relaxed) && self.scheduler().now() < until {
            self.step()?;
        }
        Ok(())
    }

    fn step(&self) -> Result<(), String> {
        let stepped = self.scheduler().step();
        if let Some(finding) = self.network.auditor.finding() {
            return Err(finding);
        }
        if let Some(panic) = panics::take() {
            return Err(format!("a panic: {panic}"));
        }
        let steps = self.scheduler().steps();
        if steps >= STEPS_MAX {
            let open = self.network.auditor.unfinished();
            let open: Vec<String> = open.iter().map(short).collect();
            let (batches, _) = self.network.auditor.unfinished_batches();
            let open = open.join(" ");
            return Err(format!("{steps} steps without an end; not final: {open} {batches:?}"));
        }
        if self.plan.steps_max.is_some_and(|max| steps >= max) {
            return Err(format!("stopped after {steps} steps"));
        }
        if stepped == Step::Ended {
            return Err("no task can ever run again".to_owned());
        }
        Ok(())
    }

    /// Sweeps obsolete data, two days later.
    fn sweep(&self) {
        let later = ProcessWorld::new(self.scheduler().clone(), ProcessId::ENVIRONMENT, SWEEP_AFTER_MS);
        let seal = seal_of(RING_SECRET);
        let (store, bell) = (self.network.raw.clone(), Arc::new(LocalDoorbell::default()));
        let bank = Bank::new(store, Arc::new(later), bell, seal, self.settings.queue_count);
        if let Err(fault) = now(bank.batches.sweep()) {
            self.network.auditor.report(format!("the sweep failed: {fault}"));
        }
    }

    /// Breaks reference cycles: tasks hold the scheduler that holds them, and processes hold each other.
    fn clear(&self) {
        self.scheduler().clear();
        self.processes.clear();
    }
}
