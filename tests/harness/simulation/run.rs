//! One run: a seed, a while of trouble, and then calm, in which everything has to come right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::messaging::envelope;
use postonce_shared::ports::world::World;

use super::adversary::Adversary;
use super::auditor::Auditor;
use super::faults::{Fault, FaultCounts, FaultMix};
use super::mutations::Mutation;
use super::network::Network;
use super::panics;
use super::people::People;
use super::ports::memory;
use super::process_world::ProcessWorld;
use super::processes::{Processes, Role, Terms};
use super::scheduler::{Life, Scheduler, Step};
use super::trace::Trace;

/// How long trouble lasts at most.
const TROUBLE_MAX: Duration = Duration::from_secs(600);
/// How long it may take until everything is final after that: repair waits for 10 minutes, then for 20.
const CALM_MAX: Duration = Duration::from_secs(3 * 3600);
/// How often somebody asks for what is owed, in the calm.
const ENQUIRY_INTERVAL: Duration = Duration::from_secs(30);
/// Steps after which a run goes round in circles.
const STEPS_MAX: u64 = 3_000_000;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How many transactions clients come with.
    pub transactions: u32,
    /// Faults that never happen.
    pub without: Vec<Fault>,
    /// A mistake to be found.
    pub mutation: Option<Mutation>,
    /// Whether to print each event.
    pub print: bool,
    /// Stop after that many steps.
    pub steps_max: Option<u64>,
}

impl Plan {
    /// An ordinary run of a seed.
    pub const fn of(seed: u64) -> Self {
        Self { seed, transactions: 24, without: Vec::new(), mutation: None, print: false, steps_max: None }
    }
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What is wrong, if anything is.
    pub finding: Option<String>,
    /// Steps until the end, or until the finding.
    pub steps: u64,
    /// Transactions that were posted.
    pub posted: u64,
    /// Transactions that were rejected.
    pub rejected: u64,
    /// What went wrong on the way.
    pub faults: FaultCounts,
    /// A sum over all events: the same for the same seed.
    pub trace_sum: u64,
    /// The last events.
    pub trace_tail: Vec<String>,
}

struct Run {
    plan: Plan,
    network: Arc<Network>,
    processes: Arc<Processes>,
    people: People,
    terms: Terms,
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Report {
    panics::listen();
    let run = Run::new(plan.clone());
    let finding = run.go().err();
    let (posted, rejected) = run.network.auditor.outcomes();
    let (trace_sum, trace_tail) = run.network.trace();
    let report = Report {
        seed: plan.seed,
        finding,
        steps: run.network.scheduler.steps(),
        posted,
        rejected,
        faults: run.network.counts(),
        trace_sum,
        trace_tail,
    };
    run.clear();
    panics::rest();
    report
}

impl Run {
    fn new(plan: Plan) -> Self {
        let scheduler = Scheduler::new(plan.seed);
        let world: Arc<dyn World> = Arc::new(ProcessWorld::new(scheduler.clone(), Life::OUTSIDE, 0));
        let store = memory(&MemoryStore::empty(world), plan.mutation);
        let mix = FaultMix::draw(&scheduler, &plan.without);
        let terms = Terms::draw(&scheduler);
        let trace = Trace::new(plan.print);
        let network = Arc::new(Network::new(
            scheduler,
            store,
            Arc::new(Auditor::default()),
            plan.mutation,
            (mix, trace),
        ));
        let processes = Processes::new(&network, terms);
        let people = People::new(&processes);
        Self { plan, network, processes, people, terms }
    }

    fn scheduler(&self) -> &Scheduler {
        &self.network.scheduler
    }

    /// # Errors
    /// What is wrong.
    fn go(&self) -> Result<(), String> {
        let roles: &[Role] = match self.scheduler().below(4) {
            0 => &[Role::WebWithWorker],
            1 => &[Role::Web, Role::Worker],
            2 => &[Role::Web, Role::Web, Role::Worker, Role::Worker],
            _ => &[Role::WebWithWorker, Role::Web, Role::Worker],
        };
        for (place, role) in roles.iter().enumerate() {
            self.processes.start(place, *role);
        }
        self.people.clients(self.plan.transactions);
        self.people.operators();
        Adversary::act(&self.network, self.terms.queue_count);
        let trouble_max = self.scheduler().up_to(TROUBLE_MAX);
        // Long enough for everybody to have come, and no longer than anybody has something to do.
        let trouble_min = trouble_max.checked_div(2).unwrap_or_default();
        let lasts = |now: Duration| now < trouble_max && (self.people.are_waiting() || now < trouble_min);
        while lasts(self.scheduler().now()) {
            self.network.blow();
            self.processes.strike();
            self.step()?;
        }
        self.network.note("calm");
        self.network.calm();
        self.calm_down()?;
        self.network.auditor.close(&self.network.raw, &envelope::queues(self.terms.queue_count));
        self.network.auditor.finding().map_or(Ok(()), Err)
    }

    /// Without faults everything that is owed becomes final.
    fn calm_down(&self) -> Result<(), String> {
        let (people, done) = (self.people.clone(), Arc::new(AtomicBool::new(false)));
        let (network, finished) = (Arc::clone(&self.network), Arc::clone(&done));
        let terms = self.terms;
        let errand = async move {
            loop {
                // Each time: an order to hold it may have come late.
                people.release().await;
                let web = people.somebody().await;
                people.replay_letters(&web).await;
                for key in network.auditor.owed() {
                    people.enquire(&key).await;
                }
                network.scheduler.sleep(Life::OUTSIDE, ENQUIRY_INTERVAL).await;
                if !people.are_waiting() && network.is_at_rest(terms.queue_count) {
                    break;
                }
            }
            finished.store(true, Ordering::Relaxed);
        };
        self.scheduler().spawn(Life::OUTSIDE, errand.boxed());
        let until = self.scheduler().now().saturating_add(CALM_MAX);
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
            return Err(format!("{steps} steps, and no end"));
        }
        if self.plan.steps_max.is_some_and(|max| steps >= max) {
            return Err(format!("stopped after {steps} steps"));
        }
        if stepped == Step::Ended {
            return Err("nothing will ever happen again".to_owned());
        }
        Ok(())
    }

    /// Breaks the circles: tasks hold the scheduler that holds them, and processes know each other.
    fn clear(&self) {
        self.scheduler().clear();
        self.processes.clear();
    }
}
