//! Listens to the queues of one kind of work. It reacts to rings immediately, and makes few store requests when idle.
//!
//! A queue is polled when it is rung, when a message in it is expected to become visible ([`PollSchedule`]), when the gate is
//! released, and by the safety poll ([`SafetyPoll`]), in case a ring was lost. When another process misses its ping, all queues
//! are polled. Each poll runs a [`Session`], which adds receivers as needed and ends when the queue is empty.
//!
//! Under lasting load, the workers distribute the queues among themselves by leases
//! ([`QueueLeases`](crate::listening::leases::QueueLeases)). A worker ignores a ring for a queue of another worker, and checks
//! the queue when the lease expires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, pending};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use postonce_process::background_task::BackgroundTask;
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::queue::QueueName;
use tokio::sync::oneshot;
use tracing::debug;

use crate::config::IdleDelays;
use crate::listening::handler::Handler;
use crate::listening::poll_schedule::PollSchedule;
use crate::listening::safety_poll::{DuePoll, SafetyPoll};
use crate::listening::session::{Rings, Session, SessionContext, SessionEnd};

/// Delay before polling again after a session panicked.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Duration of continuous work after which a worker takes a lease.
const LEASE_AFTER: Duration = Duration::from_secs(2);
/// Time during which rings for queues of other workers arrive before this worker takes a lease too.
const JOIN_AFTER: Duration = Duration::from_secs(10);
/// Time after the start during which other processes may not know this one and not ring it.
const REGISTRATION_TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum pause within continuous work.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Listens to the queues of one kind of work.
pub struct Listener<H> {
    /// State shared by the sessions.
    pub context: Arc<SessionContext<H>>,
    /// Delivers rings.
    pub doorbell: Arc<dyn Doorbell>,
    /// Maximum delays between two polls of empty queues.
    pub idle_delays: IdleDelays,
    /// Tasks that are started in turn, one at a time.
    pub background_tasks: Vec<Arc<dyn BackgroundTask>>,
}

#[derive(Debug)]
enum Event {
    Rung(BTreeSet<QueueName>),
    /// Contains `None` if the session panicked.
    Ended(QueueName, PollReason, Option<SessionEnd>),
    Released,
    LeasesChanged,
    Due,
    Drained,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PollReason {
    /// There is probably work in the queue.
    Expected,
    /// A ring may have been lost.
    Precaution,
}

/// State of the listener. All times are uptimes of the process.
struct ListenerState {
    sessions: BTreeMap<QueueName, Duration>,
    rings: BTreeMap<QueueName, Rings>,
    jobs: FuturesUnordered<BoxFuture<'static, Event>>,
    schedule: PollSchedule,
    safety_poll: SafetyPoll,
    lease_at: Option<Duration>,
    /// Number of gate releases that were handled.
    releases: u64,
    /// Start of the current period of continuous work.
    busy_since: Duration,
    busy_last: Option<Duration>,
    /// Queues whose rings were left to other workers, each with the time until which it is kept: when the known leases of other
    /// workers have expired or were renewed.
    left_to_others: BTreeMap<QueueName, Duration>,
    /// Time since which there are such queues.
    left_since: Option<Duration>,
}

impl<H: Handler> Listener<H> {
    /// Listens until the drain starts, and then waits for the sessions to end.
    pub async fn run(self) {
        let now = self.now();
        let mut state = ListenerState {
            sessions: BTreeMap::new(),
            rings: BTreeMap::new(),
            jobs: FuturesUnordered::new(),
            schedule: PollSchedule::default(),
            safety_poll: SafetyPoll::new(self.idle_delays, now),
            lease_at: None,
            releases: 0,
            busy_since: now,
            busy_last: None,
            left_to_others: BTreeMap::new(),
            left_since: None,
        };
        self.context.meter.report_receivers_rule(self.context.receivers_rule.to_string());
        let leases = Arc::clone(&self.context.leases);
        self.context.meter.report_assigned(move || leases.assigned());
        for queue in &self.context.leases.queues() {
            state.schedule.add(queue, now.saturating_add(REGISTRATION_TIME_MAX));
            if self.idle_delays.is_never() {
                // A process that has ended may have received a message.
                let visible = self.context.visibility_timeout.saturating_add(REGISTRATION_TIME_MAX);
                state.schedule.add(queue, now.saturating_add(visible));
            }
            self.context.meter.listeners(queue).set_max(self.context.receivers.ceiling.get());
        }
        loop {
            match self.next_event(&mut state).await {
                Event::Drained => break,
                Event::Released => {
                    // The assignment from before the hold is outdated: all workers start on all queues.
                    self.context.leases.forget_others();
                    self.start_all(&mut state);
                }
                Event::Rung(queues) => self.on_rings(queues, &mut state),
                Event::Ended(queue, reason, ended) => self.on_session_end(&queue, reason, ended, &mut state),
                Event::LeasesChanged => self.on_leases_changed(&mut state),
                Event::Due => self.on_due(&mut state),
            }
        }
        while !state.sessions.is_empty()
            && let Some(event) = state.jobs.next().await
        {
            if let Event::Ended(queue, _, _) = event {
                state.sessions.remove(&queue);
            }
        }
        if self.context.leases.is_held() {
            self.context.leases.release().await;
        }
        debug!("Stopped listening for {}", H::NAME);
    }

