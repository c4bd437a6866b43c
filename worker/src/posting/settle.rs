//! Carries out what was chosen for a message. Whatever fails here leaves the message on the queue:
//! it comes back when its lease ends, and its final items are recognised.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use postonce_shared::backoff::{MESSAGE, NEWER_MESSAGE};
use postonce_shared::domain::decision::Work;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Seal;
use postonce_shared::messaging::envelope::{self, Body, Content, Envelope, Unreadable};
use postonce_shared::ports::fault::{StoreFault, chain};
use postonce_shared::ports::ledger::Ledger;
use postonce_shared::ports::queue::{Held, Message, QueueName, WorkQueue};
use postonce_shared::ports::world::World;
use postonce_shared::protocol::dead_letters::DeadLetterService;
use tracing::{error, warn};

use crate::listening::delivery::{Delivery, Unopened};
use crate::meter::Meter;
use crate::posting::disposition::Disposition;

/// How long it may take to set a message aside, or to take it apart.
const SETTLING_TIME_MAX: Duration = Duration::from_secs(20);
/// Messages that are sent side by side when an envelope is taken apart.
const SENDS_AT_ONCE: usize = 16;

/// Settles messages that were received together from one queue.
pub struct Settlement {
    /// The queue.
    pub name: QueueName,
    /// Where the messages are.
    pub queue: Arc<dyn WorkQueue>,
    /// Asked whether work is final before it is set aside.
    pub ledger: Arc<dyn Ledger>,
    /// Where work goes that cannot be posted.
    pub office: Arc<DeadLetterService>,
    /// Where payloads are removed.
    pub claims: ClaimCheck,
    /// What is written anew carries it.
    pub seal: Seal,
    /// Time and chance.
    pub world: Arc<dyn World>,
    /// What is counted.
    pub meter: Arc<Meter>,
    /// In how long what was given back comes again.
    pub back_in: Mutex<Vec<Duration>>,
}

impl Settlement {
    /// Does what was chosen. False when something was away.
    pub async fn apply(&self, delivery: &Delivery<Envelope>, disposition: Disposition) -> bool {
        match disposition {
            Disposition::Delete => {
                // Before the message, so that a crash in between leaves a claim on nothing, which
                // says that its work is settled.
                self.remove_payload(delivery).await;
                self.delete(delivery).await
            }
            Disposition::RetryLater { rest, forgive } => {
                self.retry_later(delivery, rest, forgive).await;
                !forgive
            }
            Disposition::Split { .. } | Disposition::DeadLetter { .. }
                if !self.still_holds(delivery).await =>
            {
                true
            }
            Disposition::Split { rest } => match self.split(delivery, &rest).await {
                Ok(()) => self.delete(delivery).await,
                Err(fault) => self.away("taking an envelope apart", &fault),
            },
            Disposition::DeadLetter { item, reason } => self.set_item_aside(delivery, &item, &reason).await,
        }
    }

    /// Settles a message that has no work to be done. False when something was away.
    pub async fn settle_unopened(&self, delivery: &Delivery<Envelope>, unopened: &Unopened) -> bool {
        match unopened {
            Unopened::Unreadable(unreadable @ Unreadable::Newer(_)) => {
                self.leave_to_newer(delivery, unreadable).await
            }
            Unopened::Unreadable(unreadable @ Unreadable::Items { readable, bad, .. }) => {
                self.set_items_aside(delivery, readable, bad, &chain(unreadable)).await
            }
            Unopened::Unreadable(
                unreadable @ (Unreadable::Unsealed(_)
                | Unreadable::Malformed(_)
                | Unreadable::Damaged { .. }
                | Unreadable::Empty),
            ) => self.set_aside(delivery, &chain(unreadable)).await,
            Unopened::Refused(reason) => self.set_aside(delivery, reason).await,
            Unopened::Settled => {
                self.meter.settled_before.add(1);
                self.delete(delivery).await
            }
            Unopened::PayloadAway { body, .. } => {
                self.wait_for_store(delivery, body, unopened).await;
                // Work that stands in its messages can go on.
                true
            }
            Unopened::LedgerAway(_) | Unopened::Unsealed(_) => {
                // There is no room for a counter in such a body. None is needed: however often it was
                // received, only what it says makes a dead letter of it.
                self.wait_for_store(delivery, &delivery.message.body, unopened).await;
                false
            }
            Unopened::Postponed { delay } => {
                self.hide(delivery, &delivery.message.body, *delay).await;
                true
            }
        }
    }

