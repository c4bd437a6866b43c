//! Finds accepted transactions that were not posted, and enqueues their work again.
//!
//! Usually there are none: a request is confirmed only when the queue has stored its work. They remain when a process
//! crashes between log and queue and the client does not retry, and when a queue is lost. Enqueueing again is always safe.
//! It is rate limited, so that repair does not enlarge a backlog: at most once in ten minutes per transaction, then with
//! doubled delays; not behind older work in the queue (except by command) and not while the gate is held. Transactions of
//! queues that are known to be empty or deleted are exempt from these limits. Work in the dead letters is never enqueued.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;

use crate::backoff::REPAIR;
use crate::cluster::gate::{Gate, GateState};
use crate::domain::time::Timestamp;
use crate::messaging::envelope::seal::Seal;
use crate::messaging::envelope::{self, Envelope};
use crate::messaging::lost_queues::Lost;
use crate::ports::Store;
use crate::ports::archive::{Archive, UserRange};
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::{EVIDENCE, StoreFault};
use crate::ports::ledger::{Ledger, Marks, StoredTransaction};
use crate::ports::queue::{QueueName, WorkQueue};
use crate::ports::world::World;
use crate::protocol::recovery_horizon::RecoveredUntil;

/// Longest time between accepting and sending in a healthy process. A message sent within it may contain the transaction.
const SEND_TIME_MAX: Duration = Duration::from_secs(60);
/// Largest difference between the clocks of healthy processes.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(5);
/// Number of transactions in one listing request.
const LISTING_LEN: usize = 500;
/// Number of ranges of users into which a store without an index of accepted transactions is divided.
const RANGES: u16 = 64;
const RANGES_AT_ONCE: usize = 16;

/// The transactions that recovery repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryScope {
    /// Transactions that a status read would repair as well.
    Old,
    /// Also recent transactions whose queue is empty, so that no message can contain them.
    Unqueued,
    /// Also transactions behind older work in their queue, which may be a message whose payload was lost.
    All,
}

/// Result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Accepted transactions that were examined.
    pub examined: u64,
    /// Transactions whose work was enqueued again.
    pub enqueued: u64,
    /// Accepted transactions that cannot be read. Recovery does not change them.
    pub damaged: u64,
    /// All readable transactions that were accepted until this time are final, have a message of their own, or are in
    /// the dead letters. `None` until the recovery is complete.
    pub until: Option<Timestamp>,
}

/// Progress of an examination of all accepted transactions of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Examination {
    /// The result so far.
    pub recovered: Recovered,
    /// The time when the oldest examined transaction was accepted, except those in the dead letters.
    pub oldest: Option<Timestamp>,
    /// All examined transactions accepted until this time are final, have a message of their own, or are in the dead letters.
    pub until: Timestamp,
}

impl Examination {
    /// Begins an examination.
    pub const fn begin(now: Timestamp) -> Self {
        let recovered = Recovered { examined: 0, enqueued: 0, damaged: 0, until: None };
        Self { recovered, oldest: None, until: now }
    }

    fn add(&mut self, stored: &StoredTransaction, enqueued: bool) {
        let accepted_at = stored.submission.accepted_at;
        let Recovered { examined, enqueued: count, .. } = &mut self.recovered;
        *examined = examined.saturating_add(1);
        *count = count.saturating_add(u64::from(enqueued));
        if !stored.marks.dead_letter {
            self.oldest = Some(self.oldest.map_or(accepted_at, |oldest| oldest.min(accepted_at)));
        }
        // An earlier repair proves nothing: its mark is written before its message is sent.
        let has_own_message = enqueued || stored.marks.dead_letter;
        if !has_own_message {
            self.until = self.until.min(accepted_at.before(Duration::from_millis(1)));
        }
    }
}

/// The state of the gate and the queues, read once while a few transactions are examined.
#[derive(Default)]
struct Surroundings {
    is_held: Option<bool>,
    /// The time when the visible head of each queue was inserted.
    heads: BTreeMap<QueueName, Option<Timestamp>>,
}

