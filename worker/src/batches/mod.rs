//! Handles the messages of batches: initiator, processing worker and controller, each with its own queues.
//!
//! The steps are in [`postonce_shared::batches`]; here each is a [`Role`], and [`BatchHandler`] settles the messages of
//! all roles in the same way.

mod roles;
pub mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use postonce_shared::backoff::{MESSAGE, NEWER_MESSAGE};
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages::Malformed;
use postonce_shared::batches::{BatchFault, Batches};
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::ports::fault::{Cause, StoreFault, chain};
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Held, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::DeadLetterService;
use tracing::{error, warn};

pub use self::roles::{Controller, Initiator, Processor};
use crate::config::WorkerConfig;
use crate::listening::delivery::{Delivery, NoWork};
use crate::listening::handler::{Handled, Handler, Health};
use crate::listening::renewal::Renewal;
use crate::meter::Meter;

/// Receipts of a message after which what hinders the batch is recorded in it.
const RECEIPTS_BEFORE_HINDRANCE: u32 = 3;
/// Receipts after which a message that met transient faults is sent again as a new one.
const RECEIPTS_BEFORE_RENEWAL: u32 = 4;

/// Receipts after which a message of a newer version becomes a dead letter: about four minutes. In a rolling upgrade, a
/// newer worker receives it before; otherwise anybody may have sent it.
const NEWER_RECEIPTS_MAX: u32 = 10;

/// What is done with the messages of the queues of one kind.
#[async_trait]
pub trait Role: Send + Sync + 'static {
    /// The content of a message.
    type Work: Send + Sync;

    /// The kind, as in [`Handler::NAME`].
    const NAME: &'static str;

    /// Largest number of messages of one receive.
    const MESSAGES_AT_ONCE: usize;

    /// Decodes a message.
    fn decode(&self, body: &[u8]) -> Result<Self::Work, Malformed>;

    /// Returns the batch that a message is about.
    fn batch(work: &Self::Work) -> &BatchKey;

    /// Does the work of messages, and returns one result for each.
    async fn work(&self, work: &[&Self::Work]) -> Vec<Result<(), Arc<BatchFault>>>;
}

/// A message with the result of its work; `None` if it was not tried.
pub struct Worked<W> {
    delivery: Delivery<W>,
    result: Option<Result<(), Arc<BatchFault>>>,
}

/// Handles the messages of a role.
pub struct BatchHandler<R> {
    role: R,
    batches: Batches,
    queue: Arc<dyn WorkQueue>,
    ledger: Arc<dyn Ledger>,
    dead_letters: Arc<DeadLetterService>,
    world: Arc<dyn World>,
    meter: Arc<Meter>,
    visibility_timeout: Duration,
    receipts_max: u32,
    /// Whether the last use of the store failed.
    is_unavailable: AtomicBool,
}

impl<R: Role> BatchHandler<R> {
    /// Creates the handler of a role.
    pub fn new(role: R, bank: &Bank, meter: Arc<Meter>, config: &WorkerConfig) -> Self {
        Self {
            role,
            batches: bank.batches.clone(),
            queue: Arc::clone(&bank.store.queue),
            ledger: Arc::clone(&bank.store.ledger),
            dead_letters: Arc::clone(&bank.dead_letters),
            world: Arc::clone(&bank.world),
            meter,
            visibility_timeout: config.visibility_timeout,
            // Above the receipts of a message that only met transient faults.
            receipts_max: config.dequeue_count_max.max(RECEIPTS_BEFORE_RENEWAL.saturating_add(1)),
            is_unavailable: AtomicBool::new(false),
        }
    }

    /// Returns whether the attempts of a message are used up, although each may have ended without a result.
    fn is_exhausted(&self, message: &Message) -> bool {
        message.dequeue_count > self.receipts_max
    }

    async fn settle_one(&self, queue: &QueueName, worked: &Worked<R::Work>) -> Settled {
        let Worked { delivery, result } = worked;
        match (&delivery.content, result) {
            (Ok(_), Some(Ok(()))) => self.delete(queue, delivery).await,
            (Ok(work), Some(Err(fault))) if fault.is_transient() && !self.is_exhausted(&delivery.message) => {
                self.retry_later(queue, delivery, R::batch(work), fault).await
            }
            (Ok(work), result) => {
                let reason = match result {
                    Some(Err(fault)) => chain(&**fault),
                    Some(Ok(())) | None => {
                        format!(
                            "none of {} attempts was completed: it may crash the worker",
                            self.receipts_max
                        )
                    }
                };
                self.hinder(R::batch(work), &reason).await;
                self.set_aside(queue, delivery, &reason).await
            }
            (Err(NoWork::Refused(reason)), _) => self.set_aside(queue, delivery, reason).await,
            (Err(other), _) if delivery.message.dequeue_count > NEWER_RECEIPTS_MAX => {
                self.set_aside(queue, delivery, &chain(other)).await
            }
            // It waits for a newer worker.
            (Err(other), _) => {
                error!(queue = %queue, "A message waits: {}", chain(other));
                let delay = NEWER_MESSAGE.delay(delivery.message.dequeue_count, &*self.world);
                self.hide(queue, delivery, delay).await
            }
        }
    }

