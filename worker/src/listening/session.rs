//! A queue that has work: receive → handle → settle, by as many receivers side by side as it takes, until
//! nothing is left. While one settles, the next is received.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, pending, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use postonce_shared::backoff::RECEIVE;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::queue::{Message, QueueName, RECEIVE_MAX, WorkQueue};
use postonce_shared::ports::world::World;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::config::Bounds;
use crate::drain::Drain;
use crate::listening::delivery::Delivery;
use crate::listening::gatekeeper::Gatekeeper;
use crate::listening::handler::{Handled, Handler, Health};
use crate::listening::leases::QueueLeases;
use crate::listening::receivers::{Demand, wanted};
use crate::meter::{ListenerGauge, Meter};

/// Least time between two questions for the depth of a queue: they cost operations, too.
const DEPTH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for an answer to it: what is done is settled after that, and no lease is renewed any more.
const DEPTH_TIME_MAX: Duration = Duration::from_secs(1);

/// A receiver that is busy for this long does not keep another one from looking.
const SLOW: Duration = Duration::from_millis(250);

/// How often it rang for one queue.
pub type Rings = watch::Sender<u64>;

/// What the sessions of a listener share.
pub struct SessionContext<H> {
    /// What is done with the messages.
    pub handler: Arc<H>,
    /// Where they come from.
    pub queue: Arc<dyn WorkQueue>,
    /// Says whether anybody may receive.
    pub gatekeeper: Arc<Gatekeeper>,
    /// Say who tends to which queue.
    pub leases: Arc<QueueLeases>,
    /// Time and chance.
    pub world: Arc<dyn World>,
    /// What is counted.
    pub meter: Arc<Meter>,
    /// How long a received message is hidden from others.
    pub visibility_timeout: Duration,
    /// How many receivers a queue may have.
    pub receivers: Bounds,
    /// When to stop.
    pub drain: Drain,
}

/// How a session ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Messages that it received.
    pub received: usize,
    /// Rings for the queue before its last look, which found nothing: what rang later was not looked
    /// for.
    pub seen: u64,
    /// In how long what it gave back can be received again, each.
    pub back_in: Vec<Duration>,
}

/// What one receiver did.
enum Round<D> {
    /// It received nothing, or was not allowed to; rings before it as in [`Ended::seen`].
    Nothing { seen: u64 },
    /// Something was away, before anything was received.
    Away,
    /// It handled messages.
    Done { received: usize, demand: Demand, rest: Rest<D> },
    /// It settled what was left to settle.
    Settled(Handled),
}

/// What is left of messages that were handled.
enum Rest<D> {
    /// Nothing: they are settled.
    Settled(Handled),
    /// They are still to be settled. All is well.
    ToSettle(D),
}

type Rounds<'a, H> = FuturesUnordered<BoxFuture<'a, Round<<H as Handler>::Done>>>;

/// What comes next in a session.
enum Step<D> {
    /// A receiver did that.
    Round(Round<D>),
    /// It rang, and there is room for another one.
    Rung,
    /// No receiver is left.
    Through,
}

/// When a receiver began, and how often it had rung by then.
struct Begun {
    at: Duration,
    rings: u64,
}

/// Works off one queue.
pub struct Session<H> {
    context: Arc<SessionContext<H>>,
    name: QueueName,
    /// How often it was rung for the queue.
    rings: watch::Receiver<u64>,
    gauge: Arc<ListenerGauge>,
    depth_asked_at: AtomicU64,
}

impl<H: Handler> Session<H> {
    /// A session on a queue.
    pub fn new(context: Arc<SessionContext<H>>, name: QueueName, rings: watch::Receiver<u64>) -> Self {
        let gauge = context.meter.listeners(&name);
        Self { context, name, rings, gauge, depth_asked_at: AtomicU64::new(0) }
    }