/// Enqueues lost work again.
#[derive(Clone)]
pub struct Repair {
    ledger: Arc<dyn Ledger>,
    archive: Arc<dyn Archive>,
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
        let (ledger, archive, queue) =
            (Arc::clone(&store.ledger), Arc::clone(&store.archive), Arc::clone(&store.queue));
        let gate = Gate::new(store, &world);
        let recovered_until = RecoveredUntil::new(Arc::clone(&store.sync), Arc::clone(&world));
        Self {
            ledger,
            archive,
            queue,
            doorbell,
            gate,
            seal: seal.clone(),
            recovered_until,
            world,
            queue_count,
        }
    }

    /// Enqueues the work of a transaction again if it is due. Returns whether it was enqueued.
    ///
    /// # Errors
    /// [`StoreFault`] when ledger or queue cannot be used; the next call tries again.
    pub async fn enqueue_if_due(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        let surroundings = &mut Surroundings::default();
        Ok(self.is_due(stored, surroundings).await?
            && !self.is_behind(stored, surroundings).await?
            && self.enqueue(stored).await?)
    }

    /// Examines every accepted transaction of the store and repairs those in `scope`. Without an index of accepted
    /// transactions, it reads many ranges of users concurrently. It logs and skips transactions that cannot be read,
    /// and records the time until which all others are final or have a message of their own ([`RecoveredUntil`]).
    ///
    /// # Errors
    /// As [`Self::enqueue_if_due`]; work that was enqueued before stays enqueued.
    pub async fn recover(&self, scope: RecoveryScope) -> Result<Recovered, StoreFault> {
        let empty = match scope {
            RecoveryScope::Unqueued | RecoveryScope::All => self.empty_queues().await?,
            RecoveryScope::Old => Lost::new(),
        };
        self.recover_all((scope, &empty)).await
    }

    /// Enqueues the accepted transactions of deleted queues again, except those with a message that was sent after the
    /// deletion was noticed, so that a repetition does not send everything twice. Other transactions are repaired if a
    /// status read would repair them.
    ///
    /// # Errors
    /// As [`Self::recover`].
    pub async fn recover_deleted(&self, deleted: &Lost) -> Result<Recovered, StoreFault> {
        let used = envelope::queues(self.queue_count);
        let mut lost = deleted.clone();
        // A queue beyond the current number had work that is now distributed over the other queues.
        let unused =
            deleted.iter().filter(|(queue, _)| queue.kind() == envelope::WORK && !used.contains(queue));
        if let Some(last) = unused.map(|(_, noticed_at)| *noticed_at).max() {
            lost.extend(used.into_iter().map(|queue| (queue, last)));
        }
        let until = lost.into_iter().map(|(queue, noticed_at)| (queue, noticed_at.after(CLOCKS_DIFFER_MAX)));
        self.recover_all((RecoveryScope::Old, &until.collect())).await
    }

    async fn recover_all(&self, scope: (RecoveryScope, &Lost)) -> Result<Recovered, StoreFault> {
        let examination = Mutex::new(Examination::begin(self.world.now()));
        let count = if self.archive.has_index_of_accepted() { 1 } else { RANGES };
        let range = |range| self.recover_range(range, scope, &examination).boxed();
        let ranges: Vec<BoxFuture<'_, Result<(), StoreFault>>> =
            UserRange::divided(count).into_iter().map(range).collect();
        stream::iter(ranges).buffer_unordered(RANGES_AT_ONCE).try_collect::<()>().await?;
        let Examination { recovered, until, .. } = examination.into_inner();
        self.recovered_until.record(until).await?;
        Ok(Recovered { until: Some(until), ..recovered })
    }

    async fn recover_range(
        &self,
        range: UserRange,
        scope: (RecoveryScope, &Lost),
        examination: &Mutex<Examination>,
    ) -> Result<(), StoreFault> {
        let mut cursor: Option<String> = None;
        loop {
            let listing = self.archive.accepted(range, cursor.as_deref(), LISTING_LEN).await?;
            let mut readable = Vec::new();
            for stored in listing.items {
                match stored {
                    Ok(stored) => readable.push(stored),
                    Err(damaged) => {
                        tracing::error!(
                            target: EVIDENCE,
                            "Recovery steps over a transaction that cannot be read: {damaged}"
                        );
                        let damaged = &mut examination.lock().recovered.damaged;
                        *damaged = damaged.saturating_add(1);
                    }
                }
            }
            self.examine_in(&readable, scope, |stored, enqueued| examination.lock().add(stored, enqueued))
                .await?;
            match listing.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Examines some accepted transactions, and repairs those that a status read would repair as well.
    ///
    /// # Errors
    /// As [`Self::recover`]; some transactions may have been examined.
    pub async fn examine(
        &self,
        accepted: &[StoredTransaction],
        examination: &mut Examination,
    ) -> Result<(), StoreFault> {
        let scope = (RecoveryScope::Old, &Lost::new());
        self.examine_in(accepted, scope, |stored, enqueued| examination.add(stored, enqueued)).await
    }

    /// Records the result after all accepted transactions of the store have been examined.
    ///
    /// # Errors
    /// [`StoreFault`]; the result may have been recorded.
    pub async fn conclude(&self, examination: &Examination) -> Result<(), StoreFault> {
        self.recovered_until.record(examination.until).await
    }

    async fn examine_in(
        &self,
        accepted: &[StoredTransaction],
        (scope, lost): (RecoveryScope, &Lost),
        mut examined: impl FnMut(&StoredTransaction, bool),
    ) -> Result<(), StoreFault> {
        let mut surroundings = Surroundings::default();
        for stored in accepted {
            let lost_until = lost.get(&self.queue_of(stored));
            let is_unqueued =
                lost_until.is_some_and(|until| enqueued_at(stored) <= *until) && !stored.marks.dead_letter;
            let wanted = is_unqueued
                || (self.is_due(stored, &mut surroundings).await?
                    && (scope == RecoveryScope::All || !self.is_behind(stored, &mut surroundings).await?));
            let enqueued = wanted && self.enqueue(stored).await?;
            examined(stored, enqueued);
        }
        Ok(())
    }

    /// Returns whether enough time has passed and the gate is not held: while it is held, old work is normal.
    async fn is_due(
        &self,
        stored: &StoredTransaction,
        surroundings: &mut Surroundings,
    ) -> Result<bool, StoreFault> {
        if !is_old(stored, self.world.now()) {
            return Ok(false);
        }
        let is_held = match surroundings.is_held {
            Some(known) => known,
            None => matches!(self.gate.read().await?.state, GateState::Held { .. }),
        };
        surroundings.is_held = Some(is_held);
        Ok(!is_held)
    }

    /// Returns whether older work waits in the queue, in front of this transaction.
    async fn is_behind(
        &self,
        stored: &StoredTransaction,
        surroundings: &mut Surroundings,
    ) -> Result<bool, StoreFault> {
        let queue = self.queue_of(stored);
        let head = match surroundings.heads.get(&queue) {
            Some(known) => *known,
            None => {
                let head = self.queue.backlog(&queue).await?.head_inserted_at;
                surroundings.heads.insert(queue, head);
                head
            }
        };
        let sent_before = enqueued_at(stored).after(SEND_TIME_MAX);
        Ok(head.is_some_and(|head| head <= sent_before))
    }

    /// Returns the queues without messages. Called once, before any work is sent again.
    async fn empty_queues(&self) -> Result<Lost, StoreFault> {
        let mut empty = Lost::new();
        for queue in envelope::queues(self.queue_count) {
            if self.queue.backlog(&queue).await?.depth == 0 {
                // Clocks may have gone back, so the time of the messages does not matter.
                empty.insert(queue, Timestamp::from_unix_ms(i64::MAX));
            }
        }
        Ok(empty)
    }

    fn queue_of(&self, stored: &StoredTransaction) -> QueueName {
        envelope::queue_of(stored.submission.key.account, self.queue_count)
    }

    /// Marks the transaction before sending it, so that only one of several concurrent repairs sends it.
    async fn enqueue(&self, stored: &StoredTransaction) -> Result<bool, StoreFault> {
        let Some(mut work) = stored.work() else { return Ok(false) };
        let repairs = stored.marks.repairs.saturating_add(1);
        let marks = Marks { repairs, repaired_at: Some(self.world.now()), ..stored.marks };
        let Some(revision) = self.ledger.mark(&work.submission.key, &work.row, marks).await? else {
            return Ok(false);
        };
        let key = work.submission.key.clone();
        work.row = revision.clone();
        let queue = self.queue_of(stored);
        self.seal.ready(&*self.world).await;
        let body = Envelope::of(vec![work]).encode(&self.seal);
        let sent = self.queue.send(&queue, &body, Duration::ZERO).await;
        // Ring after a fault, too: the message may have arrived.
        self.doorbell.ring(&queue);
        if let Err(fault) = sent {
            // The send is not confirmed, so the next repair must not be delayed. If this write fails too, it is delayed.
            let _unmarked = self.ledger.mark(&key, &revision, stored.marks).await;
            return Err(fault);
        }
        tracing::warn!(transaction = %key, "Enqueued lost work again: {key}");
        Ok(true)
    }
}

/// Returns whether enough time has passed since the transaction was accepted or last repaired.
fn is_old(stored: &StoredTransaction, now: Timestamp) -> bool {
    let Marks { dead_letter, repairs, repaired_at: _ } = stored.marks;
    let delay = REPAIR.delay_max(repairs.saturating_add(1));
    !dead_letter && stored.outcome.is_none() && now.since(enqueued_at(stored)) >= delay
}

/// Returns the time when the work was last enqueued, according to the row.
fn enqueued_at(stored: &StoredTransaction) -> Timestamp {
    stored.marks.repaired_at.unwrap_or(stored.submission.accepted_at)
}