    async fn retry_later(
        &self,
        queue: &QueueName,
        delivery: &Delivery<R::Work>,
        key: &BatchKey,
        fault: &BatchFault,
    ) -> Settled {
        self.meter.transient_faults.add(1);
        warn!(queue = %queue, batch = %key, "Batch {key} is tried again later: {}", chain(fault));
        if delivery.message.dequeue_count >= RECEIPTS_BEFORE_HINDRANCE {
            self.hinder(key, &chain(fault)).await;
        }
        let delay = MESSAGE.delay(delivery.message.dequeue_count, &*self.world);
        if delivery.message.dequeue_count < RECEIPTS_BEFORE_RENEWAL {
            return self.hide(queue, delivery, delay).await;
        }
        // A new message has no receipts: an outage never turns work into a dead letter, however long it lasts.
        match self.queue.send(queue, &delivery.message.body, delay).await {
            Ok(()) => {
                let _deleted = self.delete(queue, delivery).await;
                Settled::Hidden(delay)
            }
            Err(fault) => self.failed(queue, "to send a message again", &fault),
        }
    }

    async fn hinder(&self, key: &BatchKey, reason: &str) {
        if let Err(fault) = self.batches.hinder(key, reason.to_owned()).await {
            warn!(batch = %key, "Could not record what hinders batch {key}: {}", chain(&fault));
        }
    }

    async fn hide(&self, queue: &QueueName, delivery: &Delivery<R::Work>, delay: Duration) -> Settled {
        let Some(lease) = delivery.lease() else { return Settled::Done };
        match self.queue.extend(queue, &lease, &delivery.message.body, delay).await {
            Ok(Held::Ours(_)) => Settled::Hidden(delay),
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed(queue, "to release a message", &fault),
        }
    }

    async fn delete(&self, queue: &QueueName, delivery: &Delivery<R::Work>) -> Settled {
        let Some(lease) = delivery.lease() else { return Settled::Done };
        match self.queue.delete(queue, &lease).await {
            Ok(Held::Ours(())) => Settled::Done,
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed(queue, "to delete a message", &fault),
        }
    }

    async fn set_aside(&self, queue: &QueueName, delivery: &Delivery<R::Work>, reason: &str) -> Settled {
        let message = &delivery.message;
        let id = &message.lease.message_id;
        match self.dead_letters.set_aside(queue, message, &[], reason).await {
            Ok(()) => {
                self.meter.dead_letters.add(1);
                error!(queue = %queue, message_id = id, "Message {id} became a dead letter: {reason}");
                self.delete(queue, delivery).await
            }
            Err(fault) => self.failed(queue, "to write a dead letter", &fault),
        }
    }

    fn lost(&self) -> Settled {
        self.meter.leases_lost.add(1);
        Settled::Done
    }

    fn failed(&self, queue: &QueueName, what: &str, fault: &StoreFault) -> Settled {
        warn!(queue = %queue, "Failed {what}: {}", chain(fault));
        Settled::Failed
    }
}

/// How a message was settled.
enum Settled {
    Done,
    /// It becomes visible again after the delay.
    Hidden(Duration),
    /// It becomes visible again when its lease expires.
    Failed,
}

#[async_trait]
impl<R: Role> Handler for BatchHandler<R> {
    type Work = R::Work;
    type Done = Vec<Worked<R::Work>>;

    const NAME: &'static str = R::NAME;
    const MESSAGES_AT_ONCE: usize = R::MESSAGES_AT_ONCE;

    async fn read(&self, message: &Message) -> Result<R::Work, NoWork> {
        self.role.decode(&message.body).map_err(|malformed| match malformed {
            Malformed::Newer(_) => NoWork::LedgerUnavailable(Cause::from(malformed)),
            Malformed::Form(_) | Malformed::Value | Malformed::Unsealed => NoWork::Refused(chain(&malformed)),
        })
    }

    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<R::Work>>) -> (Self::Done, Health) {
        let is_tried =
            |delivery: &Delivery<R::Work>| delivery.content.is_ok() && !self.is_exhausted(&delivery.message);
        let tried: Vec<&R::Work> =
            deliveries.iter().filter(|it| is_tried(it)).filter_map(|it| it.content.as_ref().ok()).collect();
        let held: Vec<&Delivery<R::Work>> = deliveries.iter().collect();
        let renewal = Renewal {
            queue: &*self.queue,
            name: queue,
            world: &*self.world,
            meter: &self.meter,
            visibility: self.visibility_timeout,
        };
        let results = renewal.during(&held, self.role.work(&tried)).await;
        let is_done = results.iter().all(Result::is_ok) && tried.len() == deliveries.len();
        self.is_unavailable.fetch_or(!is_done, Ordering::Relaxed);
        let mut results = results.into_iter();
        let worked = deliveries.into_iter().map(|delivery| {
            let result = if is_tried(&delivery) { results.next() } else { None };
            Worked { delivery, result }
        });
        (worked.collect(), if is_done { Health::Healthy } else { Health::Unavailable })
    }

    async fn settle(&self, queue: &QueueName, done: Self::Done) -> Handled {
        let delays = Mutex::new(Vec::new());
        let settlements = done.iter().map(|worked| async {
            match self.settle_one(queue, worked).await {
                Settled::Done => return true,
                Settled::Hidden(delay) => delays.lock().push(delay),
                Settled::Failed => delays.lock().push(self.visibility_timeout),
            }
            false
        });
        let healthy = join_all(settlements).await.into_iter().all(|healthy| healthy);
        let health = if healthy { Health::Healthy } else { Health::Unavailable };
        Handled { health, visibility_delays: delays.into_inner() }
    }

    async fn is_ready(&self) -> bool {
        if !self.is_unavailable.load(Ordering::Relaxed) {
            return true;
        }
        let is_back = self.ledger.probe().await.is_ok();
        self.is_unavailable.store(!is_back, Ordering::Relaxed);
        is_back
    }
}