    /// Runs until the queue is empty or somebody else tends to it, the gate is held, or the drain
    /// starts; what is in hand is finished first. `None` when it fell over a bug.
    pub async fn run(self) -> Option<Ended> {
        let ended = AssertUnwindSafe(self.work_off()).catch_unwind().await;
        if ended.is_err() {
            error!(queue = %self.name, "Working off {} fell over a bug", self.name);
        }
        ended.ok()
    }

    async fn work_off(&self) -> Ended {
        let mut ended = Ended { seen: self.rung(), ..Ended::default() };
        let mut rounds: Rounds<'_, H> = FuturesUnordered::new();
        // Of these, how many are settling.
        let mut settling = 0_usize;
        let mut faults = RECEIVE.start();
        // One looks first: whether there is work for more, it has to see.
        let (mut look, mut receivers, mut delay) = (true, 1, Duration::ZERO);
        let mut first = !self.context.drain.is_started();
        let mut begun = self.begin();
        loop {
            // The first look is free: it may be for something that whoever tends to the queue was not
            // told of.
            let settles_in_time = settling <= self.context.receivers.ceiling.get();
            while look
                && settles_in_time
                && rounds.len().saturating_sub(settling) < receivers
                && (first || self.may_look())
            {
                first = false;
                begun = self.begin();
                // After a fault it waits; what is already under way does not use that up.
                rounds.push(self.round(std::mem::take(&mut delay)).boxed());
            }
            let receiving = rounds.len().saturating_sub(settling);
            let step = self.step(&mut rounds, receiving, settles_in_time, &begun).await;
            let health = match step {
                Step::Through => return ended,
                Step::Rung => {
                    look = true;
                    receivers = receiving.saturating_add(1);
                    continue;
                }
                Step::Round(Round::Nothing { seen }) => {
                    ended.seen = ended.seen.max(seen);
                    look = false;
                    continue;
                }
                Step::Round(Round::Away) => Health::Away,
                Step::Round(Round::Done { received, demand, rest }) => {
                    ended.received = ended.received.saturating_add(received);
                    receivers = if delay.is_zero() { wanted(demand, self.context.receivers) } else { 1 };
                    look = true;
                    match rest {
                        Rest::Settled(handled) => {
                            ended.back_in.extend(handled.back_in);
                            handled.health
                        }
                        Rest::ToSettle(done) => {
                            settling = settling.saturating_add(1);
                            rounds.push(self.settle(done).boxed());
                            continue;
                        }
                    }
                }
                Step::Round(Round::Settled(handled)) => {
                    settling = settling.saturating_sub(1);
                    ended.back_in.extend(handled.back_in);
                    handled.health
                }
            };
            match health {
                Health::Well => faults.reset(),
                Health::Away => {
                    look = true;
                    receivers = 1;
                    delay = faults.next(&*self.context.world);
                }
            }
        }
    }

    /// Waits for the first of so many receivers, or for a ring that calls for another one.
    async fn step(
        &self,
        rounds: &mut Rounds<'_, H>,
        receiving: usize,
        settles_in_time: bool,
        begun: &Begun,
    ) -> Step<H::Done> {
        let room = receiving < self.context.receivers.ceiling.get() && settles_in_time && self.may_look();
        let patience = if receiving == 0 { Duration::ZERO } else { SLOW };
        let helper = async { if room { self.another_hand(begun, patience).await } else { pending().await } };
        match select(rounds.next(), std::pin::pin!(helper)).await {
            Either::Left((None, _)) => Step::Through,
            Either::Left((Some(round), _)) => Step::Round(round),
            Either::Right(((), _)) => Step::Rung,
        }
    }

    fn rung(&self) -> u64 {
        *self.rings.borrow()
    }

    fn begin(&self) -> Begun {
        Begun { at: self.context.world.uptime(), rings: self.rung() }
    }

    /// Returns when it rang since the last receiver began, and some time has passed since it did: what came
    /// meanwhile must not wait for a slow account.
    async fn another_hand(&self, begun: &Begun, patience: Duration) {
        let mut rings = self.rings.clone();
        if rings.wait_for(|rings| *rings > begun.rings).await.is_err() {
            // The listener is gone.
            return pending().await;
        }
        let busy = self.context.world.uptime().saturating_sub(begun.at);
        let patience = patience.saturating_sub(busy);
        if !patience.is_zero() {
            self.context.world.sleep(patience).await;
        }
    }

