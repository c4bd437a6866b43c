//! Applies the gate in one process: no messages are received while it is held.
//!
//! The value is read at the start, when a notification contains another epoch or a ping a newer one, and by a
//! background task in case these were lost. The gate counts as held until it was read once. During a later outage the
//! last value stays in effect.

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

/// Longest sleep before a scheduled release is compared with the clock again: the clock may be adjusted.
const CLOCK_CHECK_MAX: Duration = Duration::from_secs(10);
/// Time for which an acknowledgment waits for receive requests in progress.
const RECEIVES_END_MAX: Duration = Duration::from_secs(2);

/// The state of the gate, as this process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Not read yet, or not readable. The gate counts as held.
    Unknown,
    /// The value that was read last.
    Value(GateValue),
}

/// Decides whether the listeners of a process may receive.
pub struct Gatekeeper {
    gate: Gate,
    world: Arc<dyn World>,
    /// Whether to hold the gate at the start, if it was never set.
    hold_first: bool,
    known: watch::Sender<Known>,
    /// Number of releases that were observed.
    releases: watch::Sender<u64>,
    /// Receive requests in progress.
    receiving: watch::Sender<usize>,
}

impl Gatekeeper {
    /// Creates a gatekeeper that has not read the gate: it counts as held. With `hold_first`, a gate that was never
    /// set is held before any message is received.
    pub fn new(gate: Gate, world: Arc<dyn World>, hold_first: bool) -> Self {
        Self {
            gate,
            world,
            hold_first,
            known: watch::Sender::new(Known::Unknown),
            releases: watch::Sender::new(0),
            receiving: watch::Sender::new(0),
        }
    }

    /// Returns whether listeners may receive.
    pub fn is_open(&self) -> bool {
        matches!(*self.known.borrow(), Known::Value(GateValue { state: GateState::Released, .. }))
    }

    /// Returns the epoch that this process applies; zero before the first epoch, and before the first read.
    pub fn epoch(&self) -> u64 {
        match *self.known.borrow() {
            Known::Unknown => 0,
            Known::Value(value) => value.epoch,
        }
    }

    /// Returns a permit to receive; `None` while the gate is held. Keep the permit during the receive request.
    pub fn enter(&self) -> Option<ReceivePermit<'_>> {
        // Counted before the check: a hold in between either waits for this receive, or is visible to the check.
        let receiving = ReceivePermit::begin(&self.receiving);
        self.is_open().then_some(receiving)
    }

    /// Returns when the number of releases differs from `seen`, and updates `seen`. A release counts even if the gate
    /// was held again at once.
    pub async fn released(&self, seen: &mut u64) {
        let mut releases = self.releases.subscribe();
        // The sender exists as long as `self`.
        if let Ok(now) = releases.wait_for(|releases| *releases != *seen).await.map(|now| *now) {
            *seen = now;
        }
    }

    /// Reads the gate until it is readable, and then performs scheduled releases. Returns when the drain starts.
    pub async fn watch(&self, drain: &Drain) {
        let mut faults = STORE_NEEDED.start();
        let mut known = self.known.subscribe();
        while !drain.is_started() {
            let now = *known.borrow_and_update();
            let wait = match now {
                Known::Unknown if self.read().await.is_ok() => continue,
                Known::Unknown => faults.next(&*self.world),
                Known::Value(value) if value.is_due(self.world.now()) => match self.release().await {
                    Ok(()) => continue,
                    Err(fault) => {
                        warn!("Could not release the gate on time: {}", chain(&fault));
                        faults.next(&*self.world)
                    }
                },
                Known::Value(GateValue { state: GateState::Held { release_at: Some(at) }, .. }) => {
                    at.since(self.world.now()).min(CLOCK_CHECK_MAX)
                }
                Known::Value(_) => Duration::MAX,
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

    /// Reads the gate if another process knows a newer epoch.
    pub async fn catch_up(&self, epoch: u64) {
        if epoch > self.epoch() {
            // The fault is already logged, and the next ping tries again.
            let _unread = self.read().await;
        }
    }

    /// Reads the gate if its epoch is not the given one. Returns the epoch that is applied from now on, or zero if a
    /// receive request is still in progress after the time limit. While the gate is held, no receive request is in
    /// progress after the return.
    pub async fn refresh(&self, epoch: u64) -> u64 {
        if self.epoch() != epoch || *self.known.borrow() == Known::Unknown {
            // The fault is already logged, and the returned epoch shows it.
            let _unread = self.read().await;
        }
        if !self.is_open() {
            let mut receiving = self.receiving.subscribe();
            let ended = std::pin::pin!(receiving.wait_for(|count| *count == 0));
            match select(ended, self.world.sleep(RECEIVES_END_MAX)).await {
                Either::Left(_) => {}
                Either::Right(_) => {
                    warn!("A receive request is still in progress although the gate is held");
                    return 0;
                }
            }
        }
        self.epoch()
    }

    async fn release(&self) -> Result<(), StoreFault> {
        let value = self.gate.release_if_due().await?;
        self.apply(value);
        Ok(())
    }

    async fn read(&self) -> Result<(), StoreFault> {
        let read = match *self.known.borrow() {
            Known::Unknown if self.hold_first => self.gate.hold_if_unset().boxed(),
            Known::Unknown | Known::Value(_) => self.gate.read().boxed(),
        };
        match read.await {
            Ok(value) => {
                self.apply(value);
                Ok(())
            }
            Err(fault) => {
                match &fault {
                    // The last value stays in effect.
                    StoreFault::Unavailable { .. }
                    | StoreFault::Refused { .. }
                    | StoreFault::ForeignCursor { .. } => {
                        warn!("Could not read the gate: {}", chain(&fault));
                    }
                    StoreFault::Corrupt { .. } => {
                        error!("The gate counts as held: {}", chain(&fault));
                        self.known.send_replace(Known::Unknown);
                    }
                }
                Err(fault)
            }
        }
    }

    fn apply(&self, value: GateValue) {
        let newer = self.known.send_if_modified(|known| {
            // Reads may complete out of order: an older value never replaces a newer one.
            let newer = match *known {
                Known::Unknown => true,
                Known::Value(before) => before.epoch < value.epoch,
            };
            if newer {
                *known = Known::Value(value);
            }
            newer
        });
        // A newer release wakes the listeners, whatever values came in between.
        if newer && value.state == GateState::Released {
            self.releases.send_modify(|releases| *releases = releases.saturating_add(1));
        }
        if newer && value.epoch > 0 {
            let (epoch, state) = (value.epoch, value.state);
            match state {
                GateState::Released => info!(gate.epoch = epoch, "The gate is released (epoch {epoch})"),
                GateState::Held { .. } => info!(gate.epoch = epoch, "The gate is held (epoch {epoch})"),
            }
        }
    }
}

/// Reads the gate in case a notification was lost.
#[async_trait]
impl BackgroundTask for Gatekeeper {
    async fn run(&self) {
        // The fault is already logged, and the task runs again.
        let _unread = self.read().await;
    }
}

/// A receive request in progress, until it is dropped.
#[derive(Debug)]
pub struct ReceivePermit<'a>(&'a watch::Sender<usize>);

impl<'a> ReceivePermit<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count = count.saturating_add(1));
        Self(count)
    }
}

impl Drop for ReceivePermit<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
