//! `postonce-worker --scale 1..8`: as many worker processes on one machine as are wanted.
//!
//! The supervisor looks at what waits ([`attention`] says when), decides by the same pure function that
//! answers `/v1/admin/scale`, and starts and drains worker processes of its own executable ([`child`]). Growing is
//! immediate, shrinking waits ([`StabilizationWindow`]). A process that ends by itself is replaced, with back-off.
//!
//! It posts nothing itself, and nothing depends on it: should it die, its workers drain and end.

mod attention;
mod child;
mod range;
pub mod supervised;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use postonce_shared::backoff::{Backoff, PROCESS_START};
use postonce_shared::oversight::scaling::{
    Demand, DemandWatch, ScalingPolicy, StabilizationWindow, workers_wanted,
};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use self::attention::Attention;
use self::child::{Child, Event};
pub use self::range::{InvalidRange, SCALE_MAX, ScaleRange};

/// How often it compares what there is with what is wanted. Asks nothing of the store by itself.
const TICK: Duration = Duration::from_secs(1);
/// A process that lived so long was well: what ended it has nothing to do with the start.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// How long a process may take to drain before it is killed: longer than it allows itself.
const DRAIN_PATIENCE: Duration = Duration::from_secs(15);
/// Events that wait for the supervisor at most; a process that tells more has to wait.
const EVENTS_MAX: usize = 1024;

/// What worker processes are started as.
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub executable: PathBuf,
    /// Its arguments. Variables are inherited.
    pub arguments: Vec<OsString>,
}

/// Keeps as many worker processes running as are wanted.
pub struct Supervisor {
    program: Program,
    policy: ScalingPolicy,
    watch: DemandWatch,
    world: Arc<dyn World>,
    attention: Attention,
    demand: Demand,
    steady: StabilizationWindow,
    /// How many there are to be.
    target: u32,
    children: BTreeMap<u32, Child>,
    started: u32,
    /// None is started before.
    restart_at: Duration,
    restarts: Backoff,
    tell: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl Supervisor {
    /// A supervisor that runs nothing yet, over the queues of a store. The range stands in for the fewest
    /// and the most workers of the policy.
    pub fn new(
        program: Program,
        range: ScaleRange,
        policy: ScalingPolicy,
        store: &Store,
        queue_count: u16,
        world: Arc<dyn World>,
    ) -> Self {
        let policy = ScalingPolicy { workers_min: range.min, workers_max: range.max, ..policy };
        let (tell, events) = mpsc::channel(EVENTS_MAX);
        Self {
            program,
            watch: DemandWatch::new(store, queue_count, Arc::clone(&world)),
            attention: Attention::new(queue_count),
            demand: Demand::default(),
            steady: StabilizationWindow::new(policy.down_delay),
            policy,
            world,
            target: 0,
            children: BTreeMap::new(),
            started: 0,
            restart_at: Duration::ZERO,
            restarts: PROCESS_START.start(),
            tell,
            events,
        }
    }

    /// Supervises until `stop` returns; then drains all processes and returns when they are gone.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            let turn = async {
                self.look().await;
                self.adjust();
                if let Some(event) = self.next_event().await {
                    self.note(event);
                }
            };
            if let Either::Left(_) = select(stop.as_mut(), std::pin::pin!(turn)).await {
                break;
            }
        }
        info!("Draining {} worker(s)", self.children.len());
        self.drain_all().await;
    }

    /// Looks at what waits, if it is time to.
    async fn look(&mut self) {
        let now = self.world.uptime();
        if !self.attention.is_due(now) {
            return;
        }
        match self.watch.demand().await {
            Ok(demand) => {
                self.demand = demand;
                self.attention.looked(now, demand.waiting);
            }
            Err(fault) => {
                warn!("Cannot see how much waits, and leave the workers as they are: {}", chain(&*fault));
                self.attention.failed(now);
            }
        }
    }

    /// Starts, drains and kills until there are as many as are wanted.
    fn adjust(&mut self) {
        let now = self.world.uptime();
        let wanted = workers_wanted(&self.demand, &self.policy, self.world.now());
        let target = self.steady.follow(now, wanted.workers);
        if target != self.target {
            let Demand { waiting, oldest_age, .. } = self.demand;
            let (age_s, floor) = (oldest_age.as_secs(), wanted.floor);
            info!(
                "Scaling from {} to {target} workers: {waiting} messages wait, the oldest {age_s} s; the schedule \
                 asks for {floor}",
                self.target
            );
            self.target = target;
        }
        let target = usize::try_from(self.target).unwrap_or(usize::MAX);
        while self.running().count() < target && now >= self.restart_at {
            self.start(now);
        }
        // The youngest goes first: the others have more rows in their caches.
        let too_many: Vec<u32> = self.running().skip(target).collect();
        for youngest in too_many {
            if let Some(child) = self.children.get_mut(&youngest) {
                child.drain(now);
            }
        }
        self.kill_overdue(now);
    }

    /// The numbers of those that were not told to drain, the oldest first.
    fn running(&self) -> impl Iterator<Item = u32> {
        self.children.iter().filter(|(_, child)| !child.is_draining()).map(|(number, _)| *number)
    }

    fn start(&mut self, now: Duration) {
        self.started = self.started.saturating_add(1);
        match Child::start(&self.program, self.started, &self.tell, &self.world) {
            Ok(child) => {
                info!("Started worker {} (pid {})", self.started, child.pid());
                self.children.insert(self.started, child);
            }
            Err(error) => {
                let delay = self.restarts.next(&*self.world);
                error!("Cannot start a worker, will try again in {delay:?}: {error}");
                self.restart_at = now.saturating_add(delay);
            }
        }
    }

    fn kill_overdue(&mut self, now: Duration) {
        for child in self.children.values_mut() {
            if child.draining_for(now).is_some_and(|time| time > DRAIN_PATIENCE) && child.kill() {
                error!("Worker {} did not drain within {DRAIN_PATIENCE:?} and is killed", child.name());
            }
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Received(messages) => self.attention.heard(messages),
            Event::Ended { number, how } => {
                let Some(child) = self.children.remove(&number) else { return };
                if child.is_draining() {
                    info!("Worker {} was drained ({how})", child.name());
                    return;
                }
                let now = self.world.uptime();
                if child.age(now) >= WELL_AFTER {
                    self.restarts.reset();
                }
                let delay = self.restarts.next(&*self.world);
                self.restart_at = now.saturating_add(delay);
                warn!("Worker {} ended by itself ({how}); another one may start in {delay:?}", child.name());
            }
        }
    }

    /// The next event; `None` when there was none for a while.
    async fn next_event(&mut self) -> Option<Event> {
        match select(std::pin::pin!(self.events.recv()), self.world.sleep(TICK)).await {
            Either::Left((event, _)) => event,
            Either::Right(_) => None,
        }
    }

    async fn drain_all(&mut self) {
        let now = self.world.uptime();
        self.children.values_mut().for_each(|child| child.drain(now));
        while !self.children.is_empty() {
            if let Some(event) = self.next_event().await {
                self.note(event);
            }
            self.kill_overdue(self.world.uptime());
        }
    }
}
