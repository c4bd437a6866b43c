//! Obeys the gate in one process: nobody receives while it is held.
//!
//! The value is read at the start, when a ring tells of another epoch, and now and then in case
//! such a ring was lost. Until it was read once, the gate counts as held. An outage later on changes
//! nothing: what was read last stands.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{Either, pending, select};
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::cluster::gate::{Gate, GateState, GateValue};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::world::World;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::background_task::BackgroundTask;
use crate::drain::Drain;

/// Longest sleep before a scheduled release is compared with the clock again: clocks are set.
const CLOCK_CHECK_MAX: Duration = Duration::from_secs(10);
/// How long an acknowledgment waits for receives under way.
const RECEIVES_END_MAX: Duration = Duration::from_secs(2);

/// What this process knows of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It was not read yet, or cannot be understood: held.
    Nothing,
    /// What was read last.
    Order(GateValue),
}

/// Stands between the listeners of a process and the queues.
pub struct Gatekeeper {
    gate: Gate,
    world: Arc<dyn World>,
    /// Whether a gate that nobody ever touched is held first.
    hold_first: bool,
    known: watch::Sender<Known>,
    /// How often a release was noticed.
    openings: watch::Sender<u64>,
    /// Receives under way.
    receiving: watch::Sender<usize>,
}

impl Gatekeeper {
    /// A gatekeeper who has not looked yet: the gate counts as held. With `hold_first`, a gate that
    /// nobody ever touched is held before anything is received.
    pub fn new(gate: Gate, world: Arc<dyn World>, hold_first: bool) -> Self {
        Self {
            gate,
            world,
            hold_first,
            known: watch::Sender::new(Known::Nothing),
            openings: watch::Sender::new(0),
            receiving: watch::Sender::new(0),
        }
    }

    /// Whether listeners may receive.
    pub fn is_open(&self) -> bool {
        matches!(*self.known.borrow(), Known::Order(GateValue { state: GateState::Released, .. }))
    }

    /// The epoch that this process obeys; zero before the first one, and before it was read.
    pub fn epoch(&self) -> u64 {
        match *self.known.borrow() {
            Known::Nothing => 0,
            Known::Order(order) => order.epoch,
        }
    }

    /// Asks to receive; `None` while the gate is held. Keep the permit while the receive is under way.
    pub fn enter(&self) -> Option<Receiving<'_>> {
        // Counted first: a hold that comes in between then waits for this receive, or is seen here.
        let receiving = Receiving::begin(&self.receiving);
        self.is_open().then_some(receiving)
    }

    /// Returns when the gate was opened since `seen`, which is then how often it was: also when it was
    /// held only for a moment.
    pub async fn opened(&self, seen: &mut u64) {
        let mut openings = self.openings.subscribe();
        // The sender lives in self.
        if let Ok(now) = openings.wait_for(|openings| *openings != *seen).await.map(|now| *now) {
            *seen = now;
        }
    }

    /// Reads the gate until it can be read, and from then on watches for a scheduled release. Ends
    /// when the drain starts.
    pub async fn watch(&self, drain: &Drain) {
        let mut faults = STORE_NEEDED.start();
        let mut known = self.known.subscribe();
        while !drain.is_started() {
            let now = *known.borrow_and_update();
            let wait = match now {
                Known::Nothing if self.look().await.is_ok() => continue,
                Known::Nothing => faults.next(&*self.world),
                Known::Order(order) if order.is_due(self.world.now()) => match self.release().await {
                    Ok(()) => continue,
                    Err(fault) => {
                        warn!("Could not release the gate on time: {}", chain(&fault));
                        faults.next(&*self.world)
                    }
                },
                Known::Order(GateValue { state: GateState::Held { release_at: Some(at) }, .. }) => {
                    at.since(self.world.now()).min(CLOCK_CHECK_MAX)
                }
                Known::Order(_) => Duration::MAX,
            };
            let waited = async {
                match wait {
                    Duration::MAX => pending().await,
                    wait => self.world.sleep(wait).await,
                }
            };
            let (changed, waited) = (std::pin::pin!(known.changed()), std::pin::pin!(waited));
            select(std::pin::pin!(drain.started()), select(changed, waited)).await;
        }
    }

    /// Told that the gate has this epoch: reads it, and obeys. The answer is the epoch that is obeyed
    /// from now on; when it is held, no receive is under way any more. Zero when that takes too long.
    pub async fn heard(&self, epoch: u64) -> u64 {
        if self.epoch() != epoch || *self.known.borrow() == Known::Nothing {
            // Logged where it failed; the answer tells.
            let _unread = self.look().await;
        }
        if !self.is_open() {
            let mut receiving = self.receiving.subscribe();
            let ended = std::pin::pin!(receiving.wait_for(|count| *count == 0));
            match select(ended, self.world.sleep(RECEIVES_END_MAX)).await {
                Either::Left(_) => {}
                Either::Right(_) => {
                    warn!("A receive is still under way while the gate is held");
                    return 0;
                }
            }
        }
        self.epoch()
    }

    async fn release(&self) -> Result<(), StoreFault> {
        let order = self.gate.release_if_due().await?;
        self.obey(order);
        Ok(())
    }

    async fn look(&self) -> Result<(), StoreFault> {
        let read = match *self.known.borrow() {
            Known::Nothing if self.hold_first => self.gate.hold_if_unset().boxed(),
            Known::Nothing | Known::Order(_) => self.gate.read().boxed(),
        };
        match read.await {
            Ok(order) => {
                self.obey(order);
                Ok(())
            }
            Err(fault) => {
                match &fault {
                    // What was read last stands.
                    StoreFault::Unavailable { .. }
                    | StoreFault::Refused { .. }
                    | StoreFault::ForeignCursor { .. } => {
                        warn!("Could not read the gate: {}", chain(&fault));
                    }
                    StoreFault::Corrupt { .. } => {
                        error!("The gate counts as held: {}", chain(&fault));
                        self.known.send_replace(Known::Nothing);
                    }
                }
                Err(fault)
            }
        }
    }

    fn obey(&self, order: GateValue) {
        let newer = self.known.send_if_modified(|known| {
            // Answers may overtake each other: an older order never undoes a newer one.
            let newer = match *known {
                Known::Nothing => true,
                Known::Order(before) => before.epoch < order.epoch,
            };
            if newer {
                *known = Known::Order(order);
            }
            newer
        });
        // Whatever came in between: after a newer release everybody starts.
        if newer && order.state == GateState::Released {
            self.openings.send_modify(|openings| *openings = openings.saturating_add(1));
        }
        if newer && order.epoch > 0 {
            let (epoch, state) = (order.epoch, order.state);
            match state {
                GateState::Released => info!(gate.epoch = epoch, "The gate is released (epoch {epoch})"),
                GateState::Held { .. } => info!(gate.epoch = epoch, "The gate is held (epoch {epoch})"),
            }
        }
    }
}

/// In case a ring was lost.
#[async_trait]
impl BackgroundTask for Gatekeeper {
    async fn run(&self) {
        // Logged where it failed; the next turn comes.
        let _unread = self.look().await;
    }
}

/// A receive under way.
#[derive(Debug)]
pub struct Receiving<'a>(&'a watch::Sender<usize>);

impl<'a> Receiving<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count = count.saturating_add(1));
        Self(count)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