    async fn wait_for_store(&self, delivery: &Delivery<Envelope>, body: &[u8], unopened: &Unopened) {
        self.meter.transient_faults.add(1);
        let id = &delivery.message.lease.message_id;
        warn!(queue = %self.name, message_id = id, "Will open message {id} again: {}", chain(unopened));
        self.hide(delivery, body, self.retry_delay(delivery)).await;
    }

    /// Leaves a message for a worker that can read it, and says so loudly.
    async fn leave_to_newer(&self, delivery: &Delivery<Envelope>, why: &Unreadable) -> bool {
        self.meter.newer_versions.add(1);
        let id = &delivery.message.lease.message_id;
        error!(queue = %self.name, message_id = id, "Message {id} waits for a newer worker: {why}");
        let delay = NEWER_MESSAGE.delay(delivery.message.dequeue_count, &*self.world);
        self.hide(delivery, &delivery.message.body, delay).await;
        true
    }

    /// Sets a message aside and then deletes it. False when something was away.
    async fn set_aside(&self, delivery: &Delivery<Envelope>, reason: &str) -> bool {
        if !self.still_holds(delivery).await {
            return true;
        }
        let body = match (&delivery.content, Body::decode(&delivery.message.body, &self.seal)) {
            (Ok(_), Ok(Body::Content(Content::Work(_)))) | (Err(_), _) => delivery.message.body.clone(),
            // What lies in a payload would be swept some day, and what came without a seal, a direct producer's
            // order among it, does not prove that it was accepted: the letter has the work itself.
            (Ok(envelope), _) => envelope.unclaimed().encode(&self.seal),
        };
        let held: Vec<_> = delivery.items().iter().map(|work| work.key.clone()).collect();
        self.set_body_aside(delivery, body, &held, reason).await && self.delete(delivery).await
    }

    /// Sends on what can be read of an envelope, and sets the rest of it aside.
    async fn set_items_aside(
        &self,
        delivery: &Delivery<Envelope>,
        readable: &[Work],
        bad: &[u8],
        reason: &str,
    ) -> bool {
        if !self.still_holds(delivery).await {
            return true;
        }
        for envelope in envelope::pack(readable, None) {
            if let Err(fault) = self.send(&envelope).await {
                return self.away("sending on what can be read", &fault);
            }
        }
        if !self.set_body_aside(delivery, bad.to_vec(), &[], reason).await {
            return false;
        }
        // All of it is in other places now, and for ever in one that a sweep cannot read.
        self.remove_payload(delivery).await;
        self.delete(delivery).await
    }

    /// Whether the message is still ours, asked of the queue: who lost the lease must neither take a
    /// message apart nor set it aside, since somebody else may just be posting it.
    async fn still_holds(&self, delivery: &Delivery<Envelope>) -> bool {
        match delivery.renew(&*self.queue, &self.name, SETTLING_TIME_MAX).await {
            Ok(Held::Ours(())) => true,
            Ok(Held::Lost) => {
                self.meter.leases_lost.add(1);
                false
            }
            Err(fault) => self.away("renewing a lease", &fault),
        }
    }

    /// Writes the dead letter. The message is still to be deleted.
    async fn set_body_aside(
        &self,
        delivery: &Delivery<Envelope>,
        body: Vec<u8>,
        held: &[TransactionKey],
        reason: &str,
    ) -> bool {
        let message = Message { body, ..delivery.message.clone() };
        let id = &message.lease.message_id;
        match self.office.set_aside(&self.name, &message, held, reason).await {
            Ok(()) => {
                self.meter.dead_letters.add(1);
                error!(queue = %self.name, message_id = id, "Set message {id} aside as a dead letter, which tells why");
                true
            }
            Err(fault) => self.away("setting a message aside", &fault),
        }
    }

