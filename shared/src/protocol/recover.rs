//! Finds accepted transactions that nobody posted, and enqueues their work again.
//!
//! In a healthy bank there are none: work is promised only when the queue holds it. They come from
//! requests whose process died between the log and the queue and whose client never came back, and
//! from queues that were lost. Enqueueing again is always safe; it is rare by rule, so that a
//! backlog does not grow by its own repair: at most once in ten minutes for a transaction, doubling,
//! never while older work waits in front of it or the gate is held, and never for what lies in the
//! dead letters.

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

/// Longest time from accepting to sending in a healthy process: a message that was sent within it
/// may be the transaction's own.
const SEND_TIME_MAX: Duration = Duration::from_secs(60);
/// Transactions that are read at once from the log.
const LISTING_LEN: usize = 500;

/// Which transactions recovery takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryScope {
    /// Those that a status read would repair as well.
    Old,
    /// Those too that are young, where their queue is empty: nothing can be on its way then.
    Unqueued,
}

/// What recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Accepted transactions that were looked at.
    pub looked_at: u64,
    /// Those whose work was enqueued again.
    pub enqueued: u64,
}

/// Enqueues work again that was forgotten.
#[derive(Clone)]
pub struct Repair {
    ledger: Arc<dyn Ledger>,
    log: Arc<dyn TransactionLog>,
    queue: Arc<dyn WorkQueue>,
    doorbell: Arc<dyn Doorbell>,
    gate: Gate,
    seal: Seal,
    world: Arc<dyn World>,
    queue_count: u16,
}

impl Repair {
    /// Repair over a store.
    pub fn new(
        store: &Store,
        seal: &Seal,
        world: Arc<dyn World>,
        doorbell: Arc<dyn Doorbell>,
        queue_count: u16,
    ) -> Self {
        let (ledger, log, queue) =
            (Arc::clone(&store.ledger), Arc::clone(&store.log), Arc::clone(&store.queue));
        let gate = Gate::new(Arc::clone(&store.sync), Arc::clone(&world));
        Self { ledger, log, queue, doorbell, gate, seal: seal.clone(), world, queue_count }
    }

    /// Enqueues the work of a transaction again if it is due. True when it did.
    ///
    /// # Errors
    /// [`StoreFault`] when log or queue cannot be used; the next look tries again.
    pub async fn consider(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        if !is_due(stored, self.world.now()) || self.is_held().await? || self.is_behind(stored).await? {
            return Ok(false);
        }
        self.enqueue(stored).await
    }

    /// Looks at every accepted transaction of the store.
    ///
    /// # Errors
    /// [`StoreFault`] as above; what was enqueued until then stays so.
    pub async fn recover(&self, scope: RecoveryScope) -> Result<Recovered, StoreFault> {
        let empty = match scope {
            RecoveryScope::Unqueued => self.empty_queues().await?,
            RecoveryScope::Old => BTreeSet::new(),
        };
        let mut recovered = Recovered::default();
        let mut cursor: Option<String> = None;
        loop {
            let listing = self.log.accepted(cursor.as_deref(), LISTING_LEN).await?;
            for stored in &listing.items {
                recovered.looked_at = recovered.looked_at.saturating_add(1);
                let unqueued = empty.contains(&self.queue_of(stored)) && !stored.marks.dead_letter;
                let enqueued =
                    if unqueued { self.enqueue(stored).await? } else { self.consider(stored).await? };
                recovered.enqueued = recovered.enqueued.saturating_add(u64::from(enqueued));
            }
            match listing.next {
                Some(next) => cursor = Some(next),
                None => return Ok(recovered),
            }
        }
    }

    /// Whether the gate is held: then nothing posts, and work has every reason to be old.
    async fn is_held(&self) -> Result<bool, StoreFault> {
        Ok(matches!(self.gate.read().await?.state, GateState::Held { .. }))
    }

    /// Whether the queue shows work that is older: then this one's turn may simply not have come.
    async fn is_behind(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        let head = self.queue.backlog(&self.queue_of(stored)).await?.head_inserted_at;
        let sent_before = enqueued_at(stored).after(SEND_TIME_MAX);
        Ok(head.is_some_and(|head| head <= sent_before))
    }

    /// The queues in which nothing waits. Asked once, before the first work is sent again.
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

    /// Marks first, so that of many who look at once only one sends.
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
        if let Err(fault) = self.queue.send(&queue, &body, Duration::ZERO).await {
            // It was not sent, so it must not wait for its next turn. If this fails too, it waits.
            let _unmarked = self.ledger.mark(&key, &revision, stored.marks).await;
            return Err(fault);
        }
        tracing::warn!(transaction = %key, "Enqueued forgotten work again: {key}");
        self.doorbell.ring(&queue);
        Ok(true)
    }
}

/// Whether enough time has passed since the transaction was accepted or last repaired.
fn is_due(stored: &StoredTransaction, now: Timestamp) -> bool {
    let Marks { dead_letter, repairs, repaired_at: _ } = stored.marks;
    let delay = REPAIR.delay_max(repairs.saturating_add(1));
    !dead_letter && stored.transaction.outcome.is_none() && now.since(enqueued_at(stored)) >= delay
}

/// When its work was enqueued last, as far as its row tells.
fn enqueued_at(stored: &StoredTransaction) -> Timestamp {
    stored.marks.repaired_at.unwrap_or(stored.transaction.accepted_at)
}
