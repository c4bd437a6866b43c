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
use postonce_shared::backoff::{MESSAGE, NEWER_MESSAGE};
use postonce_shared::bank::Bank;
use postonce_shared::batches::messages::{self, Malformed};
use postonce_shared::batches::{BatchFault, Batches};
use postonce_shared::cluster::attempts::Attempts;
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::messaging::envelope::seal::Seal;
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
use crate::listening::lone_attempts::{LoneAttempts, NextStep};
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

    /// Returns the bodies of messages with one part of the work each; none if the work has no parts.
    fn parts(_work: &Self::Work) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Does the work of messages, and returns one result for each.
    async fn work(&self, work: &[&Self::Work]) -> Vec<Result<(), Arc<BatchFault>>>;
}

/// A message, and the result of its work; `None` if it was not tried yet.
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
    seal: Seal,
    lone_attempts: LoneAttempts,
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
            seal: bank.seal.clone(),
            lone_attempts: LoneAttempts::new(bank, config),
            visibility_timeout: config.visibility_timeout,
            // Above the receipts of a message that only met transient faults.
            receipts_max: config.dequeue_count_max.max(RECEIPTS_BEFORE_RENEWAL.saturating_add(1)),
            is_unavailable: AtomicBool::new(false),
        }
    }

    /// Returns whether a message was received so often that its work is tried alone.
    fn is_tried_alone(&self, delivery: &Delivery<R::Work>) -> bool {
        delivery.content.is_ok() && delivery.message.dequeue_count > self.receipts_max
    }

    fn renewal<'a>(&'a self, queue: &'a QueueName) -> Renewal<'a> {
        let Self { queue: port, world, meter, visibility_timeout, .. } = self;
        Renewal { queue: &**port, name: queue, world: &**world, meter, visibility: *visibility_timeout }
    }

    /// Handles a message that was received too often: its parts are sent in messages of their own, or its work is tried
    /// alone, unless too many processes ended when they did. Renews all leases meanwhile.
    async fn handle_alone(
        &self,
        queue: &QueueName,
        delivery: &Delivery<R::Work>,
        work: &R::Work,
        held: &[&Delivery<R::Work>],
    ) -> Result<Settled, StoreFault> {
        let parts = R::parts(work);
        if parts.len() > 1 {
            for part in parts {
                self.queue.send(queue, &part, Duration::ZERO).await?;
            }
            return Ok(self.delete(queue, delivery).await);
        }
        let body = &delivery.message.body;
        match self.lone_attempts.next_step(&messages::attempts_in(body, &self.seal)).await? {
            NextStep::Begin(attempts, attempt) => {
                // So that the upkeep does not send copies of the message, with attempts of their own.
                let receipts = delivery.message.dequeue_count;
                let reason =
                    format!("a message was received {receipts} times without a result, and is tried alone");
                self.hinder(R::batch(work), &reason).await;
                let recorded = messages::with_attempts(body, &attempts, &self.seal);
                match delivery.rewrite(&*self.queue, queue, recorded, self.visibility_timeout).await? {
                    Held::Ours(()) => {}
                    Held::Lost => return Ok(self.lost()),
                }
                let results = self.renewal(queue).during(held, self.role.work(&[work])).await;
                let settled = self.settle_one(queue, delivery, results.first()).await;
                if delivery.is_settled() {
                    attempt.forget();
                }
                Ok(settled)
            }
            NextStep::Wait(delay) => Ok(self.hide(queue, delivery, body, delay).await),
            NextStep::GiveUp(ended) => {
                let id = &delivery.message.lease.message_id;
                let reason = format!(
                    "{ended} processes ended while they handled message {id} of {queue} alone: it may crash the \
                     worker; nothing of the batch is tried until this dead letter is replayed"
                );
                Ok(self.stop(queue, delivery, work, &reason).await)
            }
        }
    }

    async fn settle_one(
        &self,
        queue: &QueueName,
        delivery: &Delivery<R::Work>,
        result: Option<&Result<(), Arc<BatchFault>>>,
    ) -> Settled {
        match (&delivery.content, result) {
            (Ok(_), Some(Ok(()))) => self.delete(queue, delivery).await,
            (Ok(work), Some(Err(fault))) if fault.is_transient() => {
                self.retry_later(queue, delivery, R::batch(work), fault).await
            }
            (Ok(work), Some(Err(fault))) => self.give_up(queue, delivery, work, &chain(&**fault)).await,
            (Ok(_), None) => Settled::Failed,
            (Err(NoWork::Refused(reason)), _) => self.set_aside(queue, delivery, reason).await,
            (Err(other), _) if delivery.message.dequeue_count > NEWER_RECEIPTS_MAX => {
                self.set_aside(queue, delivery, &chain(other)).await
            }
            // It waits for a newer worker.
            (Err(other), _) => {
                error!(queue = %queue, "A message waits: {}", chain(other));
                let delay = NEWER_MESSAGE.delay(delivery.message.dequeue_count, &*self.world);
                self.hide(queue, delivery, &delivery.message.body, delay).await
            }
        }
    }

    async fn give_up(
        &self,
        queue: &QueueName,
        delivery: &Delivery<R::Work>,
        work: &R::Work,
        reason: &str,
    ) -> Settled {
        self.hinder(R::batch(work), reason).await;
        self.set_aside(queue, delivery, reason).await
    }

    /// Gives up work that ends its processes. The copies of the message, and other messages that lead to the same work,
    /// are ignored from now on. So the dead letter is a message that continues the whole batch.
    async fn stop(
        &self,
        queue: &QueueName,
        delivery: &Delivery<R::Work>,
        work: &R::Work,
        reason: &str,
    ) -> Settled {
        match self.batches.stop(R::batch(work), reason.to_owned()).await {
            Ok(None) => self.delete(queue, delivery).await,
            Ok(Some(ends_stop)) => {
                let message = Message { body: ends_stop.encode(), ..delivery.message.clone() };
                match self.write_letter(&messages::split_queue(), &message, reason).await {
                    Ok(()) => self.delete(queue, delivery).await,
                    Err(fault) => self.failed(queue, "to write a dead letter", &fault),
                }
            }
            Err(fault) => {
                warn!(queue = %queue, batch = %R::batch(work), "Could not stop a batch: {}", chain(&fault));
                Settled::Failed
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
            // Without its causes, which name addresses of the store: partners read it.
            self.hinder(key, &fault.to_string()).await;
        }
        let delay = MESSAGE.delay(delivery.message.dequeue_count, &*self.world);
        if delivery.message.dequeue_count < RECEIPTS_BEFORE_RENEWAL {
            return self.hide(queue, delivery, &delivery.message.body, delay).await;
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

    async fn hide(
        &self,
        queue: &QueueName,
        delivery: &Delivery<R::Work>,
        body: &[u8],
        delay: Duration,
    ) -> Settled {
        let Some(lease) = delivery.lease() else { return Settled::Done };
        match self.queue.extend(queue, &lease, body, delay).await {
            Ok(Held::Ours(_)) => {
                delivery.settled();
                Settled::Hidden(delay)
            }
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed(queue, "to release a message", &fault),
        }
    }

    async fn delete(&self, queue: &QueueName, delivery: &Delivery<R::Work>) -> Settled {
        let Some(lease) = delivery.lease() else { return Settled::Done };
        match self.queue.delete(queue, &lease).await {
            Ok(Held::Ours(())) => {
                delivery.settled();
                Settled::Done
            }
            Ok(Held::Lost) => self.lost(),
            Err(fault) => self.failed(queue, "to delete a message", &fault),
        }
    }

    async fn set_aside(&self, queue: &QueueName, delivery: &Delivery<R::Work>, reason: &str) -> Settled {
        // Its attempts do not count any more when an operator replays it.
        let body = messages::with_attempts(&delivery.message.body, &Attempts::NONE, &self.seal);
        let message = Message { body, ..delivery.message.clone() };
        match self.write_letter(queue, &message, reason).await {
            Ok(()) => self.delete(queue, delivery).await,
            Err(fault) => self.failed(queue, "to write a dead letter", &fault),
        }
    }

    /// Writes a dead letter, whose replay sends the message to this queue.
    async fn write_letter(
        &self,
        queue: &QueueName,
        message: &Message,
        reason: &str,
    ) -> Result<(), StoreFault> {
        self.dead_letters.set_aside(queue, message, &[], reason).await?;
        let id = &message.lease.message_id;
        self.meter.dead_letters.add(1);
        error!(queue = %queue, message_id = id, "Message {id} became a dead letter: {reason}");
        Ok(())
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
        let settlements = together.iter().map(|it| self.settle_one(queue, &it.delivery, it.result.as_ref()));
        let mut all_settled = join_all(settlements).await;
        // One after the other, each settled before the next begins: a message that kills the worker must not end the
        // attempts of other messages.
        let alone: Vec<_> = alone.iter().map(|worked| &worked.delivery).collect();
        for (index, delivery) in alone.iter().enumerate() {
            let Ok(work) = &delivery.content else { continue };
            let held = alone.get(index..).unwrap_or_default();
            all_settled.push(self.handle_alone(queue, delivery, work, held).await.unwrap_or_else(|fault| {
                self.is_unavailable.store(true, Ordering::Relaxed);
                self.failed(queue, "to begin an attempt alone", &fault)
            }));
        }
        let (mut health, mut visibility_delays) = (Health::Healthy, Vec::new());
        for settled in all_settled {
            match settled {
                Settled::Done => continue,
                Settled::Hidden(delay) => visibility_delays.push(delay),
                Settled::Failed => visibility_delays.push(self.visibility_timeout),
            }
            health = Health::Unavailable;
        }
        Handled { health, visibility_delays }
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
