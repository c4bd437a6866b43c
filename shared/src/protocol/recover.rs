//! Finds accepted transactions that were not posted, and enqueues their work again.
//!
//! Usually there are none: a request is confirmed only when the queue has stored its work. Such transactions come
//! from processes that crashed between log and queue while the client did not retry, and from queues that were
//! lost. Enqueueing again is always safe. It is rate limited, so that repair does not make a backlog larger: at most
//! once in ten minutes per transaction, then with doubled delays; never while older work waits in front or the gate
//! is held; and never for work in the dead letters.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::REPAIR;
use crate::cluster::gate::{Gate, GateState};
use crate::domain::time::Timestamp;
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, Envelope};
use crate::ports::Store;
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Ledger, Marks, StoredTransaction, TransactionLog};
use crate::ports::queue::{QueueName, WorkQueue};
use crate::ports::world::World;
use crate::protocol::recovered::RecoveredUntil;

/// Longest time between accepting and sending in a healthy process: a message that was sent within it
/// may contain the transaction.
const SEND_TIME_MAX: Duration = Duration::from_secs(60);
/// Number of transactions in one listing request to the log.
const LISTING_LEN: usize = 500;

/// The transactions that recovery repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryScope {
    /// Transactions that a status read would repair as well.
    Old,
    /// Also recent transactions if their queue is empty, so that no message can contain them.
    Unqueued,
}

/// Result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Accepted transactions that were examined.
    pub examined: u64,
    /// Transactions whose work was enqueued again.
    pub enqueued: u64,
}

/// Enqueues lost work again.
#[derive(Clone)]
pub struct Repair {
    ledger: Arc<dyn Ledger>,
    log: Arc<dyn TransactionLog>,
    queue: Arc<dyn WorkQueue>,
    doorbell: Arc<dyn Doorbell>,
    gate: Gate,
    seal: Seal,
    recovered_until: RecoveredUntil,
    world: Arc<dyn World>,
    queue_count: u16,
}

impl Repair {
    /// Creates the repair of a store.
    pub fn new(
        store: &Store,
        seal: &Seal,
        world: Arc<dyn World>,
        doorbell: Arc<dyn Doorbell>,
        queue_count: u16,
    ) -> Self {
        let (ledger, log, queue) =
            (Arc::clone(&store.ledger), Arc::clone(&store.log), Arc::clone(&store.queue));
        let gate = Gate::new(store, &world);
        let recovered_until = RecoveredUntil::new(Arc::clone(&store.sync), Arc::clone(&world));
        Self { ledger, log, queue, doorbell, gate, seal: seal.clone(), recovered_until, world, queue_count }
    }

    /// Enqueues the work of a transaction again if it is due. Returns whether it did.
    ///
    /// # Errors
    /// [`StoreFault`] when log or queue cannot be used; the next call tries again.
    pub async fn enqueue_if_due(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        if !is_due(stored, self.world.now()) || self.is_held().await? || self.is_behind(stored).await? {
            return Ok(false);
        }
        self.enqueue(stored).await
    }

    /// Examines every accepted transaction of the store, and repairs those in `scope`. Records until when all of them
    /// are final or have a message of their own ([`RecoveredUntil`]).
    ///
    /// # Errors
    /// [`StoreFault`] as above; work that was enqueued before stays enqueued.
    pub async fn recover(&self, scope: RecoveryScope) -> Result<Recovered, StoreFault> {
        let mut until = self.world.now();
        let empty = match scope {
            RecoveryScope::Unqueued => self.empty_queues().await?,
            RecoveryScope::Old => BTreeSet::new(),
        };
        let mut recovered = Recovered::default();
        let mut cursor: Option<String> = None;
        loop {
            let listing = self.log.accepted(cursor.as_deref(), LISTING_LEN).await?;
            for stored in &listing.items {
                recovered.examined = recovered.examined.saturating_add(1);
                let unqueued = empty.contains(&self.queue_of(stored)) && !stored.marks.dead_letter;
                let enqueued =
                    if unqueued { self.enqueue(stored).await? } else { self.enqueue_if_due(stored).await? };
                recovered.enqueued = recovered.enqueued.saturating_add(u64::from(enqueued));
                let has_own_message = enqueued || stored.marks.repairs > 0 || stored.marks.dead_letter;
                if !has_own_message {
                    until = until.min(stored.transaction.accepted_at.before(Duration::from_millis(1)));
                }
            }
            match listing.next {
                Some(next) => cursor = Some(next),
                None => {
                    self.recovered_until.record(until).await?;
                    return Ok(recovered);
                }
            }
        }
    }

    /// Returns whether the gate is held: then nothing is posted, and old work is normal.
    async fn is_held(&self) -> Result<bool, StoreFault> {
        Ok(matches!(self.gate.read().await?.state, GateState::Held { .. }))
    }

    /// Returns whether older work waits in the queue, in front of this transaction.
    async fn is_behind(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        let head = self.queue.backlog(&self.queue_of(stored)).await?.head_inserted_at;
        let sent_before = enqueued_at(stored).after(SEND_TIME_MAX);
        Ok(head.is_some_and(|head| head <= sent_before))
    }

    /// Returns the queues without messages. Called once, before any work is sent again.
    async fn empty_queues(&self) -> Result<BTreeSet<QueueName>, StoreFault> {
        let mut empty = BTreeSet::new();
        for queue in envelope::queues(self.queue_count) {
            if self.queue.backlog(&queue).await?.depth == 0 {
                empty.insert(queue);
            }
        }
        Ok(empty)
    }

    fn queue_of(&self, stored: &StoredTransaction) -> QueueName {
        envelope::queue_of(stored.transaction.key.account, self.queue_count)
    }

    /// Marks the transaction first, so that only one of several concurrent repairs sends it.
    async fn enqueue(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        let Some(mut work) = stored.work() else { return Ok(false) };
        let repairs = stored.marks.repairs.saturating_add(1);
        let marks = Marks { repairs, repaired_at: Some(self.world.now()), ..stored.marks };
        let Some(revision) = self.ledger.mark(&work.key, &work.revision, marks).await? else {
            return Ok(false);
        };
        let key = work.key.clone();
        work.revision = revision.clone();
        let queue = self.queue_of(stored);
        self.seal.ready(&*self.world).await;
        let body = Envelope::of(vec![work], None).encode(&self.seal);
        let sent = self.queue.send(&queue, &body, Duration::ZERO).await;
        // Also after a fault: the message may have arrived.
        self.doorbell.ring(&queue);
        if let Err(fault) = sent {
            // It was not sent, so the next repair must not be delayed. If this write fails too, it is delayed.
            let _unmarked = self.ledger.mark(&key, &revision, stored.marks).await;
            return Err(fault);
        }
        tracing::warn!(transaction = %key, "Enqueued lost work again: {key}");
        Ok(true)
    }
}

/// Returns whether enough time has passed since the transaction was accepted or last repaired.
fn is_due(stored: &StoredTransaction, now: Timestamp) -> bool {
    let Marks { dead_letter, repairs, repaired_at: _ } = stored.marks;
    let delay = REPAIR.delay_max(repairs.saturating_add(1));
    !dead_letter && stored.transaction.outcome.is_none() && now.since(enqueued_at(stored)) >= delay
}

/// Returns when its work was last enqueued, according to its row.
fn enqueued_at(stored: &StoredTransaction) -> Timestamp {
    stored.marks.repaired_at.unwrap_or(stored.transaction.accepted_at)
}
