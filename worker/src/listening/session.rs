//! A session processes one queue with work. Concurrent receivers receive, handle and settle messages until the queue is empty.
//! The next messages are received while the previous ones are settled.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, pending, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use postonce_process::drain::Drain;
use postonce_process::meter::{Counted, ListenerGauge, Meter};
use postonce_process::process_gate::ProcessGate;
use postonce_shared::backoff::RECEIVE;
use postonce_shared::cluster::gate::permits::WorkInProgress;
use postonce_shared::config::ReceiversRule;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::queue::{Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::config::Bounds;
use crate::listening::delivery::Delivery;
use crate::listening::handler::{Handled, Handler, Health};
use crate::listening::leases::QueueLeases;
use crate::listening::receivers::{QueueBacklog, wanted};

/// Minimum time between two reads of the depth of a queue, each of which is a store operation.
const DEPTH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for the depth. Handled messages are settled after it, and their leases are not renewed meanwhile.
const DEPTH_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which another receiver may start although one is busy.
const SLOW_AFTER: Duration = Duration::from_millis(250);

/// Number of rings for one queue.
pub type Rings = watch::Sender<u64>;

/// State that the sessions of a listener share.
pub struct SessionContext<H> {
    /// Handles the received messages.
    pub handler: Arc<H>,
    /// Store of the queues.
    pub queue: Arc<dyn WorkQueue>,
    /// Decides whether messages may be received.
    pub process_gate: Arc<ProcessGate>,
    /// Assigns the queues to workers.
    pub leases: Arc<QueueLeases>,
    /// Clock and random numbers.
    pub world: Arc<dyn World>,
    /// Counters of the worker.
    pub meter: Arc<Meter>,
    /// Time for which a received message is hidden from other receivers.
    pub visibility_timeout: Duration,
    /// Minimum and maximum number of receivers per queue.
    pub receivers: Bounds,
    /// The number of receivers between both.
    pub receivers_rule: ReceiversRule,
    /// Ends the session when it starts.
    pub drain: Drain,
}

/// The result of a session.
#[derive(Debug, Default)]
pub struct SessionEnd {
    /// Number of received messages.
    pub received: usize,
    /// Number of rings before the last receive that found the queue empty. Later rings were not handled.
    pub rings_seen: u64,
    /// Visibility delay of each released message.
    pub visibility_delays: Vec<Duration>,
}

/// Result of one receiver.
enum Cycle<D> {
    /// Nothing was received, or receiving was not allowed. `rings_seen` is as in [`SessionEnd::rings_seen`].
    Nothing {
        rings_seen: u64,
    },
    /// A dependency was unavailable, so nothing was received.
    Unavailable,
    Done {
        received: usize,
        backlog: QueueBacklog,
        settle_state: SettleState<D>,
    },
    /// Messages of an earlier receive were settled.
    Settled(Handled),
}

/// Counts messages in progress: those with leases, and the work for which a drain waits.
type InProgress = (Counted, WorkInProgress);

/// Whether handled messages were settled.
enum SettleState<D> {
    Settled(Handled),
    /// The messages are still to be settled, and leased. All dependencies were available.
    Pending(D, InProgress),
}

type Cycles<'a, H> = FuturesUnordered<BoxFuture<'a, Cycle<<H as Handler>::Done>>>;

enum Step<D> {
    Cycle(Cycle<D>),
    /// The queue was rung, and another receiver can start.
    Rung,
    /// No receiver is left.
    Finished,
}

/// Time at which the last receiver started, and number of rings before.
struct LastStart {
    at: Duration,
    rings: u64,
}

/// Processes one queue.
pub struct Session<H> {
    context: Arc<SessionContext<H>>,
    name: QueueName,
    rings: watch::Receiver<u64>,
    gauge: Arc<ListenerGauge>,
    depth_read_at: AtomicU64,
}

impl<H: Handler> Session<H> {
    /// Creates a session on a queue.
    pub fn new(context: Arc<SessionContext<H>>, name: QueueName, rings: watch::Receiver<u64>) -> Self {
        let gauge = context.meter.listeners(&name);
        Self { context, name, rings, gauge, depth_read_at: AtomicU64::new(0) }
    }

    /// Runs until the queue is empty or assigned to another worker, the gate is held, or the drain starts. Work in progress is
    /// finished. Returns `None` if the session panicked.
    pub async fn run(self) -> Option<SessionEnd> {
        let ended = AssertUnwindSafe(self.process()).catch_unwind().await;
        if ended.is_err() {
            error!(queue = %self.name, "The session on {} panicked", self.name);
        }
        ended.ok()
    }

    async fn process(&self) -> SessionEnd {
        let mut ended = SessionEnd { rings_seen: self.ring_count(), ..SessionEnd::default() };
        let mut cycles: Cycles<'_, H> = FuturesUnordered::new();
        // Number of futures in `cycles` that settle.
        let mut settling = 0_usize;
        let mut faults = RECEIVE.start();
        // Start with one receiver, which finds out whether more are needed.
        let (mut poll, mut receivers, mut delay) = (true, 1, Duration::ZERO);
        let mut first = !self.context.drain.is_started();
        let mut last_start = self.start();
        loop {
            // The first receive is always allowed, because the worker to which the queue is assigned may not know of the work.
            let may_add_settling = settling <= self.context.receivers.ceiling.get();
            while poll
                && may_add_settling
                && cycles.len().saturating_sub(settling) < receivers
                && (first || self.may_receive())
            {
                first = false;
                last_start = self.start();
                // Only a new receiver waits after a fault. Running ones do not use up the delay.
                cycles.push(self.cycle(std::mem::take(&mut delay)).boxed());
            }
            let receiving = cycles.len().saturating_sub(settling);
            let step = self.step(&mut cycles, receiving, may_add_settling, &last_start).await;
            let health = match step {
                Step::Finished => return ended,
                Step::Rung => {
                    poll = true;
                    receivers = receiving.saturating_add(1);
                    continue;
                }
                Step::Cycle(Cycle::Nothing { rings_seen }) => {
                    ended.rings_seen = ended.rings_seen.max(rings_seen);
                    poll = false;
                    continue;
                }
                Step::Cycle(Cycle::Unavailable) => Health::Unavailable,
                Step::Cycle(Cycle::Done { received, backlog, settle_state }) => {
                    ended.received = ended.received.saturating_add(received);
                    receivers = if delay.is_zero() {
                        wanted(backlog, self.context.receivers, &self.context.receivers_rule)
                    } else {
                        1
                    };
                    poll = true;
                    match settle_state {
                        SettleState::Settled(handled) => {
                            ended.visibility_delays.extend(handled.visibility_delays);
                            handled.health
                        }
                        SettleState::Pending(done, in_progress) => {
                            settling = settling.saturating_add(1);
                            cycles.push(self.settle(done, in_progress).boxed());
                            continue;
                        }
                    }
                }
                Step::Cycle(Cycle::Settled(handled)) => {
                    settling = settling.saturating_sub(1);
                    ended.visibility_delays.extend(handled.visibility_delays);
                    handled.health
                }
            };
            match health {
                Health::Healthy => faults.reset(),
                Health::Unavailable => {
                    poll = true;
                    receivers = 1;
                    delay = faults.next(&*self.context.world);
                }
            }
        }
    }

    /// Waits for the first receiver to complete, or for a ring that requires another receiver.
    async fn step(
        &self,
        cycles: &mut Cycles<'_, H>,
        receiving: usize,
        may_add_settling: bool,
        last_start: &LastStart,
    ) -> Step<H::Done> {
        let room = receiving < self.context.receivers.ceiling.get() && may_add_settling && self.may_receive();
        let delay = if receiving == 0 { Duration::ZERO } else { SLOW_AFTER };
        let another = async {
            if room { self.until_receiver_is_needed(last_start, delay).await } else { pending().await }
        };
        match select(cycles.next(), std::pin::pin!(another)).await {
            Either::Left((None, _)) => Step::Finished,
            Either::Left((Some(cycle), _)) => Step::Cycle(cycle),
            Either::Right(((), _)) => Step::Rung,
        }
    }

    fn ring_count(&self) -> u64 {
        *self.rings.borrow()
    }

    fn start(&self) -> LastStart {
        LastStart { at: self.context.world.uptime(), rings: self.ring_count() }
    }

    /// Waits until the queue is rung and the last receiver has been busy for longer than `delay`, so that new messages do not
    /// wait for a slow account.
    async fn until_receiver_is_needed(&self, last_start: &LastStart, delay: Duration) {
        let mut rings = self.rings.clone();
        if rings.wait_for(|rings| *rings > last_start.rings).await.is_err() {
            // The listener has ended.
            return pending().await;
        }
        let busy = self.context.world.uptime().saturating_sub(last_start.at);
        let delay = delay.saturating_sub(busy);
        if !delay.is_zero() {
            self.context.world.sleep(delay).await;
        }
    }

    fn may_receive(&self) -> bool {
        !self.context.drain.is_started() && self.context.leases.is_mine(&self.name)
    }

    /// Receives once, after `delay`, and handles the messages.
    async fn cycle(&self, delay: Duration) -> Cycle<H::Done> {
        let SessionContext { handler, queue, process_gate, world, meter, visibility_timeout, drain, .. } =
            &*self.context;
        if !delay.is_zero() {
            select(std::pin::pin!(drain.started()), world.sleep(delay)).await;
            if drain.is_started() {
                return Cycle::Nothing { rings_seen: 0 };
            }
        }
        if !handler.is_ready().await {
            return Cycle::Unavailable;
        }
        // A drain waits for work in progress, so none may begin after its start.
        if drain.is_started() {
            return Cycle::Nothing { rings_seen: 0 };
        }
        let rings_seen = self.ring_count();
        let Some(permit) = process_gate.enter() else { return Cycle::Nothing { rings_seen } };
        let received = queue.receive(&self.name, H::MESSAGES_AT_ONCE, *visibility_timeout).await;
        let working = process_gate.begin_work();
        drop(permit);
        let messages = match received {
            Ok(messages) if messages.is_empty() => {
                self.gauge.record_backlog(world.now(), 0, Duration::ZERO);
                return Cycle::Nothing { rings_seen };
            }
            Ok(messages) => messages,
            Err(fault) => {
                meter.queue_faults.add(1);
                meter.queue_unavailable.notify_one();
                warn!(queue = %self.name, "Could not receive from {}: {}", self.name, chain(&fault));
                return Cycle::Unavailable;
            }
        };
        let received = messages.len();
        let (_busy, leased) = (self.gauge.busy(), self.gauge.lease(received));
        meter.received.add(received);
        let backlog = self.backlog(&messages, world.now());
        let handling = async {
            let contents = join_all(messages.iter().map(|message| handler.read(message))).await;
            let deliveries = messages.into_iter().zip(contents);
            let deliveries = deliveries.map(|(message, content)| Delivery::new(message, content)).collect();
            handler.handle(&self.name, deliveries).await
        };
        let (backlog, (done, health)) = futures::future::join(backlog, handling).await;
        let settle_state = match health {
            Health::Healthy => SettleState::Pending(done, (leased, working)),
            // Settle first: the result decides whether to wait.
            Health::Unavailable => SettleState::Settled(handler.settle(&self.name, done).await),
        };
        Cycle::Done { received, backlog, settle_state }
    }

    async fn settle(&self, done: H::Done, _in_progress: InProgress) -> Cycle<H::Done> {
        Cycle::Settled(self.context.handler.settle(&self.name, done).await)
    }

    /// Returns the backlog after messages that were just received. It is empty unless the receive was full. If it was, the
    /// depth of the queue is read, at most once per interval.
    fn backlog(
        &self,
        messages: &[Message],
        now: Timestamp,
    ) -> impl Future<Output = QueueBacklog> + Send + use<'_, H> {
        let full = messages.len() >= H::MESSAGES_AT_ONCE;
        let oldest = messages.iter().map(|message| message.inserted_at).min();
        let oldest_age = oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
        async move {
            if !full || !self.depth_is_due() {
                let depth = if full { self.gauge.depth() } else { 0 };
                self.gauge.record_backlog(now, depth, oldest_age);
                return QueueBacklog { depth, oldest_age };
            }
            let reading = self.context.queue.backlog(&self.name);
            let depth = match select(reading, self.context.world.sleep(DEPTH_TIMEOUT)).await {
                // The depth includes the messages in progress.
                Either::Left((Ok(backlog), _)) => {
                    backlog.depth.saturating_sub(u64::try_from(H::MESSAGES_AT_ONCE).unwrap_or(0))
                }
                Either::Left((Err(_), _)) => 0,
                Either::Right(_) => self.gauge.depth(),
            };
            self.gauge.record_backlog(now, depth, oldest_age);
            QueueBacklog { depth, oldest_age }
        }
    }

    fn depth_is_due(&self) -> bool {
        let now = u64::try_from(self.context.world.uptime().as_millis()).unwrap_or(u64::MAX).max(1);
        let interval = u64::try_from(DEPTH_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let read_at = self.depth_read_at.load(Ordering::Relaxed);
        let due = read_at == 0 || now.saturating_sub(read_at) >= interval;
        if due {
            self.depth_read_at.store(now, Ordering::Relaxed);
        }
        due
    }
}
