//! Settles received messages of all kinds: deletes them, hides them, sends them again, or writes them to the dead letters.
//!
//! If a step fails, the message stays in the queue and is redelivered when its lease expires; handlers recognize finished work.
//! Each step returns whether the store was available. A message whose lease was lost is left to the worker that has leased it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postonce_process::meter::Meter;
use postonce_shared::backoff::NEWER_MESSAGE;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::attempts::Attempts;
use postonce_shared::cluster::registration::AttemptInProgress;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::origin::Origin;
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::queue::{Held, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::DeadLetterService;
use tracing::{error, warn};

use super::delivery::Delivery;
use super::handler::{Handled, Health};
use super::lone_attempts::{LoneAttempts, NextStep};

/// Visibility timeout while a message is split or becomes a dead letter.
const SETTLING_TIMEOUT: Duration = Duration::from_secs(20);

/// Dependencies for settling messages of any queue.
#[derive(Clone)]
pub struct SettlerParts {
    /// The store of the queues.
    pub queue: Arc<dyn WorkQueue>,
    /// Stores the messages that become dead letters.
    pub dead_letters: Arc<DeadLetterService>,
    /// Clock and random numbers.
    pub world: Arc<dyn World>,
    /// Counters of the worker.
    pub meter: Arc<Meter>,
}

impl SettlerParts {
    /// Takes the dependencies from a bank.
    pub fn of(bank: &Bank, meter: &Arc<Meter>) -> Self {
        Self {
            queue: Arc::clone(&bank.store.queue),
            dead_letters: Arc::clone(&bank.dead_letters),
            world: Arc::clone(&bank.world),
            meter: Arc::clone(meter),
        }
    }
}

/// Settles messages that were received together from one queue.
pub struct Settler<'a> {
    /// Name of the queue.
    pub name: &'a QueueName,
    /// The dependencies.
    pub parts: &'a SettlerParts,
    visibility_delays: Mutex<Vec<Duration>>,
}

/// Content of a dead letter.
pub struct DeadLetter<'a> {
    /// The queue to which a replay sends the message.
    pub queue: &'a QueueName,
    /// Body of the message.
    pub body: Vec<u8>,
    /// Position of the body in a message with several orders, from 1; `None` for the whole message.
    pub part: Option<usize>,
    /// The transactions in the message, if they are known.
    pub keys: &'a [TransactionKey],
    /// The request that the message came from, if it is known.
    pub origin: Option<&'a Origin>,
    /// The reason for operators.
    pub reason: &'a str,
}

/// Result of [`Settler::try_alone`].
pub enum Alone {
    /// The attempt is recorded and may begin.
    Begun(AttemptInProgress),
    /// The message waits, or another worker has leased it.
    Left,
    /// This many processes have ended during attempts: the work is given up.
    GivenUp(usize),
}

impl<'a> Settler<'a> {
    /// Creates the settler of a queue.
    pub fn new(name: &'a QueueName, parts: &'a SettlerParts) -> Self {
        Self { name, parts, visibility_delays: Mutex::default() }
    }

    /// Deletes a message.
    pub async fn delete<W>(&self, delivery: &Delivery<W>) -> bool {
        // Without a lease, the message belongs to another worker.
        let Some(lease) = delivery.lease() else { return true };
        match self.parts.queue.delete(self.name, &lease).await {
            Ok(Held::Ours(())) => {
                delivery.settled();
                true
            }
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed("to delete a message", &fault),
        }
    }

    /// Replaces the body of a message, and hides the message for `delay`.
    pub async fn hide<W>(&self, delivery: &Delivery<W>, body: &[u8], delay: Duration) -> bool {
        let Some(lease) = delivery.lease() else { return true };
        match self.parts.queue.extend(self.name, &lease, body, delay).await {
            Ok(Held::Ours(_)) => {
                delivery.settled();
                self.visibility_delays.lock().push(delay);
                true
            }
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed("to release a message", &fault),
        }
    }

    /// Replaces a message by an equal one without receipts, which becomes visible after `delay`.
    pub async fn send_again<W>(&self, delivery: &Delivery<W>, delay: Duration) -> bool {
        match self.parts.queue.send(self.name, &delivery.message.body, delay).await {
            Ok(()) => {
                self.visibility_delays.lock().push(delay);
                self.delete(delivery).await
            }
            Err(fault) => self.failed("to send a message again", &fault),
        }
    }