    fn may_look(&self) -> bool {
        !self.context.drain.is_started() && self.context.leases.is_mine(&self.name)
    }

    /// Receives once, and handles what came; after a delay, where something was away.
    async fn round(&self, delay: Duration) -> Round<H::Done> {
        let SessionContext { handler, queue, gatekeeper, world, meter, visibility_timeout, drain, .. } =
            &*self.context;
        if !delay.is_zero() {
            select(std::pin::pin!(drain.started()), world.sleep(delay)).await;
            if drain.is_started() {
                return Round::Nothing { seen: 0 };
            }
        }
        if !handler.is_ready().await {
            return Round::Away;
        }
        let seen = self.rung();
        let Some(permit) = gatekeeper.enter() else { return Round::Nothing { seen } };
        let received = queue.receive(&self.name, RECEIVE_MAX, *visibility_timeout).await;
        drop(permit);
        let messages = match received {
            Ok(messages) if messages.is_empty() => return Round::Nothing { seen },
            Ok(messages) => messages,
            Err(fault) => {
                meter.queue_faults.add(1);
                warn!(queue = %self.name, "Could not receive from {}: {}", self.name, chain(&fault));
                return Round::Away;
            }
        };
        let _busy = self.gauge.busy();
        let received = messages.len();
        meter.received.add(received);
        let demand = self.demand(&messages, world.now());
        let handling = async {
            let contents = join_all(messages.iter().map(|message| handler.read(message))).await;
            let deliveries = messages.into_iter().zip(contents);
            let deliveries = deliveries.map(|(message, content)| Delivery::new(message, content)).collect();
            handler.handle(&self.name, deliveries).await
        };
        let (demand, (done, health)) = futures::future::join(demand, handling).await;
        let rest = match health {
            Health::Well => Rest::ToSettle(done),
            // Whether to wait before more is received, settling tells.
            Health::Away => Rest::Settled(handler.settle(&self.name, done).await),
        };
        Round::Done { received, demand, rest }
    }

    async fn settle(&self, done: H::Done) -> Round<H::Done> {
        Round::Settled(self.context.handler.settle(&self.name, done).await)
    }

    /// What waits behind messages that were just received. Nothing is known of it unless they were as
    /// many as fit; then the queue is asked, now and then.
    fn demand(
        &self,
        messages: &[Message],
        now: Timestamp,
    ) -> impl Future<Output = Demand> + Send + use<'_, H> {
        let full = messages.len() >= RECEIVE_MAX;
        let oldest = messages.iter().map(|message| message.inserted_at).min();
        let oldest_age = oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
        async move {
            if !full || !self.may_ask_depth() {
                let depth = if full { self.gauge.depth() } else { 0 };
                self.gauge.see(depth, oldest_age);
                return Demand { depth, oldest_age };
            }
            let asked = self.context.queue.backlog(&self.name);
            let depth = match select(asked, self.context.world.sleep(DEPTH_TIME_MAX)).await {
                // What is in hand is counted as well.
                Either::Left((Ok(backlog), _)) => {
                    backlog.depth.saturating_sub(u64::try_from(RECEIVE_MAX).unwrap_or(0))
                }
                Either::Left((Err(_), _)) => 0,
                Either::Right(_) => self.gauge.depth(),
            };
            self.gauge.see(depth, oldest_age);
            Demand { depth, oldest_age }
        }
    }

    fn may_ask_depth(&self) -> bool {
        let now = u64::try_from(self.context.world.uptime().as_millis()).unwrap_or(u64::MAX).max(1);
        let interval = u64::try_from(DEPTH_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let asked = self.depth_asked_at.load(Ordering::Relaxed);
        let due = asked == 0 || now.saturating_sub(asked) >= interval;
        if due {
            self.depth_asked_at.store(now, Ordering::Relaxed);
        }
        due
    }
}
