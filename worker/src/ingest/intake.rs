//! Accepts the orders of received messages, and settles the messages.
//!
//! A message is settled when each of its orders is accepted or refused. Until then nothing is settled: it is delivered again, and
//! the orders that were accepted before are found accepted. The orders of one message on one account are accepted in their order.
//!
//! The body of a producer has no field for counters. A message that waits for a reason of another kind than its content is
//! therefore replaced by an equal one without receipts, before its receipts count.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt as _, StreamExt as _};
use postonce_process::drain::Drain;
use postonce_process::meter::{ListenerGauge, Meter};
use postonce_shared::backoff::MESSAGE;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::attempts::ATTEMPTS_MAX;
use postonce_shared::config::IngestQueue;
use postonce_shared::domain::ids::{AccountKey, PartnerId};
use postonce_shared::messaging::direct_producers::{self, DirectOrder, Order};
use postonce_shared::ports::fault::{Cause, chain};
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Message, QueueName, RECEIVE_MAX};
use tracing::{error, info, warn};

use crate::config::WorkerConfig;
use crate::ingest::direct_orders::{DirectOrders, OrderFault};
use crate::listening::delivery::Delivery;
use crate::listening::handler::Handled;
use crate::listening::lone_attempts::ATTEMPTS_MIN;
use crate::listening::renewal::Renewal;
use crate::listening::settler::{DeadLetter, Settler, SettlerParts};

/// Maximum number of accounts of one message whose orders are accepted concurrently.
const ACCOUNTS_AT_ONCE: usize = 16;

/// Why a message without an order is set aside.
const NO_ORDER: &str =
    "the body is neither an order in XML or JSON, nor a line userid|accountid|transactionid|amount";

/// Accepts orders from one queue.
pub struct Intake {
    queue: QueueName,
    partner: PartnerId,
    direct: Arc<DirectOrders>,
    settling: SettlerParts,
    ledger: Arc<dyn Ledger>,
    gauge: Arc<ListenerGauge>,
    visibility_timeout: Duration,
    /// Number of receipts after which a message is handled alone.
    alone_after: u32,
    /// Number of receipts after which a message is given up.
    given_up_after: u32,
    ledger_unavailable: AtomicBool,
    /// Number of messages of the next receive: fewer while some of the received ones are postponed, which costs operations.
    at_once: AtomicUsize,
}

/// Result of one receive.
#[derive(Debug)]
pub enum Received {
    /// The queue has no visible message.
    Nothing,
    /// Messages were received and handled.
    Messages {
        /// The result of settling them.
        handled: Handled,
        /// Whether the partner has used up its rate, so that further messages would be postponed, too.
        is_postponed: bool,
    },
    /// Nothing was received, because the queue or the ledger is unavailable.
    Unavailable,
}

/// Result of accepting the orders of one message.
enum Taken {
    /// Each is accepted or refused. Contains those that are refused.
    Completely(Vec<Refused>),
    /// They exceed the rate of the partner, and are tried again after this delay.
    Postponed(Duration),
    /// An order could not be stored or sent.
    Unavailable(Cause),
    /// The drain started.
    Stopped,
}

/// Result of handling one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// It is deleted, or waits.
    Healthy,
    /// It waits for the rate of the partner.
    Postponed,
    /// A store was unavailable: the next receive should wait.
    Unavailable,
}

impl Settled {
    const fn of(is_available: bool) -> Self {
        if is_available { Self::Healthy } else { Self::Unavailable }
    }
}

/// A refused order.
struct Refused {
    /// Its position in a message with several orders, from 1; `None` if it is the whole message.
    part: Option<usize>,
    body: Vec<u8>,
    reason: String,
}

/// Why the orders on an account were not all tried.
enum Interrupted {
    Unavailable(Cause),
    Stopped,
}

impl Intake {
    /// Creates the intake of a queue.
    pub fn new(
        bank: &Bank,
        meter: &Arc<Meter>,
        (queue, config): (&IngestQueue, &WorkerConfig),
        direct: Arc<DirectOrders>,
    ) -> Self {
        let IngestQueue { queue, partner, .. } = queue.clone();
        let WorkerConfig { visibility_timeout, dequeue_count_max, .. } = *config;
        let [least, most] =
            [ATTEMPTS_MIN, ATTEMPTS_MAX].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let alone = dequeue_count_max.clamp(least, most);
        Self {
            gauge: meter.listeners(&queue),
            queue,
            partner,
            direct,
            settling: SettlerParts::of(bank, meter),
            ledger: Arc::clone(&bank.store.ledger),
            visibility_timeout,
            alone_after: dequeue_count_max,
            given_up_after: dequeue_count_max.saturating_add(alone),
            ledger_unavailable: AtomicBool::new(false),
            at_once: AtomicUsize::new(RECEIVE_MAX),
        }
    }

