//! Applies the gate in one process. While the gate is held, the process receives no messages and posts nothing: neither
//! requests nor messages that it received before.
//!
//! The process reads the gate at its start, after it has joined the registry, when a notification contains another epoch or a
//! ping a newer one, and periodically, in case these were lost. The gate counts as held until the first read since the process
//! is in the registry. During a later outage of the store, the last value stays in effect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{Either, pending, select};
use postonce_shared::backoff::STORE_NEEDED;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::gate::change::GateRecord;
use postonce_shared::cluster::gate::permits::{GatePermit, GatePermits, GateRead, WorkInProgress};
use postonce_shared::cluster::gate::{ClockError, Gate, GateState, GateValue};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::world::World;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::background_task::BackgroundTask;
use crate::drain::Drain;

/// Maximum sleep before a scheduled release is compared with the clock again, because the clock may be adjusted.
const CLOCK_CHECK_MAX: Duration = Duration::from_secs(10);
/// Delay before a process whose clock differs from that of the store tries a scheduled release again. Until then its clock may
/// be corrected, or another process may have released the gate.
const UNTRUSTED_CLOCK_PAUSE: Duration = Duration::from_secs(60);
/// Time for which the acknowledgment of a notification waits for receive requests and commits in progress.
const PERMITS_END_MAX: Duration = Duration::from_secs(2);

/// Decides whether a process may receive and post.
pub struct ProcessGate {
    gate: Gate,
    world: Arc<dyn World>,
    /// Whether to hold a gate that was never set, at the first read.
    hold_first: bool,
    permits: Arc<GatePermits>,
    releases: watch::Sender<u64>,
}

impl ProcessGate {
    /// Creates the gate of a process of the bank; see [`Self::new`].
    pub fn of(bank: &Bank, hold_first: bool) -> Arc<Self> {
        let gate = Gate::new(&bank.store, &bank.world);
        Arc::new(Self::new(gate, Arc::clone(&bank.gate_permits), Arc::clone(&bank.world), hold_first))
    }

    /// Creates the gate of a process. The gate counts as held until it is read. With `hold_first`, a gate that was never set is held
    /// before any message is received.
    pub fn new(gate: Gate, permits: Arc<GatePermits>, world: Arc<dyn World>, hold_first: bool) -> Self {
        Self { gate, world, hold_first, permits, releases: watch::Sender::new(0) }
    }

    /// Returns whether listeners may receive.
    pub fn is_open(&self) -> bool {
        self.permits.is_open()
    }

    /// Returns the value of the gate that this process applies; `None` before the first read.
    pub fn known(&self) -> Option<GateValue> {
        self.permits.known()
    }

    /// Returns the epoch that this process applies; zero before the first epoch and before the first read.
    pub fn epoch(&self) -> u64 {
        self.permits.epoch()
    }

    /// Returns a permit to receive; `None` if none is available ([`GatePermits::enter`]). Keep it during the receive request.
    pub fn enter(&self) -> Option<GatePermit> {
        self.permits.enter()
    }

    /// Counts received messages as in progress until the returned value is dropped. Call it under a permit.
    pub fn begin_work(&self) -> WorkInProgress {
        self.permits.begin_work()
    }

    /// Waits until the number of releases differs from `seen`, and updates `seen`. A release counts even if a hold followed.
    pub async fn released(&self, seen: &mut u64) {
        let mut releases = self.releases.subscribe();
        // Never an error: the sender lives as long as `self`.
        if let Ok(now) = releases.wait_for(|releases| *releases != *seen).await.map(|now| *now) {
            *seen = now;
        }
    }

    /// Retries until the gate is read, then performs scheduled releases. Returns when the drain starts.
    pub async fn watch(&self, drain: &Drain) {
        let mut faults = STORE_NEEDED.start();
        let mut known = self.permits.subscribe();
        while !drain.is_started() {
            let now = *known.borrow_and_update();
            let wait = match now {
                None if self.read().await.is_ok() => continue,
                None => faults.next(&*self.world),
                Some(value) if value.is_due(self.world.now()) => match self.release().await {
                    Ok(Ok(())) => continue,
                    Ok(Err(untrusted)) => {
                        warn!("This process does not perform the scheduled release of the gate: {untrusted}");
                        UNTRUSTED_CLOCK_PAUSE
                    }
                    Err(fault) => {
                        warn!("Could not release the gate on time: {}", chain(&fault));
                        faults.next(&*self.world)
                    }
                },
                Some(GateValue { state: GateState::Held { release_at: Some(at) }, .. }) => {
                    at.since(self.world.now()).min(CLOCK_CHECK_MAX)
                }
                Some(_) => Duration::MAX,
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

    /// Reads the gate if `epoch`, which another process applies, is newer than the known one.
    pub async fn catch_up(&self, epoch: u64) {
        if epoch > self.epoch() {
            // The fault is already logged, and the next ping tries again.
            let _unread = self.read().await;
        }
    }

    /// Reads the gate if its known epoch is not `epoch`. Returns the epoch that is applied from now on, or zero if a receive
    /// request or a commit is still in progress after the time limit. If the gate is held and the result is not zero, no
    /// receive or commit is in progress, and none begins: for requests, received messages and batches.
    pub async fn refresh(&self, epoch: u64) -> u64 {
        if self.permits.known().is_none_or(|known| known.epoch != epoch) {
            // The fault is already logged, and the returned epoch shows it.
            let _unread = self.read().await;
        }
        if !self.is_open() {
            let unused = std::pin::pin!(self.permits.until_unused());
            match select(unused, self.world.sleep(PERMITS_END_MAX)).await {
                Either::Left(_) => {}
                Either::Right(_) => {
                    warn!("A receive request or a commit is still in progress although the gate is held");
                    return 0;
                }
            }
        }
        self.epoch()
    }

    /// Performs the scheduled release if it is due and the clock of this process is trusted.
    async fn release(&self) -> Result<Result<(), ClockError>, StoreFault> {
        let begun = self.permits.begin_read();
        let record = self.gate.release_if_due().await?;
        self.apply(&begun, &record);
        let is_held = record.value.is_due(self.world.now());
        Ok(self.gate.untrusted_clock().filter(|_| is_held).map_or(Ok(()), Err))
    }

    async fn read(&self) -> Result<(), StoreFault> {
        let begun = self.permits.begin_read();
        let read = if self.hold_first && self.permits.known().is_none() {
            self.gate.hold_if_unset().boxed()
        } else {
            self.gate.read_record().boxed()
        };
        match read.await {
            Ok(record) => {
                self.apply(&begun, &record);
                Ok(())
            }
            Err(fault) => {
                match &fault {
                    // The last known value stays in effect.
                    StoreFault::Unavailable { .. }
                    | StoreFault::Refused { .. }
                    | StoreFault::ForeignCursor { .. } => {
                        warn!("Could not read the gate: {}", chain(&fault));
                    }
                    StoreFault::Corrupt { .. } => {
                        error!("The gate counts as held: {}", chain(&fault));
                        self.permits.forget();
                    }
                }
                Err(fault)
            }
        }
    }

    fn apply(&self, read: &GateRead, record: &GateRecord) {
        let (newer, value) = (self.permits.apply(read, record), record.value);
        // A newer release wakes the listeners even if the gate was held in between.
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
impl BackgroundTask for ProcessGate {
    async fn run(&self) {
        // The fault is already logged, and the task runs again.
        let _unread = self.read().await;
    }
}
