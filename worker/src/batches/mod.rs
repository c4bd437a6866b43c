//! Handles the messages of batches for three roles: initiator, processing worker and controller. Each role has its own queues.
//!
//! The work of each role is implemented in [`postonce_shared::batches`]. Here each role is a [`Role`], and [`BatchHandler`]
//! settles the messages of all roles in the same way.

mod roles;
pub mod upkeep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_process::meter::Meter;
use postonce_shared::backoff::MESSAGE;
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages::{self, BatchMessageError};
use postonce_shared::batches::{BatchFault, Batches};
use postonce_shared::cluster::attempts::Attempts;
use postonce_shared::domain::batch::{BatchKey, HindranceReason};
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::ports::fault::{Cause, StoreFault, chain};
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Message, QueueName};
use tracing::warn;

pub use self::roles::{Controller, Initiator, Processor};
use crate::config::WorkerConfig;
use crate::listening::delivery::{Delivery, DeliveryError};
use crate::listening::handler::{Handled, Handler, Health};
use crate::listening::lone_attempts::LoneAttempts;
use crate::listening::renewal::Renewal;
use crate::listening::settler::{Alone, DeadLetter, Settler, SettlerParts};

/// Number of receipts of a message from which a transient fault is recorded in the batch as a hindrance.
const RECEIPTS_BEFORE_HINDRANCE: u32 = 3;
/// Number of receipts from which a message with a transient fault is sent again as a new message.
const RECEIPTS_BEFORE_RENEWAL: u32 = 4;

/// The work that the messages of one kind of queue need.
#[async_trait]
pub trait Role: Send + Sync + 'static {
    /// The decoded content of a message.
    type Work: Send + Sync;

    /// The kind of work, as in [`Handler::NAME`].
    const NAME: &'static str;

    /// Maximum number of messages of one receive.
    const MESSAGES_AT_ONCE: usize;

    /// Decodes the body of a message.
    fn decode(&self, body: &[u8]) -> Result<Self::Work, BatchMessageError>;

    /// Returns the batch to which a message belongs.
    fn batch(work: &Self::Work) -> &BatchKey;

    /// Returns bodies of messages that each contain one part of the work; none if the work cannot be divided.
    fn parts(_work: &Self::Work) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Does the work of several messages. Returns one result for each.
    async fn work(&self, work: &[&Self::Work]) -> Vec<Result<(), Arc<BatchFault>>>;
}

/// A message and the result of its work; `None` if the work was not tried.
pub struct Worked<W> {
    delivery: Delivery<W>,
    result: Option<Result<(), Arc<BatchFault>>>,
}

/// Handles the messages of a role.
pub struct BatchHandler<R> {
    role: R,
    batches: Batches,
    settling: SettlerParts,
    ledger: Arc<dyn Ledger>,
    seal: Seal,
    lone_attempts: LoneAttempts,
    visibility_timeout: Duration,
    receipts_max: u32,
    /// Whether the last use of the store failed.
    is_unavailable: AtomicBool,
}

impl<R: Role> BatchHandler<R> {
    /// Creates the handler of a role.
    pub fn new(role: R, bank: &Bank, meter: &Arc<Meter>, config: &WorkerConfig) -> Self {
        Self {
            role,
            batches: bank.batches.clone(),
            settling: SettlerParts::of(bank, meter),
            ledger: Arc::clone(&bank.store.ledger),
            seal: bank.seal.clone(),
            lone_attempts: LoneAttempts::new(bank, config),
            visibility_timeout: config.visibility_timeout,
            // More than the receipts of a message with transient faults only.
            receipts_max: config.dequeue_count_max.max(RECEIPTS_BEFORE_RENEWAL.saturating_add(1)),
            is_unavailable: AtomicBool::new(false),
        }
    }

    /// Returns whether a message was received so often that its work is tried alone.
    fn is_tried_alone(&self, delivery: &Delivery<R::Work>) -> bool {
        delivery.content.is_ok() && delivery.message.dequeue_count > self.receipts_max
    }

    fn renewal<'a>(&'a self, queue: &'a QueueName) -> Renewal<'a> {
        let SettlerParts { queue: port, world, meter, .. } = &self.settling;
        Renewal { queue: &**port, name: queue, world: &**world, meter, visibility: self.visibility_timeout }
    }

