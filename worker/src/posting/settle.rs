//! Carries out the disposition of a message. If a step fails, the message stays on the queue: it is redelivered when
//! its lease expires, and items that are already final are recognized.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use postonce_shared::backoff::{MESSAGE, MISSING_PAYLOAD, NEWER_MESSAGE};
use postonce_shared::cluster::attempts::Attempts;
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::origin::Origin;
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{self, Body, Content, Envelope, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Held, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::DeadLetterService;
use tracing::{error, warn};

use crate::listening::delivery::{Delivery, NoWork};
use crate::meter::Meter;
use crate::posting::disposition::Disposition;

/// Visibility timeout while a message is split or becomes a dead letter.
const SETTLING_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of concurrent sends when an envelope is split.
const SENDS_AT_ONCE: usize = 16;

/// Settles messages that were received together from one queue.
pub struct Settlement {
    /// Name of the queue.
    pub name: QueueName,
    /// The store of the queue.
    pub queue: Arc<dyn WorkQueue>,
    /// Read before an item becomes a dead letter, because it may already be final.
    pub ledger: Arc<dyn Ledger>,
    /// Stores the work that cannot be posted.
    pub dead_letters: Arc<DeadLetterService>,
    /// Removes payloads.
    pub claims: ClaimCheck,
    /// Seals rewritten messages.
    pub seal: Seal,
    /// Clock and random numbers.
    pub world: Arc<dyn World>,
    /// The counters.
    pub meter: Arc<Meter>,
    /// Visibility delay of each released message.
    pub visibility_delays: Mutex<Vec<Duration>>,
}

impl Settlement {
    /// Carries out a disposition. Returns false after a fault.
    pub async fn apply(&self, delivery: &Delivery<Envelope>, disposition: Disposition) -> bool {
        match disposition {
            Disposition::Delete => {
                // Before the message: after a crash in between, the marker of the payload proves that its work is
                // settled.
                self.remove_payload(delivery).await;
                self.delete(delivery).await
            }
            Disposition::RetryLater { rest, forgive } => {
                self.retry_later(delivery, (rest, forgive), self.retry_delay(delivery)).await;
                !forgive
            }
            Disposition::AwaitRelease { rest } => {
                self.retry_later(delivery, (rest, true), Duration::ZERO).await;
                true
            }
            Disposition::Split { .. } | Disposition::DeadLetter { .. }
                if !self.still_leased(delivery).await =>
            {
                true
            }
            Disposition::Split { rest } => match self.split(delivery, &rest).await {
                Ok(()) => self.delete(delivery).await,
                Err(fault) => self.failed("to split an envelope", &fault),
            },
            Disposition::DeadLetter { item, reason } => self.set_item_aside(delivery, &item, &reason).await,
        }
    }

    /// Settles a message that contains no work to post now. Returns false after a fault.
    pub async fn settle_without_work(&self, delivery: &Delivery<Envelope>, no_work: &NoWork) -> bool {
        match no_work {
            NoWork::Unreadable(unreadable @ Unreadable::Newer(_)) => {
                self.meter.newer_versions.add(1);
                self.leave_to_newer_worker(delivery, &chain(unreadable)).await
            }
            NoWork::Unreadable(unreadable @ Unreadable::Items { readable, bad, .. }) => {
                self.set_items_aside(delivery, readable, bad, &chain(unreadable)).await
            }
            NoWork::Unreadable(
                unreadable @ (Unreadable::Unsealed(_)
                | Unreadable::Malformed(_)
                | Unreadable::Damaged { .. }
                | Unreadable::Empty),
            ) => self.set_aside(delivery, &chain(unreadable)).await,
            NoWork::Refused(reason) => self.set_aside(delivery, reason).await,
            NoWork::Settled => {
                self.meter.settled_before.add(1);
                self.delete(delivery).await
            }
            NoWork::PayloadUnavailable { body, .. } => {
                self.wait_for_store(delivery, body, no_work).await;
                // Messages without payloads can still be posted.
                true
            }
            NoWork::PayloadMissing(_) => {
                self.meter.payloads_missing.add(1);
                self.report_waiting(delivery, &chain(no_work));
                let delay = MISSING_PAYLOAD.delay(delivery.message.dequeue_count, &*self.world);
                self.hide(delivery, &delivery.message.body, delay).await;
                true
            }
            NoWork::LedgerUnavailable(_) | NoWork::Unsealed(_) => {
                // Such a body has no field for a counter, and needs none: the number of receipts never makes such a
                // message a dead letter, only its content does.
                self.wait_for_store(delivery, &delivery.message.body, no_work).await;
                false
            }
            NoWork::Postponed { delay } => {
                self.hide(delivery, &delivery.message.body, *delay).await;
                true
            }
        }
    }

    async fn wait_for_store(&self, delivery: &Delivery<Envelope>, body: &[u8], no_work: &NoWork) {
        self.meter.transient_faults.add(1);
        let id = &delivery.message.lease.message_id;
        warn!(queue = %self.name, message_id = id, "Message {id} will be read again: {}", chain(no_work));
        self.hide(delivery, body, self.retry_delay(delivery)).await;
    }

    /// Logs an error for operators about a message that waits.
    fn report_waiting(&self, delivery: &Delivery<Envelope>, why: &str) {
        let id = &delivery.message.lease.message_id;
        error!(queue = %self.name, message_id = id, "Message {id} waits: {why}");
    }

    /// Replaces a message by an equal one that becomes visible later. A body of a newer version cannot be changed, so the
    /// receipts of this worker cannot be recorded in it as forgiven; the new message has none. Returns false after a fault.
    async fn leave_to_newer_worker(&self, delivery: &Delivery<Envelope>, why: &str) -> bool {
        self.report_waiting(delivery, why);
        // Otherwise another worker may have replaced it, and there would be more and more of them.
        if !self.still_leased(delivery).await {
            return true;
        }
        let delay = NEWER_MESSAGE.delay(1, &*self.world);
        match self.queue.send(&self.name, &delivery.message.body, delay).await {
            Ok(()) => {
                self.visibility_delays.lock().push(delay);
                self.delete(delivery).await
            }
            Err(fault) => self.failed("to send a message again", &fault),
        }
    }

    /// Writes a message to the dead letters, and then deletes it. Returns false after a fault.
    async fn set_aside(&self, delivery: &Delivery<Envelope>, reason: &str) -> bool {
        if !self.still_leased(delivery).await {
            return true;
        }
        let body = match (&delivery.content, Body::decode(&delivery.message.body, &self.seal)) {
            (Ok(_), Ok(Body::Content(Content::Work(_)))) | (Err(_), _) => delivery.message.body.clone(),
            // A payload is swept at some time, and an unsealed message, such as an order of a direct producer, does
            // not prove that its work was accepted. Therefore the dead letter contains the work itself.
            (Ok(envelope), _) => envelope.unclaimed().encode(&self.seal),
        };
        let keys: Vec<_> = delivery.items().iter().map(|work| work.submission.key.clone()).collect();
        self.set_body_aside(delivery, body, &keys, reason).await && self.delete(delivery).await
    }

    /// Sends the readable items of an envelope in new messages, and writes the others to the dead letters.
    async fn set_items_aside(
        &self,
        delivery: &Delivery<Envelope>,
        readable: &[Work],
        bad: &[u8],
        reason: &str,
    ) -> bool {
        if !self.still_leased(delivery).await {
            return true;
        }
        for envelope in envelope::pack(readable) {
            if let Err(fault) = self.send(&envelope).await {
                return self.failed("to send the readable items", &fault);
            }
        }
        if !self.set_body_aside(delivery, bad.to_vec(), &[], reason).await {
            return false;
        }
        // All of its content is stored elsewhere now, and the sweep would never remove an unreadable payload.
        self.remove_payload(delivery).await;
        self.delete(delivery).await
    }

    /// Returns whether the message is still leased, by renewing the lease. Without the lease a message must not be
    /// split or become a dead letter, because another worker may be posting it.
    async fn still_leased(&self, delivery: &Delivery<Envelope>) -> bool {
        match delivery.renew(&*self.queue, &self.name, SETTLING_TIMEOUT).await {
            Ok(Held::Ours(())) => true,
            Ok(Held::Lost) => {
                self.meter.leases_lost.add(1);
                false
            }
            Err(fault) => self.failed("to renew a lease", &fault),
        }
    }

    /// Writes the dead letter. The caller deletes the message.
    async fn set_body_aside(
        &self,
        delivery: &Delivery<Envelope>,
        body: Vec<u8>,
        keys: &[TransactionKey],
        reason: &str,
    ) -> bool {
        let message = Message { body, ..delivery.message.clone() };
        let id = &message.lease.message_id;
        match self.dead_letters.set_aside(&self.name, &message, keys, reason).await {
            Ok(()) => {
                self.meter.dead_letters.add(1);
                let origin = delivery.items().first().map(|work| &work.submission.origin);
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

    /// Handles a single item that was received too often. It becomes a dead letter only after its row was read and is
    /// not final.
    async fn set_item_aside(&self, delivery: &Delivery<Envelope>, item: &Work, reason: &str) -> bool {
        match self.ledger.transaction(&item.submission.key).await {
            Ok(Some(stored)) if stored.transaction.outcome.is_some() => self.delete(delivery).await,
            Ok(_) => self.set_aside(delivery, reason).await,
            Err(fault) if fault.is_transient() => {
                let delay = self.retry_delay(delivery);
                self.retry_later(delivery, (vec![item.clone()], true), delay).await;
                self.failed("to read a transaction", &fault)
            }
            // An unreadable row needs an operator as well.
            Err(fault) => self.set_aside(delivery, &format!("{reason}; {}", chain(&fault))).await,
        }
    }

    async fn delete(&self, delivery: &Delivery<Envelope>) -> bool {
        // Without the lease, the worker that has the message settles it.
        let Some(lease) = delivery.lease() else { return true };
        match self.queue.delete(&self.name, &lease).await {
            Ok(Held::Ours(())) => {
                delivery.settled();
                true
            }
            Ok(Held::Lost) => {
                self.meter.leases_lost.add(1);
                true
            }
            Err(fault) => self.failed("to delete a message", &fault),
        }
    }

    /// Releases a message until later, with only the unfinished work in it. With `forgive`, the receipt is recorded
    /// as forgiven, because of a transient fault or a held gate.
    async fn retry_later(
        &self,
        delivery: &Delivery<Envelope>,
        (rest, forgive): (Vec<Work>, bool),
        delay: Duration,
    ) {
        let Ok(envelope) = &delivery.content else { return };
        let forgiven = envelope.forgiven.saturating_add(u32::from(forgive));
        let body = match envelope.reduced_to(rest) {
            Some(rest) => Envelope { forgiven, ..rest }.encode(&self.seal),
            None => delivery.message.body.clone(),
        };
        self.hide(delivery, &body, delay).await;
    }

    fn retry_delay(&self, delivery: &Delivery<Envelope>) -> Duration {
        MESSAGE.delay(delivery.message.dequeue_count, &*self.world)
    }

    /// Removes the payload of a message, if it has one. If that fails, the sweep removes it later.
    async fn remove_payload(&self, delivery: &Delivery<Envelope>) {
        let name = match &delivery.content {
            Ok(envelope) => envelope.payload.clone(),
            Err(_) => envelope::claimed(&delivery.message.body).map(|claim| claim.name),
        };
        let Some(name) = name else { return };
        // Without the lease, the worker that has the message removes the payload.
        if delivery.lease().is_none() {
            return;
        }
        if let Err(fault) = self.claims.remove(&name).await {
            warn!(queue = %self.name, "The payload {name} is left to the sweep: {}", chain(&fault));
        }
    }

    /// Replaces the body of a message, and hides it for `delay`. After a fault it becomes visible when its lease
    /// expires.
    pub async fn hide(&self, delivery: &Delivery<Envelope>, body: &[u8], delay: Duration) {
        let Some(lease) = delivery.lease() else { return };
        match self.queue.extend(&self.name, &lease, body, delay).await {
            Ok(Held::Ours(_)) => {
                delivery.settled();
                self.visibility_delays.lock().push(delay);
            }
            Ok(Held::Lost) => self.meter.leases_lost.add(1),
            // The message becomes visible when its lease expires.
            Err(fault) => warn!(queue = %self.name, "Could not release a message: {}", chain(&fault)),
        }
    }

    async fn split(&self, delivery: &Delivery<Envelope>, rest: &[Work]) -> Result<(), StoreFault> {
        let Ok(envelope) = &delivery.content else { return Ok(()) };
        let envelope = Envelope { forgiven: 0, attempts: Attempts::NONE, ..envelope.unclaimed() };
        let single = |item: &Work| Envelope { items: vec![item.clone()], ..envelope.clone() };
        let envelopes: Vec<Envelope> = rest.iter().map(single).collect();
        // Concurrently: the many items of a payload must be sent before the lease expires.
        futures::stream::iter(envelopes)
            .map(Ok)
            .try_for_each_concurrent(SENDS_AT_ONCE, async |envelope: Envelope| self.send(&envelope).await)
            .await?;
        self.meter.splits.add(1);
        Ok(())
    }

    async fn send(&self, envelope: &Envelope) -> Result<(), StoreFault> {
        self.queue.send(&self.name, &envelope.encode(&self.seal), Duration::ZERO).await
    }

    fn failed(&self, doing: &'static str, fault: &StoreFault) -> bool {
        warn!(queue = %self.name, "Failed {doing}: {}", chain(fault));
        false
    }
}