    /// A single item that was received too often: only a row that was read, and that is not final,
    /// makes it a dead letter.
    async fn set_item_aside(&self, delivery: &Delivery<Envelope>, item: &Work, reason: &str) -> bool {
        match self.ledger.transaction(&item.key).await {
            Ok(Some(stored)) if stored.transaction.outcome.is_some() => self.delete(delivery).await,
            Ok(_) => self.set_aside(delivery, reason).await,
            Err(fault) if fault.is_transient() => {
                self.retry_later(delivery, vec![item.clone()], true).await;
                self.away("reading a transaction", &fault)
            }
            // A row that nobody can read is for a person, too.
            Err(fault) => self.set_aside(delivery, &format!("{reason}; {}", chain(&fault))).await,
        }
    }

    async fn delete(&self, delivery: &Delivery<Envelope>) -> bool {
        // Without a lease somebody else has the message, and settles it.
        let Some(lease) = delivery.lease() else { return true };
        match self.queue.delete(&self.name, &lease).await {
            Ok(Held::Ours(())) => true,
            Ok(Held::Lost) => {
                self.meter.leases_lost.add(1);
                true
            }
            Err(fault) => self.away("deleting a message", &fault),
        }
    }

    /// Gives a message back for later, with only what is left in it. A receipt that was nobody's
    /// failure is written into it as forgiven.
    async fn retry_later(&self, delivery: &Delivery<Envelope>, rest: Vec<Work>, forgive: bool) {
        let Ok(envelope) = &delivery.content else { return };
        let forgiven = envelope.forgiven.saturating_add(u32::from(forgive));
        let body = match envelope.reduced_to(rest) {
            Some(rest) => Envelope { forgiven, ..rest }.encode(&self.seal),
            None => delivery.message.body.clone(),
        };
        self.hide(delivery, &body, self.retry_delay(delivery)).await;
    }

    fn retry_delay(&self, delivery: &Delivery<Envelope>) -> Duration {
        MESSAGE.delay(delivery.message.dequeue_count, &*self.world)
    }

    /// Removes the payload of a message, if it has one. Should that fail, it is swept some day.
    async fn remove_payload(&self, delivery: &Delivery<Envelope>) {
        let name = match &delivery.content {
            Ok(envelope) => envelope.payload.clone(),
            Err(_) => envelope::claimed(&delivery.message.body).map(|claim| claim.name),
        };
        let Some(name) = name else { return };
        // Who lost the message leaves its payload to whoever has it now.
        if delivery.lease().is_none() {
            return;
        }
        if let Err(fault) = self.claims.remove(&name).await {
            warn!(queue = %self.name, "Left the payload {name} to the sweep: {}", chain(&fault));
        }
    }

    async fn hide(&self, delivery: &Delivery<Envelope>, body: &[u8], delay: Duration) {
        let Some(lease) = delivery.lease() else { return };
        match self.queue.extend(&self.name, &lease, body, delay).await {
            Ok(Held::Ours(_)) => self.back_in.lock().push(delay),
            Ok(Held::Lost) => self.meter.leases_lost.add(1),
            // It comes back when its lease ends.
            Err(fault) => warn!(queue = %self.name, "Could not give a message back: {}", chain(&fault)),
        }
    }

    async fn split(&self, delivery: &Delivery<Envelope>, rest: &[Work]) -> Result<(), StoreFault> {
        let Ok(envelope) = &delivery.content else { return Ok(()) };
        let envelope = Envelope { forgiven: 0, suspect: 0, ..envelope.unclaimed() };
        let single = |item: &Work| Envelope { items: vec![item.clone()], ..envelope.clone() };
        let envelopes: Vec<Envelope> = rest.iter().map(single).collect();
        // Side by side: the many items of a payload must be sent before the lease ends.
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

    fn away(&self, doing: &'static str, fault: &StoreFault) -> bool {
        warn!(queue = %self.name, "Failed {doing}: {}", chain(fault));
        false
    }
}