    async fn next_event(&self, state: &mut ListenerState) -> Event {
        let SessionContext { world, process_gate, drain, .. } = &*self.context;
        let until = self.next_time(state, process_gate.is_open()).saturating_sub(self.now());
        let job = async {
            match state.jobs.next().await {
                Some(event) => event,
                None => pending().await,
            }
        };
        let released = process_gate.released(&mut state.releases);
        futures::select_biased! {
            () = drain.started().fuse() => Event::Drained,
            () = released.fuse() => Event::Released,
            event = job.fuse() => event,
            queues = self.doorbell.rung(H::NAME).fuse() => Event::Rung(queues),
            () = world.sleep(until).fuse() => Event::Due,
        }
    }

    fn now(&self) -> Duration {
        self.context.world.uptime()
    }

    fn next_time(&self, state: &ListenerState, open: bool) -> Duration {
        let task_at = state.safety_poll.next_task();
        let polls = [Some(state.safety_poll.next()), state.schedule.next(), state.lease_at];
        let polls = polls.into_iter().flatten().filter(|_| open);
        // This also applies while the gate is held: the background tasks, which read it, become frequent after a missed ping.
        polls.chain(state.safety_poll.proven_until()).chain([task_at]).min().unwrap_or(task_at)
    }

    fn on_due(&self, state: &mut ListenerState) {
        let now = self.now();
        if let Some(task) = state.safety_poll.take_task(now, &self.background_tasks) {
            self.context.world.spawn(async move { task.run().await }.boxed());
        }
        let has_missed_ping = state.safety_poll.has_missed_ping(now, &*self.doorbell);
        if !self.context.process_gate.is_open() {
            return;
        }
        if has_missed_ping {
            debug!("A process missed its ping: polling all queues");
            self.start_all(state);
        }
        for queue in state.schedule.take_due(now) {
            // A session that is only settling polls again.
            self.count_ring(&queue, state);
            self.start(&queue, PollReason::Precaution, state);
        }
        match state.safety_poll.take_poll(now, &*self.doorbell, &*self.context.world) {
            Some(DuePoll::Turn(turn)) => self.poll(turn, state),
            Some(DuePoll::All) => self.start_all(state),
            None => {}
        }
        if state.lease_at.is_some_and(|at| at <= now) {
            self.update_lease(state);
        }
    }

    /// Runs the safety poll of the queue in turn.
    fn poll(&self, turn: usize, state: &mut ListenerState) {
        let queues = self.context.leases.queues();
        let turn = turn.checked_rem(queues.len());
        if let Some(queue) = turn.and_then(|turn| queues.get(turn)) {
            self.start(queue, PollReason::Precaution, state);
        }
    }

    fn on_rings(&self, queues: BTreeSet<QueueName>, state: &mut ListenerState) {
        for queue in queues {
            // Another process may be configured with more queues than this one.
            self.context.leases.add(&queue);
            self.context.meter.listeners(&queue).set_max(self.context.receivers.ceiling.get());
            self.count_ring(&queue, state);
            if self.context.leases.is_mine(&queue) {
                self.start(&queue, PollReason::Expected, state);
            } else {
                self.leave_to_others(&queue, state);
            }
        }
    }

    /// Counts a ring, so that a running session of the queue polls again.
    fn count_ring(&self, queue: &QueueName, state: &mut ListenerState) {
        let rings = state.rings.entry(queue.clone()).or_default();
        rings.send_modify(|rings| *rings = rings.saturating_add(1));
    }

    fn leave_to_others(&self, queue: &QueueName, state: &mut ListenerState) {
        let left = self.context.leases.others_expire_in();
        let now = self.now();
        state.left_to_others.insert(queue.clone(), now.saturating_add(left.unwrap_or_default()));
        state.left_since.get_or_insert(now);
        self.schedule_lease_check(left, state);
    }

    fn start_all(&self, state: &mut ListenerState) {
        for queue in self.context.leases.queues() {
            // A session that is about to end polls again.
            self.count_ring(&queue, state);
            self.start(&queue, PollReason::Expected, state);
        }
    }

