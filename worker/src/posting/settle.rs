//! Carries out the dispositions of messages with work.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use postonce_shared::backoff::{MESSAGE, MISSING_PAYLOAD};
use postonce_shared::cluster::attempts::Attempts;
use postonce_shared::domain::decision::Work;
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{self, Body, Content, Envelope, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::Ledger;
use tracing::warn;

use crate::listening::delivery::{Delivery, DeliveryError};
use crate::listening::settler::{DeadLetter, Settler};
use crate::posting::disposition::Disposition;

/// Number of concurrent sends when an envelope is split.
const SENDS_AT_ONCE: usize = 16;

/// Settles messages with work that were received together from one queue.
pub struct Settlement<'a> {
    /// Settles messages of any kind.
    pub settler: Settler<'a>,
    /// Read before an item becomes a dead letter, because the item may already be final.
    pub ledger: &'a Arc<dyn Ledger>,
    /// Removes the payloads of settled messages.
    pub claims: &'a ClaimCheck,
    /// Seals rewritten messages.
    pub seal: &'a Seal,
}

impl Settlement<'_> {
    /// Carries out a disposition. Returns false if the next receive should wait because of a fault.
    pub async fn apply(&self, delivery: &Delivery<Envelope>, disposition: Disposition) -> bool {
        match disposition {
            Disposition::Delete => {
                // Payload first: if the process dies in between, the payload's tombstone proves that its work is settled.
                self.remove_payload(delivery).await;
                self.settler.delete(delivery).await
            }
            Disposition::RetryLater { rest, forgive } => {
                self.retry_later(delivery, (rest, forgive), self.retry_delay(delivery)).await;
                !forgive
            }
            Disposition::AwaitRelease { rest } => {
                self.retry_later(delivery, (rest, true), Duration::ZERO).await;
                true
            }
            Disposition::Split { rest } => {
                let step = async {
                    match self.split(delivery, &rest).await {
                        Ok(()) => self.settler.delete(delivery).await,
                        Err(fault) => self.settler.failed("to split an envelope", &fault),
                    }
                };
                self.settler.if_leased(delivery, step).await
            }
            Disposition::DeadLetter { item, reason } => {
                self.settler.if_leased(delivery, self.set_item_aside(delivery, &item, &reason)).await
            }
        }
    }

    /// Settles a message without work that can be posted now. Returns false if the next receive should wait because of a fault.
    pub async fn settle_without_work(&self, delivery: &Delivery<Envelope>, no_work: &DeliveryError) -> bool {
        match no_work {
            DeliveryError::Unreadable(unreadable @ Unreadable::Newer(_)) => {
                self.settler.leave_to_newer_worker(delivery, &chain(unreadable)).await
            }
            DeliveryError::Unreadable(unreadable @ Unreadable::Items { readable, bad, .. }) => {
                let reason = chain(unreadable);
                let step = self.set_items_aside(delivery, readable, bad, &reason);
                self.settler.if_leased(delivery, step).await
            }
            DeliveryError::Unreadable(
                unreadable @ (Unreadable::Unsealed(_)
                | Unreadable::Malformed(_)
                | Unreadable::Damaged { .. }
                | Unreadable::Empty),
            ) => self.set_aside(delivery, &chain(unreadable)).await,
            DeliveryError::Newer(newer) => {
                self.settler.leave_to_newer_worker(delivery, &chain(&**newer)).await
            }
            DeliveryError::Refused(reason) => self.set_aside(delivery, reason).await,
            DeliveryError::Settled => {
                self.settler.parts.meter.settled_before.add(1);
                self.settler.delete(delivery).await
            }
            DeliveryError::PayloadUnavailable { body, .. } => {
                self.wait_for_store(delivery, body, no_work).await;
                // Messages without payloads can still be posted.
                true
            }
            DeliveryError::PayloadMissing(_) => {
                self.settler.parts.meter.payloads_missing.add(1);
                self.settler.report_waiting(delivery, &chain(no_work));
                let delay = MISSING_PAYLOAD.delay(delivery.message.dequeue_count, &*self.settler.parts.world);
                self.settler.hide(delivery, &delivery.message.body, delay).await;
                true
            }
            DeliveryError::LedgerUnavailable(_) | DeliveryError::Unsealed(_) => {
                // Such a body has no field for a counter, and needs none: only its content, and never the number of receipts,
                // makes such a message a dead letter.
                self.wait_for_store(delivery, &delivery.message.body, no_work).await;
                false
            }
        }
    }

    async fn wait_for_store(&self, delivery: &Delivery<Envelope>, body: &[u8], no_work: &DeliveryError) {
        self.settler.parts.meter.transient_faults.add(1);
        let id = &delivery.message.lease.message_id;
        warn!(queue = %self.settler.name, message_id = id, "Message {id} will be read again: {}", chain(no_work));
        self.settler.hide(delivery, body, self.retry_delay(delivery)).await;
    }

    /// Writes a message to the dead letters and then deletes it. Returns false after a fault.
    async fn set_aside(&self, delivery: &Delivery<Envelope>, reason: &str) -> bool {
        let body = match (&delivery.content, Body::decode(&delivery.message.body, self.seal)) {
            (Ok(_), Ok(Body::Content(Content::Work(_)))) | (Err(_), _) => delivery.message.body.clone(),
            // The dead letter must contain the work itself, because a payload is swept at some time. An unsealed message does
            // not prove that its work was accepted.
            (Ok(envelope), _) => envelope.unclaimed().encode(self.seal),
        };
        let keys: Vec<_> = delivery.items().iter().map(|work| work.submission.key.clone()).collect();
        let origin = delivery.items().first().map(|work| &work.submission.origin);
        let letter = DeadLetter { queue: self.settler.name, body, part: None, keys: &keys, origin, reason };
        self.settler.set_aside(delivery, letter).await
    }

    /// Sends the readable items of an envelope in new messages, and writes the others to the dead letters.
    async fn set_items_aside(
        &self,
        delivery: &Delivery<Envelope>,
        readable: &[Work],
        bad: &[u8],
        reason: &str,
    ) -> bool {
        for envelope in envelope::pack(readable) {
            if let Err(fault) = self.send(&envelope).await {
                return self.settler.failed("to send the readable items", &fault);
            }
        }
        let body = bad.to_vec();
        let letter =
            DeadLetter { queue: self.settler.name, body, part: None, keys: &[], origin: None, reason };
        if !self.settler.write_letter(delivery, letter).await {
            return false;
        }
        // All of the content is now stored elsewhere, and the sweep would never remove an unreadable payload.
        self.remove_payload(delivery).await;
        self.settler.delete(delivery).await
    }

    /// Handles an item that was received too often. It becomes a dead letter unless its row is final or temporarily unavailable.
    async fn set_item_aside(&self, delivery: &Delivery<Envelope>, item: &Work, reason: &str) -> bool {
        match self.ledger.transaction(&item.submission.key).await {
            Ok(Some(stored)) if stored.outcome.is_some() => self.settler.delete(delivery).await,
            Ok(_) => self.set_aside(delivery, reason).await,
            Err(fault) if fault.is_transient() => {
                let delay = self.retry_delay(delivery);
                self.retry_later(delivery, (vec![item.clone()], true), delay).await;
                self.settler.failed("to read a transaction", &fault)
            }
            // An unreadable row also requires an operator.
            Err(fault) => self.set_aside(delivery, &format!("{reason}; {}", chain(&fault))).await,
        }
    }

    /// Releases a message until later, with only its unfinished work. With `forgive`, the receipt is recorded as forgiven,
    /// because of a transient fault or a held gate.
    async fn retry_later(
        &self,
        delivery: &Delivery<Envelope>,
        (rest, forgive): (Vec<Work>, bool),
        delay: Duration,
    ) {
        let Ok(envelope) = &delivery.content else { return };
        let forgiven = envelope.forgiven.saturating_add(u32::from(forgive));
        let body = match envelope.reduced_to(rest) {
            Some(rest) => Envelope { forgiven, ..rest }.encode(self.seal),
            None => delivery.message.body.clone(),
        };
        self.settler.hide(delivery, &body, delay).await;
    }

    fn retry_delay(&self, delivery: &Delivery<Envelope>) -> Duration {
        MESSAGE.delay(delivery.message.dequeue_count, &*self.settler.parts.world)
    }

    /// Removes the payload of a message, if any. If that fails, the sweep removes it later.
    async fn remove_payload(&self, delivery: &Delivery<Envelope>) {
        let name = match &delivery.content {
            Ok(envelope) => envelope.payload.clone(),
            Err(_) => envelope::claimed(&delivery.message.body).map(|claim| claim.name),
        };
        let Some(name) = name else { return };
        // Without a lease, the worker that has the message removes the payload.
        if delivery.lease().is_none() {
            return;
        }
        if let Err(fault) = self.claims.remove(&name).await {
            warn!(queue = %self.settler.name, "The payload {name} is left to the sweep: {}", chain(&fault));
        }
    }

    async fn split(&self, delivery: &Delivery<Envelope>, rest: &[Work]) -> Result<(), StoreFault> {
        let Ok(envelope) = &delivery.content else { return Ok(()) };
        let envelope = Envelope { forgiven: 0, attempts: Attempts::NONE, ..envelope.unclaimed() };
        let single = |item: &Work| Envelope { items: vec![item.clone()], ..envelope.clone() };
        let envelopes: Vec<Envelope> = rest.iter().map(single).collect();
        // Concurrently, because the many items of a payload must be sent before the lease expires.
        futures::stream::iter(envelopes)
            .map(Ok)
            .try_for_each_concurrent(SENDS_AT_ONCE, async |envelope: Envelope| self.send(&envelope).await)
            .await?;
        self.settler.parts.meter.splits.add(1);
        Ok(())
    }

    async fn send(&self, envelope: &Envelope) -> Result<(), StoreFault> {
        self.settler.parts.queue.send(self.settler.name, &envelope.encode(self.seal), Duration::ZERO).await
    }
}
