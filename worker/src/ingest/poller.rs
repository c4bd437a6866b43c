//! Polls one ingest queue. After a receive with messages the next one follows at once. The delays after empty ones double up to a
//! maximum, which is multiplied by the number of workers: together, they poll an idle queue as often as one would.
//!
//! Producers send no notifications, except by `POST /v1/ingest/{name}/ring`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, pending, select};
use postonce_process::drain::Drain;
use postonce_shared::backoff::{IDLE_POLL, RECEIVE, RetryPolicy};
use postonce_shared::bank::Bank;
use postonce_shared::ports::doorbell::Doorbell;
use postonce_shared::ports::queue::QueueName;
use postonce_shared::ports::world::World;
use tokio::sync::Notify;
use tracing::error;

use crate::ingest::intake::{Intake, Received};
use crate::listening::handler::{Handled, Health};
use crate::listening::poll_schedule::PollSchedule;

/// Polls one ingest queue.
pub(super) struct Poller {
    intake: Intake,
    doorbell: Arc<dyn Doorbell>,
    world: Arc<dyn World>,
    poll_max: Duration,
    rung: Notify,
}

impl Poller {
    /// Creates the poller of a queue. `poll_max` is the maximum interval between two polls by all workers together.
    pub(super) fn new(bank: &Bank, intake: Intake, poll_max: Duration) -> Self {
        let (doorbell, world) = (Arc::clone(&bank.doorbell), Arc::clone(&bank.world));
        Self { intake, doorbell, world, poll_max, rung: Notify::new() }
    }

    pub(super) const fn queue(&self) -> &QueueName {
        self.intake.queue()
    }

    /// Polls at once, or after the current poll.
    pub(super) fn ring(&self) {
        self.rung.notify_one();
    }

    /// Polls until the drain starts.
    pub(super) async fn run(&self, drain: &Drain) {
        let mut faults = RECEIVE.start();
        let mut idle = RetryPolicy { longest: self.poll_max, ..IDLE_POLL }.start();
        let mut released = PollSchedule::default();
        while !drain.is_started() {
            let polled = AssertUnwindSafe(self.intake.receive(drain)).catch_unwind().await;
            let now = self.world.uptime();
            released.take_due(now);
            let (delay, is_reachable) = match polled {
                Ok(Received::Nothing) => {
                    faults.reset();
                    idle.set_longest(self.longest());
                    (idle.next(&*self.world), true)
                }
                Ok(Received::Messages { handled: Handled { health, visibility_delays }, is_postponed }) => {
                    idle.reset();
                    for delay in visibility_delays {
                        released.add(self.queue(), now.saturating_add(delay));
                    }
                    if health == Health::Unavailable {
                        (faults.next(&*self.world), false)
                    } else {
                        faults.reset();
                        // Until the first postponed message is visible.
                        if is_postponed { (self.longest(), true) } else { continue }
                    }
                }
                Ok(Received::Unavailable) => (faults.next(&*self.world), false),
                Err(_) => {
                    error!(queue = %self.queue(), "The poll of {} panicked", self.queue());
                    (faults.next(&*self.world), false)
                }
            };
            let visible_in = released.next().map_or(delay, |at| at.saturating_sub(now));
            let delay = if is_reachable { delay.min(visible_in) } else { delay };
            self.wait(delay, is_reachable, drain).await;
        }
    }

    /// Waits for the delay, a ring if the queue is reachable, or the drain.
    async fn wait(&self, delay: Duration, is_reachable: bool, drain: &Drain) {
        let rung = async { if is_reachable { self.rung.notified().await } else { pending().await } };
        let next = async {
            match select(std::pin::pin!(rung), self.world.sleep(delay)).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        };
        select(std::pin::pin!(next), std::pin::pin!(drain.started())).await;
    }

    fn longest(&self) -> Duration {
        self.poll_max.saturating_mul(self.doorbell.other_listeners().saturating_add(1))
    }
}
