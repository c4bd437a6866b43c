//! `postonce-worker --scale 1..8`: runs as many worker processes on one machine as the work needs.
//!
//! The supervisor reads the demand at the times of [`demand_schedule`]. It computes the number of workers by the same pure
//! function as `/v1/admin/scale`, and starts and drains worker processes of its own executable ([`child`]). It scales up
//! immediately and down after a delay ([`StabilizationWindow`]), and replaces processes that end unexpectedly, with back-off.
//!
//! The supervisor posts nothing itself, and no work depends on it: if it dies, its workers drain and end.

mod child;
mod demand_schedule;
mod range;
pub mod socket;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use postonce_shared::backoff::{Backoff, PROCESS_START};
use postonce_shared::config::reload;
use postonce_shared::oversight::scaling::{
    Demand, DemandWatch, ScalingPolicy, StabilizationWindow, workers_wanted,
};
use postonce_shared::ports::Store;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::world::World;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use self::child::{Child, Event};
use self::demand_schedule::DemandSchedule;
pub use self::range::{RangeError, SCALE_MAX, ScaleRange};

/// Interval at which the number of processes is compared with the target. Makes no store requests by itself.
const TICK: Duration = Duration::from_secs(1);
/// Running time after which a start counts as successful, and the back-off is reset.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Time after which a draining process is killed. It is longer than the drain limit of the worker.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Capacity of the event channel. Senders wait while it is full.
const EVENTS_MAX: usize = 1024;

/// The program that worker processes run.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the executable.
    pub executable: PathBuf,
    /// Its arguments. Environment variables are inherited.
    pub arguments: Vec<OsString>,
}

/// Keeps the number of running worker processes at the target.
pub struct Supervisor {
    program: Program,
    policy: ScalingPolicy,
    watch: DemandWatch,
    world: Arc<dyn World>,
    schedule: DemandSchedule,
    demand: Demand,
    stabilization: StabilizationWindow,
    target: u32,
    children: BTreeMap<u32, Child>,
    started: u32,
    /// Time before which no process is started.
    restart_at: Duration,
    restart_backoff: Backoff,
    event_sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    reloads: reload::Requests,
}

impl Supervisor {
    /// Creates a supervisor without processes for the queues of a store. `range` replaces the number of workers in the policy.
    pub fn new(
        program: Program,
        range: ScaleRange,
        policy: ScalingPolicy,
        store: &Store,
        queue_count: u16,
        world: Arc<dyn World>,
    ) -> Self {
        let policy = ScalingPolicy { workers_min: range.min, workers_max: range.max, ..policy };
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        Self {
            program,
            watch: DemandWatch::new(store, queue_count, Arc::clone(&world)),
            schedule: DemandSchedule::new(queue_count),
            demand: Demand::default(),
            stabilization: StabilizationWindow::new(policy.down_delay),
            policy,
            world,
            target: 0,
            children: BTreeMap::new(),
            started: 0,
            restart_at: Duration::ZERO,
            restart_backoff: PROCESS_START.start(),
            event_sender,
            events,
            reloads: reload::requests(),
        }
    }

    /// Supervises processes until `stop` returns, then drains them and returns when all have ended.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            let turn = async {
                self.read_demand().await;
                self.adjust();
                if let Some(event) = self.next_event().await {
                    self.on_event(event);
                }
            };
            if let Either::Left(_) = select(stop.as_mut(), std::pin::pin!(turn)).await {
                break;
            }
        }
        info!("Draining {} worker(s)", self.children.len());
        self.drain_all().await;
    }

    /// Reads the demand if a read is due.
    async fn read_demand(&mut self) {
        let now = self.world.uptime();
        if !self.schedule.is_due(now) {
            return;
        }
        match self.watch.demand().await {
            Ok(demand) => {
                self.demand = demand;
                self.schedule.read(now, demand.waiting.saturating_add(demand.batches.items));
            }
            Err(fault) => {
                warn!(
                    "Could not read the number of waiting messages; the number of workers stays the same: {}",
                    chain(&*fault)
                );
                self.schedule.failed(now);
            }
        }
    }

    /// Starts, drains and kills processes until their number matches the target. Forwards requests to read files again.
    fn adjust(&mut self) {
        let now = self.world.uptime();
        let wanted = workers_wanted(&self.demand, &self.policy, self.world.now());
        let target = self.stabilization.follow(now, wanted.workers);
        if target != self.target {
            let Demand { waiting, oldest_age, batches, .. } = self.demand;
            let (age_s, items, floor) = (oldest_age.as_secs(), batches.items, wanted.floor);
            info!(
                "Scaling from {} to {target} workers: {waiting} messages wait, the oldest {age_s} s, and {items} \
                 items of batches; the schedule demands at least {floor}",
                self.target
            );
            self.target = target;
        }
        let target = usize::try_from(self.target).unwrap_or(usize::MAX);
        if self.reloads.take() {
            self.children.values().for_each(Child::reload);
        }
        while self.running().count() < target && now >= self.restart_at {
            self.start(now);
        }
        // Drain the youngest first, because the others have more rows in their caches.
        let too_many: Vec<u32> = self.running().skip(target).collect();
        for youngest in too_many {
            if let Some(child) = self.children.get_mut(&youngest) {
                child.drain(now);
            }
        }
        self.kill_overdue(now);
    }

    /// Returns the numbers of the processes that are not draining, the oldest first.
    fn running(&self) -> impl Iterator<Item = u32> {
        self.children.iter().filter(|(_, child)| !child.is_draining()).map(|(number, _)| *number)
    }

    fn start(&mut self, now: Duration) {
        self.started = self.started.saturating_add(1);
        match Child::start(&self.program, self.started, &self.event_sender, &self.world) {
            Ok(child) => {
                info!("Started worker {} (pid {})", self.started, child.pid());
                self.children.insert(self.started, child);
            }
            Err(error) => {
                let delay = self.restart_backoff.next(&*self.world);
                error!("Could not start a worker; the next attempt is in {delay:?}: {error}");
                self.restart_at = now.saturating_add(delay);
            }
        }
    }

    fn kill_overdue(&mut self, now: Duration) {
        for child in self.children.values_mut() {
            if child.draining_for(now).is_some_and(|time| time > DRAIN_TIMEOUT) && child.kill() {
                error!("Worker {} did not drain within {DRAIN_TIMEOUT:?}, and is killed", child.name());
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Received(messages) => self.schedule.received(messages),
            Event::Ended { number, status } => {
                let Some(child) = self.children.remove(&number) else { return };
                if child.is_draining() {
                    info!("Worker {} was drained ({status})", child.name());
                    return;
                }
                let now = self.world.uptime();
                if child.age(now) >= STABLE_AFTER {
                    self.restart_backoff.reset();
                }
                let delay = self.restart_backoff.next(&*self.world);
                self.restart_at = now.saturating_add(delay);
                warn!(
                    "Worker {} ended by itself ({status}); it is replaced after {delay:?} if needed",
                    child.name()
                );
            }
        }
    }

    /// Returns the next event, or `None` after [`TICK`].
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
                self.on_event(event);
            }
            self.kill_overdue(self.world.uptime());
        }
    }
}