    /// Handles a message that was received too often. If its work has several parts, they are sent as separate messages.
    /// Otherwise the work is tried alone, unless too many processes have ended during earlier attempts. Leases are renewed
    /// meanwhile. Returns false if the caller must wait before it receives more.
    async fn handle_alone(
        &self,
        settler: &Settler<'_>,
        delivery: &Delivery<R::Work>,
        work: &R::Work,
        held: &[&Delivery<R::Work>],
    ) -> Result<bool, StoreFault> {
        let parts = R::parts(work);
        if parts.len() > 1 {
            for part in parts {
                self.settling.queue.send(settler.name, &part, Duration::ZERO).await?;
            }
            return Ok(settler.delete(delivery).await);
        }
        let body = &delivery.message.body;
        let attempts = messages::attempts_in(body, &self.seal);
        let recorded = |attempts| messages::with_attempts(body, &attempts, &self.seal);
        let attempts = (&self.lone_attempts, &attempts);
        // With a hindrance, the upkeep sends no copies of the message, which would have attempts of their own.
        let hindered = async {
            let (key, receipts) = (R::batch(work), delivery.message.dequeue_count);
            warn!(queue = %settler.name, batch = %key, "A message of batch {key} was received {receipts} times: it is tried alone");
            self.hinder(key, HindranceReason::TriedAlone).await;
        };
        match settler.try_alone(delivery, attempts, hindered, recorded, self.visibility_timeout).await? {
            Alone::Begun(attempt) => {
                let results = self.renewal(settler.name).during(held, self.role.work(&[work])).await;
                let is_healthy = self.settle_one(settler, delivery, results.first()).await;
                if delivery.is_settled() {
                    attempt.forget();
                }
                Ok(is_healthy)
            }
            Alone::Left => Ok(true),
            Alone::GivenUp(ended) => {
                let (id, queue) = (&delivery.message.lease.message_id, settler.name);
                let reason = format!(
                    "{ended} processes ended while they handled message {id} of {queue} alone: it may crash the \
                     worker; nothing of the batch is tried until this dead letter is replayed"
                );
                Ok(self.stop(settler, delivery, work, &reason).await)
            }
        }
    }

    /// Settles a message. Returns false if the caller must wait before it receives more.
    async fn settle_one(
        &self,
        settler: &Settler<'_>,
        delivery: &Delivery<R::Work>,
        result: Option<&Result<(), Arc<BatchFault>>>,
    ) -> bool {
        match (&delivery.content, result) {
            (Ok(_), Some(Ok(()))) => settler.delete(delivery).await,
            (Ok(work), Some(Err(fault))) if fault.is_transient() => {
                self.retry_later(settler, delivery, R::batch(work), fault).await;
                false
            }
            (Ok(work), Some(Err(fault))) => {
                self.hinder(R::batch(work), fault.hindrance()).await;
                self.set_aside(settler, delivery, &chain(&**fault)).await
            }
            (Ok(_), None) => false,
            (Err(DeliveryError::Newer(newer)), _) => {
                settler.leave_to_newer_worker(delivery, &chain(&**newer)).await
            }
            (Err(no_work), _) => self.set_aside(settler, delivery, &chain(no_work)).await,
        }
    }

    /// Gives up work that ends its processes. From now on, copies of the message and other messages for the same work are
    /// ignored. Therefore the dead letter is a message that continues the whole batch.
    async fn stop(
        &self,
        settler: &Settler<'_>,
        delivery: &Delivery<R::Work>,
        work: &R::Work,
        reason: &str,
    ) -> bool {
        match self.batches.stop(R::batch(work)).await {
            Ok(None) => settler.delete(delivery).await,
            Ok(Some(ends_stop)) => {
                let (queue, body) = (&messages::split_queue(), ends_stop.encode());
                let letter = DeadLetter { queue, body, part: None, keys: &[], origin: None, reason };
                settler.set_aside(delivery, letter).await
            }
            Err(fault) => {
                warn!(queue = %settler.name, batch = %R::batch(work), "Could not stop a batch: {}", chain(&fault));
                false
            }
        }
    }