    /// Starts a session unless one is running.
    fn start(&self, queue: &QueueName, reason: PollReason, state: &mut ListenerState) {
        if state.sessions.contains_key(queue) || !self.context.process_gate.is_open() {
            return;
        }
        let rings = state.rings.entry(queue.clone()).or_default().subscribe();
        let session = Session::new(Arc::clone(&self.context), queue.clone(), rings);
        let (result_sender, result) = oneshot::channel();
        // A separate task, so that sessions run in parallel.
        self.context.world.spawn(async move { drop(result_sender.send(session.run().await)) }.boxed());
        let name = queue.clone();
        let job = async move { Event::Ended(name, reason, result.await.ok().flatten()) };
        state.jobs.push(job.boxed());
        state.sessions.insert(queue.clone(), self.now());
        self.schedule_lease_check(Some(LEASE_AFTER), state);
    }

    fn on_session_end(
        &self,
        queue: &QueueName,
        reason: PollReason,
        ended: Option<SessionEnd>,
        state: &mut ListenerState,
    ) {
        let now = self.now();
        let started = state.sessions.remove(queue).unwrap_or(now);
        let Some(SessionEnd { received, rings_seen, visibility_delays }) = ended else {
            state.schedule.add(queue, now.saturating_add(RESTART_DELAY));
            state.schedule.add(queue, now.saturating_add(self.context.visibility_timeout));
            return;
        };
        for delay in visibility_delays {
            state.schedule.add(queue, now.saturating_add(delay));
        }
        if received > 0 || reason == PollReason::Expected {
            // Other workers may also have received messages, and may die before they settle them.
            state.schedule.add(queue, now.saturating_add(self.context.visibility_timeout));
        }
        if received > 0 {
            if state.busy_last.is_none_or(|last| now.saturating_sub(last) > PAUSE_MAX) {
                state.busy_since = started;
            }
            state.busy_last = Some(now);
            state.safety_poll.reset(now, state.busy_since, &*self.context.world);
        }
        let is_rung = state.rings.get(queue).is_some_and(|rings| *rings.borrow() > rings_seen);
        if self.context.leases.is_mine(queue) {
            if is_rung {
                self.start(queue, PollReason::Expected, state);
            }
        } else if is_rung || received > 0 {
            self.leave_to_others(queue, state);
        }
    }

    fn schedule_lease_check(&self, delay: Option<Duration>, state: &mut ListenerState) {
        let at = self.now().saturating_add(delay.unwrap_or_default());
        state.lease_at = Some(state.lease_at.map_or(at, |at_before| at_before.min(at)));
    }

    /// Takes, renews or releases the lease, or reads the leases of other workers.
    fn update_lease(&self, state: &mut ListenerState) {
        state.lease_at = None;
        let now = self.now();
        let oldest = state.sessions.values().min().copied();
        let is_busy = state.busy_last.is_some_and(|last| now.saturating_sub(last) <= PAUSE_MAX);
        let since = if is_busy { Some(state.busy_since) } else { oldest };
        let is_lasting = since.is_some_and(|since| now.saturating_sub(since) >= LEASE_AFTER);
        let held = self.context.leases.is_held();
        let leases = Arc::clone(&self.context.leases);
        // Work that keeps other workers busy can be shared with this one.
        let joining = state.left_since.is_some_and(|since| now.saturating_sub(since) >= JOIN_AFTER);
        let job = if is_lasting || joining {
            async move { leases.renew().await }.boxed()
        } else if held && since.is_none() {
            async move { leases.release().await }.boxed()
        } else if !state.left_to_others.is_empty() {
            async move { leases.refresh().await }.boxed()
        } else {
            if since.is_some() {
                self.schedule_lease_check(Some(LEASE_AFTER), state);
            }
            return;
        };
        state.jobs.push(job.map(|()| Event::LeasesChanged).boxed());
    }

    /// Starts sessions on queues that were left to other workers, and are now unassigned or assigned to this worker. Called
    /// after leases were read or written.
    fn on_leases_changed(&self, state: &mut ListenerState) {
        let now = self.now();
        for (queue, until) in std::mem::take(&mut state.left_to_others) {
            if self.context.leases.is_mine(&queue) {
                self.start(&queue, PollReason::Expected, state);
            } else if now < until {
                state.left_to_others.insert(queue, until);
                self.schedule_lease_check(Some(until.saturating_sub(now)), state);
            }
        }
        if state.left_to_others.is_empty() {
            state.left_since = None;
        }
        if self.context.leases.is_held() {
            self.schedule_lease_check(Some(self.context.leases.renewal_interval()), state);
        }
    }
}
