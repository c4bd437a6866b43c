//! Listens to the queues of one kind of work: wakes at once, and costs next to nothing when idle.
//!
//! A queue is looked into when somebody rings for it, when something is known to come back to it
//! ([`PollSchedule`]), when the gate is released, and by the safety poll, in case a ring was lost. There is
//! one safety poll for all queues: it takes them in turn, and backs off while it finds nothing. A
//! look that finds work becomes a [`Session`], which brings as many receivers as it takes and ends
//! when nothing is left.
//!
//! While work lasts, workers share the queues out by leases ([`QueueLeases`](crate::listening::leases::QueueLeases)): a ring for a queue
//! that somebody else tends to is left to them, and looked after when their lease expires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, pending};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use postonce_shared::backoff::{Backoff, IDLE_POLL, RetryPolicy};
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::queue::QueueName;
use tokio::sync::oneshot;
use tracing::debug;

use crate::background_task::BackgroundTask;
use crate::listening::handler::Handler;
use crate::listening::poll_schedule::PollSchedule;
use crate::listening::session::{Ended, Rings, Session, SessionContext};

/// Longest wait between two safety polls while there is work.
const BUSY_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Wait before a queue is looked into again over which a session fell.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Work that lasts this long is worth a lease.
const LASTING: Duration = Duration::from_secs(2);
/// Rings for what others tend to that go on for this long are for work that lasts.
const LASTING_ELSEWHERE: Duration = Duration::from_secs(10);
/// For how long after its start others may not know of a process, and not ring for it.
const UNKNOWN_TIME_MAX: Duration = Duration::from_secs(20);
/// Pauses up to this long do not end it.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens to the queues of one kind of work.
pub struct Listener<H> {
    /// What its sessions share.
    pub context: Arc<SessionContext<H>>,
    /// Wakes it.
    pub doorbell: Arc<dyn Doorbell>,
    /// Longest wait between two looks into empty queues.
    pub idle_delay_max: Duration,
    /// Done in turn, one at each safety poll.
    pub background_tasks: Vec<Arc<dyn BackgroundTask>>,
}

/// What makes the listener look.
#[derive(Debug)]
enum Event {
    Rung(BTreeSet<QueueName>),
    /// `None` when the session fell over a bug.
    Ended(QueueName, Occasion, Option<Ended>),
    Released,
    Leased,
    Due,
    Drained,
}

/// Why a queue is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// There should be work in it.
    Expected,
    /// In case there is.
    Precaution,
}

/// What the loop keeps. All times are on the clock of the uptime.
struct Loop {
    sessions: BTreeMap<QueueName, Duration>,
    rings: BTreeMap<QueueName, Rings>,
    jobs: FuturesUnordered<BoxFuture<'static, Event>>,
    agenda: PollSchedule,
    idle: Backoff,
    poll_at: Duration,
    polled_at: Duration,
    polled: usize,
    errand_at: Duration,
    errands_done: usize,
    lease_at: Option<Duration>,
    /// How often the gate was opened.
    openings: u64,
    /// Since when there is work, and when a session last received any.
    busy_since: Duration,
    busy_last: Option<Duration>,
    /// Queues that were rung for and left to whoever tends to them, each until it is known whether
    /// they were alive.
    left_to_others: BTreeMap<QueueName, Duration>,
    /// Since when there are such queues.
    left_since: Option<Duration>,
}