    async fn retry_later(
        &self,
        settler: &Settler<'_>,
        delivery: &Delivery<R::Work>,
        key: &BatchKey,
        fault: &BatchFault,
    ) {
        self.settling.meter.transient_faults.add(1);
        warn!(queue = %settler.name, batch = %key, "Batch {key} is tried again later: {}", chain(fault));
        if delivery.message.dequeue_count >= RECEIPTS_BEFORE_HINDRANCE {
            self.hinder(key, fault.hindrance()).await;
        }
        let delay = MESSAGE.delay(delivery.message.dequeue_count, &*self.settling.world);
        if delivery.message.dequeue_count < RECEIPTS_BEFORE_RENEWAL {
            settler.hide(delivery, &delivery.message.body, delay).await;
        } else {
            // A new message has no receipts, so an outage of any length never turns work into a dead letter.
            settler.send_again(delivery, delay).await;
        }
    }

    async fn set_aside(&self, settler: &Settler<'_>, delivery: &Delivery<R::Work>, reason: &str) -> bool {
        // Clear the attempts, so that they do not count when an operator replays the message.
        let body = messages::with_attempts(&delivery.message.body, &Attempts::NONE, &self.seal);
        let letter = DeadLetter { queue: settler.name, body, part: None, keys: &[], origin: None, reason };
        settler.set_aside(delivery, letter).await
    }

    async fn hinder(&self, key: &BatchKey, reason: HindranceReason) {
        if let Err(fault) = self.batches.hinder(key, reason).await {
            warn!(batch = %key, "Could not record what hinders batch {key}: {}", chain(&fault));
        }
    }
}

#[async_trait]
impl<R: Role> Handler for BatchHandler<R> {
    type Work = R::Work;
    type Done = Vec<Worked<R::Work>>;

    const NAME: &'static str = R::NAME;
    const MESSAGES_AT_ONCE: usize = R::MESSAGES_AT_ONCE;

    async fn read(&self, message: &Message) -> Result<R::Work, DeliveryError> {
        self.role.decode(&message.body).map_err(|malformed| match malformed {
            BatchMessageError::Newer(_) => DeliveryError::Newer(Cause::from(malformed)),
            BatchMessageError::Form(_) | BatchMessageError::Value | BatchMessageError::Unsealed => {
                DeliveryError::Refused(chain(&malformed))
            }
        })
    }

    async fn handle(&self, queue: &QueueName, deliveries: Vec<Delivery<R::Work>>) -> (Self::Done, Health) {
        let held: Vec<&Delivery<R::Work>> = deliveries.iter().collect();
        let together: Vec<&R::Work> = deliveries
            .iter()
            .filter(|delivery| !self.is_tried_alone(delivery))
            .filter_map(|delivery| delivery.content.as_ref().ok())
            .collect();
        let results = self.renewal(queue).during(&held, self.role.work(&together)).await;
        let is_unavailable = results.iter().any(Result::is_err);
        self.is_unavailable.fetch_or(is_unavailable, Ordering::Relaxed);
        let mut results = results.into_iter();
        let worked = deliveries.into_iter().map(|delivery| {
            let is_tried = delivery.content.is_ok() && !self.is_tried_alone(&delivery);
            let result = if is_tried { results.next() } else { None };
            Worked { delivery, result }
        });
        let worked: Vec<_> = worked.collect();
        let is_done = worked.iter().all(|worked| matches!(worked.result, Some(Ok(()))));
        (worked, if is_done { Health::Healthy } else { Health::Unavailable })
    }

    async fn settle(&self, queue: &QueueName, done: Self::Done) -> Handled {
        let (alone, together): (Vec<_>, Vec<_>) =
            done.iter().partition(|worked| self.is_tried_alone(&worked.delivery));
        let settler = Settler::new(queue, &self.settling);
        let settlements =
            together.iter().map(|it| self.settle_one(&settler, &it.delivery, it.result.as_ref()));
        let mut is_healthy = join_all(settlements).await.into_iter().all(|is_healthy| is_healthy);
        // One at a time, each settled before the next begins, so that a message that kills the worker does not interrupt
        // attempts of other messages.
        let alone: Vec<_> = alone.iter().map(|worked| &worked.delivery).collect();
        for (index, delivery) in alone.iter().enumerate() {
            let Ok(work) = &delivery.content else { continue };
            let held = alone.get(index..).unwrap_or_default();
            is_healthy &= self.handle_alone(&settler, delivery, work, held).await.unwrap_or_else(|fault| {
                self.is_unavailable.store(true, Ordering::Relaxed);
                settler.failed("to begin an attempt alone", &fault)
            });
        }
        settler.end(is_healthy, self.visibility_timeout)
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