    /// Returns the queue from which it receives.
    pub const fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Receives once, and handles the messages. After the start of the drain, their orders are left for later.
    pub async fn receive(&self, drain: &Drain) -> Received {
        if !self.is_ready().await {
            return Received::Unavailable;
        }
        let SettlerParts { queue, world, meter, .. } = &self.settling;
        let at_once = self.at_once.load(Ordering::Relaxed);
        let received = queue.receive(&self.queue, at_once, self.visibility_timeout).await;
        let now = world.now();
        let messages = match received {
            Ok(messages) => messages,
            Err(fault) => {
                meter.queue_faults.add(1);
                warn!(queue = %self.queue, "Could not receive from {}: {}", self.queue, chain(&fault));
                return Received::Unavailable;
            }
        };
        let oldest = messages.iter().map(|message| message.inserted_at).min();
        let oldest_age = oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
        // The depth of a full receive is not known, and reading it would cost an operation.
        self.gauge.record_backlog(now, 0, oldest_age);
        if messages.is_empty() {
            return Received::Nothing;
        }
        meter.received.add(messages.len());
        let (_busy, _leased) = (self.gauge.busy(), self.gauge.lease(messages.len()));
        let count = messages.len();
        let (handled, postponed) = self.handle(messages, drain).await;
        let next = match count.saturating_sub(postponed) {
            accepted if postponed > 0 => accepted.max(1),
            _ => at_once.saturating_mul(2).min(RECEIVE_MAX),
        };
        self.at_once.store(next, Ordering::Relaxed);
        Received::Messages { handled, is_postponed: postponed > 0 }
    }

    /// Returns whether the ledger is available, as far as known. A receive without it would only add to the receipts.
    async fn is_ready(&self) -> bool {
        if !self.ledger_unavailable.load(Ordering::Relaxed) {
            return true;
        }
        let is_back = self.ledger.probe().await.is_ok();
        if is_back && self.ledger_unavailable.swap(false, Ordering::Relaxed) {
            info!("The ledger is available again; orders of {} are accepted", self.queue);
        }
        is_back
    }

    /// Handles received messages. Also returns the number of those that are postponed.
    async fn handle(&self, messages: Vec<Message>, drain: &Drain) -> (Handled, usize) {
        let deliveries: Vec<_> = messages.into_iter().map(|message| Delivery::new(message, Ok(()))).collect();
        let (together, mut repeated): (Vec<_>, Vec<_>) =
            deliveries.iter().partition(|delivery| delivery.message.dequeue_count <= self.alone_after);
        // In random order, so that a message that ends the process does not always precede the same others.
        repeated.sort_by_cached_key(|_| self.settling.world.random());
        let settler = Settler::new(&self.queue, &self.settling);
        let all: Vec<_> = deliveries.iter().collect();
        let handling = async {
            let together: Vec<_> =
                together.iter().map(|delivery| self.handle_one(&settler, delivery, drain).boxed()).collect();
            let mut settled = join_all(together).await;
            for delivery in repeated {
                settled.push(self.handle_one(&settler, delivery, drain).await);
            }
            settled
        };
        let settled = self.renewal().during(&all, handling).await;
        let is_healthy = !settled.contains(&Settled::Unavailable);
        let postponed = settled.iter().filter(|it| **it == Settled::Postponed).count();
        (settler.end(is_healthy, self.visibility_timeout), postponed)
    }