impl<H: Handler> Listener<H> {
    /// Listens until the drain starts; then finishes what is in hand.
    pub async fn run(self) {
        let now = self.now();
        let mut state = Loop {
            sessions: BTreeMap::new(),
            rings: BTreeMap::new(),
            jobs: FuturesUnordered::new(),
            agenda: PollSchedule::default(),
            idle: RetryPolicy { longest: self.idle_delay_max, ..IDLE_POLL }.start(),
            poll_at: now,
            polled_at: now,
            polled: 0,
            errand_at: now.saturating_add(self.idle_delay_max),
            errands_done: 0,
            lease_at: None,
            openings: 0,
            busy_since: now,
            busy_last: None,
            left_to_others: BTreeMap::new(),
            left_since: None,
        };
        for queue in &self.context.leases.queues() {
            state.agenda.note(queue, now.saturating_add(UNKNOWN_TIME_MAX));
            self.context.meter.listeners(queue).allow(self.context.receivers.ceiling.get());
        }
        loop {
            match self.next_event(&mut state).await {
                Event::Drained => break,
                Event::Released => {
                    // Whatever was shared out before the hold: now everybody starts.
                    self.context.leases.forget_others();
                    self.start_all(&mut state);
                }
                Event::Rung(queues) => self.rung(queues, &mut state),
                Event::Ended(queue, occasion, ended) => self.ended(&queue, occasion, ended, &mut state),
                Event::Leased => self.leased(&mut state),
                Event::Due => self.due(&mut state),
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

    async fn next_event(&self, state: &mut Loop) -> Event {
        let SessionContext { world, gatekeeper, drain, .. } = &*self.context;
        let until = self.next_time(state, gatekeeper.is_open()).saturating_sub(self.now());
        let job = async {
            match state.jobs.next().await {
                Some(event) => event,
                None => pending().await,
            }
        };
        let released = gatekeeper.opened(&mut state.openings);
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

    /// When something is due next.
    fn next_time(&self, state: &Loop, open: bool) -> Duration {
        let looks = [Some(state.poll_at), state.agenda.next(), state.lease_at];
        let looks = looks.into_iter().flatten().filter(|_| open);
        looks.chain([state.errand_at]).min().unwrap_or(state.errand_at)
    }

    /// The next chore in turn that has something to do. After the last one a poll has none, which pays
    /// for the looks of other kinds.
    fn next_errand(&self, state: &mut Loop) -> Option<Arc<dyn BackgroundTask>> {
        let turns = self.background_tasks.len().saturating_add(1);
        for _ in 0..turns {
            let turn = state.errands_done.checked_rem(turns)?;
            state.errands_done = state.errands_done.saturating_add(1);
            let task = self.background_tasks.get(turn)?;
            if task.is_due() {
                return Some(Arc::clone(task));
            }
        }
        None
    }

    fn due(&self, state: &mut Loop) {
        let now = self.now();
        if state.errand_at <= now {
            state.errand_at = now.saturating_add(self.idle_delay_max);
            if let Some(task) = self.next_errand(state) {
                self.context.world.spawn(async move { task.run().await }.boxed());
            }
        }
        if !self.context.gatekeeper.is_open() {
            return;
        }
        for queue in state.agenda.take_due(now) {
            // A session that only settles looks again.
            self.ring(&queue, state);
            self.start(&queue, Occasion::Precaution, state);
        }
        if state.poll_at <= now {
            self.poll(state);
        }
        if state.lease_at.is_some_and(|at| at <= now) {
            self.lease(state);
        }
    }

    /// The safety poll: one queue in turn.
    fn poll(&self, state: &mut Loop) {
        state.polled_at = self.now();
        state.poll_at = state.polled_at.saturating_add(state.idle.next(&*self.context.world));
        // An errand that is due about then rides along, so that an idle process wakes once.
        let near = self.idle_delay_max.checked_div(10).unwrap_or_default();
        if state.errand_at.abs_diff(state.poll_at) < near {
            state.errand_at = state.poll_at;
        }
        let queues = self.context.leases.queues();
        let turn = state.polled.checked_rem(queues.len());
        state.polled = state.polled.saturating_add(1);
        if let Some(queue) = turn.and_then(|turn| queues.get(turn)) {
            self.start(queue, Occasion::Precaution, state);
        }
    }

    fn rung(&self, queues: BTreeSet<QueueName>, state: &mut Loop) {
        for queue in queues {
            // Somebody may have more queues than this process was told of.
            self.context.leases.add(&queue);
            self.context.meter.listeners(&queue).allow(self.context.receivers.ceiling.get());
            self.ring(&queue, state);
            if self.context.leases.is_mine(&queue) {
                self.start(&queue, Occasion::Expected, state);
            } else {
                self.leave_to_others(&queue, state);
            }
        }
    }

    /// Counts a ring; a session on that queue looks again.
    fn ring(&self, queue: &QueueName, state: &mut Loop) {
        let rings = state.rings.entry(queue.clone()).or_default();
        rings.send_modify(|rings| *rings = rings.saturating_add(1));
    }

    fn leave_to_others(&self, queue: &QueueName, state: &mut Loop) {
        let left = self.context.leases.others_left();
        let now = self.now();
        state.left_to_others.insert(queue.clone(), now.saturating_add(left.unwrap_or_default()));
        state.left_since.get_or_insert(now);
        self.note_lease(left, state);
    }

    fn start_all(&self, state: &mut Loop) {
        for queue in self.context.leases.queues() {
            // A session that is just ending looks again.
            self.ring(&queue, state);
            self.start(&queue, Occasion::Expected, state);
        }
    }

    /// Starts a session, unless one is under way: that one looks again if it was rung for.
    fn start(&self, queue: &QueueName, occasion: Occasion, state: &mut Loop) {
        if state.sessions.contains_key(queue) || !self.context.gatekeeper.is_open() {
            return;
        }
        let rings = state.rings.entry(queue.clone()).or_default().subscribe();
        let session = Session::new(Arc::clone(&self.context), queue.clone(), rings);
        let (tell, told) = oneshot::channel();
        // A task of its own, so that queues use more than one core.
        self.context.world.spawn(async move { drop(tell.send(session.run().await)) }.boxed());
        let name = queue.clone();
        let job = async move { Event::Ended(name, occasion, told.await.ok().flatten()) };
        state.jobs.push(job.boxed());
        state.sessions.insert(queue.clone(), self.now());
        self.note_lease(Some(LASTING), state);
    }

    fn ended(&self, queue: &QueueName, occasion: Occasion, ended: Option<Ended>, state: &mut Loop) {
        let now = self.now();
        let started = state.sessions.remove(queue).unwrap_or(now);
        let Some(Ended { received, seen, back_in }) = ended else {
            state.agenda.note(queue, now.saturating_add(RESTART_DELAY));
            state.agenda.note(queue, now.saturating_add(self.context.visibility_timeout));
            return;
        };
        for delay in back_in {
            state.agenda.note(queue, now.saturating_add(delay));
        }
        if received > 0 || occasion == Occasion::Expected {
            // Others may have received as well, and may die over it.
            state.agenda.note(queue, now.saturating_add(self.context.visibility_timeout));
        }
        if received > 0 {
            if state.busy_last.is_none_or(|last| now.saturating_sub(last) > PAUSE) {
                state.busy_since = started;
            }
            state.busy_last = Some(now);
            state.idle.reset();
            let next = now.saturating_add(state.idle.next(&*self.context.world));
            // However busy some queues are: a ring for another one may have been lost.
            let polled_at = state.polled_at.max(state.busy_since);
            state.poll_at = next.min(polled_at.saturating_add(BUSY_POLL_INTERVAL)).max(now);
        }
        let rung = state.rings.get(queue).is_some_and(|rings| *rings.borrow() > seen);
        if self.context.leases.is_mine(queue) {
            if rung {
                self.start(queue, Occasion::Expected, state);
            }
        } else if rung || received > 0 {
            self.leave_to_others(queue, state);
        }
    }

    fn note_lease(&self, left: Option<Duration>, state: &mut Loop) {
        let at = self.now().saturating_add(left.unwrap_or_default());
        state.lease_at = Some(state.lease_at.map_or(at, |noted| noted.min(at)));
    }

    /// Takes, renews or gives back the lease, or looks at those of others.
    fn lease(&self, state: &mut Loop) {
        state.lease_at = None;
        let now = self.now();
        let oldest = state.sessions.values().min().copied();
        let resumed = state.busy_last.is_some_and(|last| now.saturating_sub(last) <= PAUSE);
        let since = if resumed { Some(state.busy_since) } else { oldest };
        let lasting = since.is_some_and(|since| now.saturating_sub(since) >= LASTING);
        let held = self.context.leases.is_held();
        let leases = Arc::clone(&self.context.leases);
        // Work that lasts elsewhere as well can be shared by more hands.
        let joins = state.left_since.is_some_and(|since| now.saturating_sub(since) >= LASTING_ELSEWHERE);
        let job = if lasting || joins {
            async move { leases.renew().await }.boxed()
        } else if held && since.is_none() {
            async move { leases.release().await }.boxed()
        } else if !state.left_to_others.is_empty() {
            async move { leases.look().await }.boxed()
        } else {
            if since.is_some() {
                self.note_lease(Some(LASTING), state);
            }
            return;
        };
        state.jobs.push(job.map(|()| Event::Leased).boxed());
    }

    /// After a look at the leases: what was left to others and is nobody's or ours now is looked into.
    fn leased(&self, state: &mut Loop) {
        let now = self.now();
        for (queue, until) in std::mem::take(&mut state.left_to_others) {
            if self.context.leases.is_mine(&queue) {
                self.start(&queue, Occasion::Expected, state);
            } else if now < until {
                state.left_to_others.insert(queue, until);
                self.note_lease(Some(until.saturating_sub(now)), state);
            }
        }
        if state.left_to_others.is_empty() {
            state.left_since = None;
        }
        if self.context.leases.is_held() {
            self.note_lease(Some(self.context.leases.renewal_interval()), state);
        }
    }
}