    /// Leaves a message of a newer version to a newer worker. This version cannot change the body, so it cannot record that its
    /// receipts do not count. The message is therefore replaced by a new one without receipts.
    pub async fn leave_to_newer_worker<W>(&self, delivery: &Delivery<W>, why: &str) -> bool {
        self.parts.meter.newer_versions.add(1);
        self.report_waiting(delivery, why);
        // Only with a lease: otherwise another worker may have replaced the message, and copies would accumulate.
        let again = self.send_again(delivery, NEWER_MESSAGE.delay(1, &*self.parts.world));
        self.if_leased(delivery, again).await
    }

    /// Logs an error that tells operators why a message waits.
    pub fn report_waiting<W>(&self, delivery: &Delivery<W>, why: &str) {
        let id = &delivery.message.lease.message_id;
        error!(queue = %self.name, message_id = id, "Message {id} waits: {why}");
    }

    /// Renews the lease of a message, and runs a step if the lease is still valid. Without a lease, a message must not be split
    /// or become a dead letter, because another worker may be handling it.
    pub async fn if_leased<W>(&self, delivery: &Delivery<W>, step: impl Future<Output = bool>) -> bool {
        match delivery.renew(&*self.parts.queue, self.name, SETTLING_TIMEOUT).await {
            Ok(Held::Ours(())) => step.await,
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed("to renew a lease", &fault),
        }
    }

    /// Writes a message to the dead letters and then deletes it, if it is still leased.
    pub async fn set_aside<W>(&self, delivery: &Delivery<W>, letter: DeadLetter<'_>) -> bool {
        let step = async { self.write_letter(delivery, letter).await && self.delete(delivery).await };
        self.if_leased(delivery, step).await
    }

    /// Writes a dead letter. The message must be leased, and the caller deletes it.
    pub async fn write_letter<W>(&self, delivery: &Delivery<W>, letter: DeadLetter<'_>) -> bool {
        let DeadLetter { queue, body, part, keys, origin, reason } = letter;
        let mut message = Message { body, ..delivery.message.clone() };
        if let Some(part) = part {
            // The same for every delivery, so that each part becomes one dead letter.
            message.lease.message_id = format!("{}-{part}", message.lease.message_id);
        }
        let id = &message.lease.message_id;
        match self.parts.dead_letters.set_aside(queue, &message, keys, reason).await {
            Ok(()) => {
                self.parts.meter.dead_letters.add(1);
                error!(
                    queue = %self.name, message_id = id,
                    request_id = origin.and_then(Origin::request_id),
                    trace_id = origin.and_then(Origin::trace_id),
                    transaction = keys.first().map(ToString::to_string),
                    "Message {id} became a dead letter, which contains the reason"
                );
                true
            }
            Err(fault) => self.failed("to write a dead letter", &fault),
        }
    }

    /// Starts an attempt at a message that was received too often, unless too many processes have ended during earlier ones.
    /// Waits for `before`, and then records the attempt. `recorded` returns the body with the given attempts.
    ///
    /// # Errors
    /// [`StoreFault`] when no attempt may begin, or the attempt could not be recorded.
    pub async fn try_alone<W>(
        &self,
        delivery: &Delivery<W>,
        attempts: (&LoneAttempts, &Attempts),
        before: impl Future<Output = ()>,
        recorded: impl FnOnce(Attempts) -> Vec<u8>,
        visibility: Duration,
    ) -> Result<Alone, StoreFault> {
        let (lone_attempts, earlier) = attempts;
        match lone_attempts.next_step(earlier).await? {
            NextStep::Begin(attempts, attempt) => {
                before.await;
                let body = recorded(attempts);
                match delivery.rewrite(&*self.parts.queue, self.name, body, visibility).await? {
                    Held::Ours(()) => Ok(Alone::Begun(attempt)),
                    Held::Lost => {
                        self.lost();
                        Ok(Alone::Left)
                    }
                }
            }
            NextStep::Wait(delay) => {
                self.hide(delivery, &delivery.message.body, delay).await;
                Ok(Alone::Left)
            }
            NextStep::GiveUp(ended) => Ok(Alone::GivenUp(ended)),
        }
    }

    /// Completes settling. Messages that were not settled are redelivered when their leases expire, after `visibility`.
    pub fn end(self, is_healthy: bool, visibility: Duration) -> Handled {
        let mut visibility_delays = self.visibility_delays.into_inner();
        if is_healthy {
            return Handled { health: Health::Healthy, visibility_delays };
        }
        visibility_delays.push(visibility);
        Handled { health: Health::Unavailable, visibility_delays }
    }

    /// Logs a fault, and returns false: the store was unavailable.
    pub fn failed(&self, doing: &str, fault: &StoreFault) -> bool {
        warn!(queue = %self.name, "Failed {doing}: {}", chain(fault));
        false
    }

    fn lost(&self) -> bool {
        self.parts.meter.leases_lost.add(1);
        true
    }
}