    fn renewal(&self) -> Renewal<'_> {
        let SettlerParts { queue, world, meter, .. } = &self.settling;
        let visibility = self.visibility_timeout;
        Renewal { queue: &**queue, name: &self.queue, world: &**world, meter, visibility }
    }

    /// Accepts the orders of a message, and settles it.
    async fn handle_one(&self, settler: &Settler<'_>, delivery: &Delivery<()>, drain: &Drain) -> Settled {
        let Message { ref body, dequeue_count, ref lease, .. } = delivery.message;
        if dequeue_count > self.given_up_after {
            let reason = format!(
                "it was received {dequeue_count} times and never handled to the end: it may crash the worker"
            );
            let refused = Refused { part: None, body: body.clone(), reason };
            return Settled::of(self.settle(settler, delivery, vec![refused]).await);
        }
        match AssertUnwindSafe(self.take(body, drain)).catch_unwind().await {
            Ok(Taken::Completely(refused)) => Settled::of(self.settle(settler, delivery, refused).await),
            Ok(Taken::Postponed(delay)) => {
                self.release(settler, delivery, delay).await;
                Settled::Postponed
            }
            Ok(Taken::Stopped) => Settled::of(self.release(settler, delivery, Duration::ZERO).await),
            Ok(Taken::Unavailable(cause)) => {
                self.ledger_unavailable.store(true, Ordering::Relaxed);
                self.settling.meter.transient_faults.add(1);
                let id = &lease.message_id;
                warn!(queue = %self.queue, message_id = id, "Message {id} will be read again: {}", chain(&*cause));
                let delay = MESSAGE.delay(dequeue_count, &*self.settling.world);
                self.release(settler, delivery, delay).await;
                Settled::Unavailable
            }
            Err(_) => {
                let id = &lease.message_id;
                error!(queue = %self.queue, message_id = id, "The handling of message {id} panicked");
                let delay = MESSAGE.delay(dequeue_count, &*self.settling.world);
                // Not replaced: its receipts count.
                Settled::of(settler.hide(delivery, body, delay).await)
            }
        }
    }

    /// Makes a message visible again after a delay, for a reason that is not its content.
    async fn release(&self, settler: &Settler<'_>, delivery: &Delivery<()>, delay: Duration) -> bool {
        let Message { body, dequeue_count, .. } = &delivery.message;
        if *dequeue_count < self.alone_after {
            return settler.hide(delivery, body, delay).await;
        }
        settler.if_leased(delivery, settler.send_again(delivery, delay)).await
    }

    /// Writes the refused orders of a message to the dead letters, and deletes the message.
    async fn settle(&self, settler: &Settler<'_>, delivery: &Delivery<()>, refused: Vec<Refused>) -> bool {
        if refused.is_empty() {
            return settler.delete(delivery).await;
        }
        let step = async {
            for Refused { part, body, reason } in refused {
                let reason = format!("an order of partner {} is refused: {reason}", self.partner);
                let letter =
                    DeadLetter { queue: &self.queue, body, part, keys: &[], origin: None, reason: &reason };
                if !settler.write_letter(delivery, letter).await {
                    return false;
                }
                self.gauge.orders.refused.add(1);
            }
            settler.delete(delivery).await
        };
        settler.if_leased(delivery, step).await
    }

    /// Accepts the orders of a message.
    async fn take(&self, body: &[u8], drain: &Drain) -> Taken {
        let Some(orders) = direct_producers::parse(body) else {
            let refused = Refused { part: None, body: body.to_vec(), reason: NO_ORDER.to_owned() };
            return Taken::Completely(vec![refused]);
        };
        let (mut reasons, mut by_account) = (BTreeMap::new(), BTreeMap::<AccountKey, Vec<_>>::new());
        for (index, Order { order, .. }) in orders.iter().enumerate() {
            match order {
                Ok(order) => by_account.entry(order.account).or_default().push((index, order)),
                Err(invalid) => drop(reasons.insert(index, invalid.to_string())),
            }
        }
        let count = orders.len().saturating_sub(reasons.len());
        match self.direct.postponed(&self.partner, count).await {
            Ok(None) => {}
            Ok(Some(delay)) => {
                self.settling.meter.postponed.add(count);
                self.gauge.orders.postponed.add(count);
                return Taken::Postponed(delay);
            }
            Err(OrderFault::Unavailable(cause)) => return Taken::Unavailable(cause),
            Err(OrderFault::Refused(reason)) => {
                let valid = std::mem::take(&mut by_account).into_values().flatten();
                reasons.extend(valid.map(|(index, _)| (index, reason.clone())));
            }
        }
        let admissions = by_account.into_values().map(|orders| self.admit_in_order(orders, drain).boxed());
        let admissions: Vec<_> = admissions.collect();
        let admitted: Vec<_> =
            futures::stream::iter(admissions).buffer_unordered(ACCOUNTS_AT_ONCE).collect().await;
        for of_account in admitted {
            match of_account {
                Ok(refused) => reasons.extend(refused),
                Err(Interrupted::Unavailable(cause)) => return Taken::Unavailable(cause),
                Err(Interrupted::Stopped) => return Taken::Stopped,
            }
        }
        let is_lone = orders.len() == 1;
        let refused = orders.into_iter().enumerate().filter_map(|(index, Order { body, .. })| {
            let reason = reasons.remove(&index)?;
            Some(Refused { part: (!is_lone).then(|| index.saturating_add(1)), body, reason })
        });
        Taken::Completely(refused.collect())
    }

    /// Accepts orders one after the other. Returns those that are refused.
    async fn admit_in_order(
        &self,
        orders: Vec<(usize, &DirectOrder)>,
        drain: &Drain,
    ) -> Result<Vec<(usize, String)>, Interrupted> {
        let mut refused = Vec::new();
        for (index, order) in orders {
            if drain.is_started() {
                return Err(Interrupted::Stopped);
            }
            match self.direct.admit(order, &self.partner).await {
                Ok(()) => {
                    self.settling.meter.admitted.add(1);
                    self.gauge.orders.accepted.add(1);
                }
                Err(OrderFault::Refused(reason)) => refused.push((index, reason)),
                Err(OrderFault::Unavailable(cause)) => return Err(Interrupted::Unavailable(cause)),
            }
        }
        Ok(refused)
    }
}
