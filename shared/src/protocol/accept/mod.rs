//! First half of the protocol: idempotency → store → enqueue. The second half is [`crate::posting::queued`].
//!
//! 1. **Look up the account.** Its existence and currency never change, so they are cached. The absence of an account
//!    is never cached: it may be opened at any time.
//! 2. **Insert** the transaction under its key. The insert *is* the idempotency check. Concurrent inserts are written
//!    in atomic groups, as far as the ledger allows; a key occurs once in a group.
//! 3. **Enqueue** its work, many transactions in one envelope, and **only then** confirm the request. While the
//!    transaction is not final, a process confirms it only after it has itself seen a confirmed send of the work: the
//!    process that inserted the row may have crashed before it sent.
//!
//! A request that waits for its outcome is posted at once if possible ([`crate::posting::waiting`]), without these
//! steps. Otherwise it takes them within the rest of its waiting time, with a new nonce. If the commit of the first
//! attempt still happens, either it finds the key taken, or the insert finds the transaction posted.
//!
//! Enqueueing twice is always safe, because of the guards of the commit. A repeated request that waits for the outcome
//! therefore causes another send, with its reply address.
//!
//! Work whose send was not confirmed is sent again in the background (`unsent_work`). Orders that a producer puts on an ingest
//! queue are accepted in the same way (`direct`).

mod answers;
mod direct;
mod inserts;
mod pending_inserts;
mod sends;
mod unsent_work;
mod waiting;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use lru::LruCache;
use parking_lot::Mutex;

pub use self::answers::{AcceptFault, Acceptance, Accepted};
pub use self::direct::OrderError;
use self::inserts::{Inserts, inserts};
use self::pending_inserts::{PendingInsert, PendingInserts};
use self::sends::{ConfirmedSends, Sender, send_groups};
use self::unsent_work::{Sends, Unconfirmed, UnsentWork};
use crate::access::partner_cache::{Rights, Standing};
use crate::cluster::completions::Completions;
use crate::domain::decision::Submission;
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::instruction::Instruction;
use crate::domain::money::Currency;
use crate::domain::origin::{Origin, RequestId, TraceParent};
use crate::domain::time::Timestamp;
use crate::messaging::dispatch::Dispatch;
use crate::messaging::envelope;
use crate::messaging::envelope::seal::Seal;
use crate::messaging::queue_count::UsedQueues;
use crate::ports::Store;
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{AcceptOutcome, Ledger, StoredTransaction};
use crate::ports::queue::QueueName;
use crate::ports::world::World;
use crate::posting::account_cache::AccountCache;
use crate::posting::commit_permits::Singles;
use crate::posting::group_commit::{GroupCommit, Linger};
use crate::posting::waiting::{Attempted, ImmediatePoster, OpenWork, QueueReason, Route, ServedCounts};
use crate::tracer::Tracer;

/// Largest number of transactions that are sent together to one queue.
const SEND_GROUP_MAX: usize = 1000;
/// Largest number of attempts to write. Before each further attempt, the rights are confirmed.
const CONFIRMATIONS_MAX: u32 = 3;
/// Largest number of accounts whose currency is cached.
const KNOWN_ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

type Shared<T> = Result<T, Arc<StoreFault>>;

/// Accepts instructions and groups concurrent requests. A process has one.
pub struct Acceptor {
    ledger: Arc<dyn Ledger>,
    world: Arc<dyn World>,
    completions: Arc<Completions>,
    cache: Arc<AccountCache>,
    immediate: Arc<ImmediatePoster>,
    open_work: Arc<OpenWork>,
    singles: Arc<Singles>,
    served: Arc<ServedCounts>,
    queue_count: u16,
    known: Mutex<LruCache<AccountKey, Currency>>,
    inserts: Inserts,
    sends: Arc<Sends>,
    unsent: UnsentWork,
    pending_inserts: Arc<PendingInserts>,
    confirmed: Arc<ConfirmedSends>,
}

impl Acceptor {
    /// Creates an acceptor for a store. Waiting requests are posted by `immediate` if possible. All other work is
    /// distributed over `queue_count` queues by account and recorded in `open_work`.
    #[expect(clippy::too_many_arguments, reason = "called once, by the bank, which knows all parts")]
    pub fn new(
        store: &Store,
        seal: &Seal,
        world: Arc<dyn World>,
        doorbell: Arc<dyn Doorbell>,
        completions: Arc<Completions>,
        cache: Arc<AccountCache>,
        (immediate, open_work, singles): (Arc<ImmediatePoster>, Arc<OpenWork>, Arc<Singles>),
        (queue_count, used_queues): (u16, Arc<UsedQueues>),
        tracer: &Arc<Tracer>,
    ) -> Self {
        let confirmed = Arc::new(ConfirmedSends::new(Arc::clone(&completions)));
        let inserts = inserts(
            &world,
            Arc::clone(&store.ledger),
            Arc::clone(&completions),
            Arc::clone(&confirmed),
            Arc::clone(&doorbell),
            used_queues,
            Arc::clone(tracer),
        );
        let sender = Sender {
            dispatch: Dispatch::new(store, seal, Arc::clone(&world)),
            doorbell,
            confirmed: Arc::clone(&confirmed),
            tracer: Arc::clone(tracer),
        };
        let send = send_groups(Arc::new(sender));
        let pending_inserts = Arc::new(PendingInserts::new(Arc::clone(&world)));
        let awaited_inserts = Arc::clone(&pending_inserts);
        let linger: Linger<QueueName> = Arc::new(move |queue| {
            let pending_inserts = Arc::clone(&awaited_inserts);
            async move { pending_inserts.wait_for_current(&queue).await }.boxed()
        });
        let sends = GroupCommit::new(Arc::clone(&world), SEND_GROUP_MAX, send).with_linger(linger);
        let (sends, ledger, time) = (Arc::new(sends), Arc::clone(&store.ledger), Arc::clone(&world));
        Self {
            unsent: UnsentWork::new(ledger, Arc::clone(&sends), time, queue_count),
            ledger: Arc::clone(&store.ledger),
            completions,
            cache,
            immediate,
            open_work,
            singles,
            served: Arc::default(),
            queue_count,
            known: Mutex::new(LruCache::new(KNOWN_ACCOUNTS_MAX)),
            inserts,
            sends,
            pending_inserts,
            confirmed,
            world,
        }
    }

    /// Caches the currency of a new account, so that its first transaction does not read it.
    pub fn remember(&self, account: AccountKey, currency: Currency) {
        self.known.lock().put(account, currency);
    }

    /// Returns whether this process has stored work, or may have, whose send is not confirmed yet.
    pub fn has_unsent_work(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the counts of requests by the route on which they were served.
    pub fn served(&self) -> &Arc<ServedCounts> {
        &self.served
    }

    /// As [`Self::submit_while`], for a caller whose rights cannot end.
    ///
    /// # Errors
    /// [`AcceptFault`] when log or queue are not available.
    pub async fn submit(
        &self,
        key: TransactionKey,
        instruction: Instruction,
        origin: Origin,
        wait_time: Option<Duration>,
    ) -> Result<Acceptance, AcceptFault> {
        let mut always = Standing::ALWAYS;
        self.submit_while(&mut always, key, instruction, origin, wait_time).await
    }

    /// Accepts an instruction and waits for its outcome for `wait_time`, if set. A waiting request is posted at once if
    /// possible. Nothing is stored unless the rights of the caller are current, so they are confirmed after a wait if necessary.
    ///
    /// # Errors
    /// [`AcceptFault`] when the rights have ended, or log or queue are not available.
    pub async fn submit_while<R: Rights>(
        &self,
        rights: &mut R,
        key: TransactionKey,
        instruction: Instruction,
        origin: Origin,
        wait_time: Option<Duration>,
    ) -> Result<Acceptance, AcceptFault> {
        let _in_progress = self.singles.begin();
        let account = key.account;
        let begin_insert = || self.pending_inserts.begin(envelope::queue_of(account, self.queue_count));
        let wait_time = wait_time.filter(|wait_time| !wait_time.is_zero());
        // A send waits for the inserts in progress. A request that is posted at once does not insert.
        let begun = wait_time.is_none().then(begin_insert);
        let Some(currency) = self.currency(account).await? else { return Ok(Acceptance::AccountUnknown) };
        if currency != instruction.amount.currency() {
            return Ok(Acceptance::CurrencyMismatch { account: currency });
        }
        let new = Submission { key, instruction, accepted_at: self.world.now(), batch_line: None, origin };
        let until = wait_time.map(|wait_time| self.world.uptime().saturating_add(wait_time));
        let reason = match self.post_at_once(&new, rights, until).await? {
            Ok(outcome) => {
                self.served.add(Route::Immediate);
                self.served.accept(1);
                return Ok(Acceptance::Accepted(Accepted {
                    submission: new,
                    outcome: Some(outcome),
                    replayed: false,
                }));
            }
            Err(reason) => reason,
        };
        confirm(rights, reason.is_in_doubt()).await?;
        self.served.add(Route::Queued(reason));
        // Registered before the work is enqueued, so that no outcome is missed.
        let waiter = until.map(|until| (self.completions.register(&new.key), until));
        let begun = begun.unwrap_or_else(begin_insert);
        let attempted = reason.is_in_doubt().then(|| identity(&new));
        let mut acceptance = self.store_and_enqueue(new, rights, reason, begun).await?;
        if let Acceptance::Accepted(accepted) = &mut acceptance {
            if attempted.is_some_and(|attempted| attempted == identity(&accepted.submission)) {
                // The immediate attempt was written; only its result was late or lost.
                accepted.replayed = false;
            }
            self.served.accept(u64::from(!accepted.replayed));
            if let Some((waiter, until)) = waiter
                && accepted.outcome.is_none()
            {
                accepted.outcome = self.await_outcome(&accepted.submission.key, waiter, until).await;
            }
            if accepted.outcome.is_some() {
                self.open_work.end(&accepted.submission.key);
            }
        }
        Ok(acceptance)
    }

    /// Posts a waiting request at once, within its waiting time. Confirms its rights if they changed before the commit.
    ///
    /// # Errors
    /// [`AcceptFault::RightsChanged`]: nothing was stored.
    async fn post_at_once<R: Rights>(
        &self,
        new: &Submission,
        rights: &mut R,
        until: Option<Duration>,
    ) -> Result<Attempted, AcceptFault> {
        let Some(until) = until else { return Ok(Err(QueueReason::NotWaiting)) };
        for _ in 0..CONFIRMATIONS_MAX {
            let posted = self.immediate.post(new.clone(), rights.standing().clone());
            let wait_time = self.world.sleep(until.saturating_sub(self.world.uptime()));
            let attempted = match select(std::pin::pin!(posted), wait_time).await {
                Either::Left((attempted, _)) => attempted,
                Either::Right(_) => Err(QueueReason::Late),
            };
            // On a slow store, the rights could be outdated before every attempt ends. The queue has no such limit.
            if attempted != Err(QueueReason::RightsChanged) || rights.standing().is_late() {
                return Ok(attempted);
            }
            confirm(rights, false).await?;
        }
        Ok(Err(QueueReason::RightsChanged))
    }

    /// Returns the currency of an account, or `None` if it does not exist. The currency of an account never changes, so it is
    /// cached; that an account does not exist is not.
    ///
    /// # Errors
    /// [`AcceptFault`] when the account cannot be read.
    pub async fn currency(&self, account: AccountKey) -> Result<Option<Currency>, AcceptFault> {
        let known = self.known.lock().get(&account).copied();
        if known.is_some() {
            return Ok(known);
        }
        let read =
            self.ledger.account(account).await.map_err(|fault| AcceptFault::Account(Arc::new(fault)))?;
        let Some(read) = read else { return Ok(None) };
        let currency = read.value.currency;
        self.remember(account, currency);
        // The cached row saves a read of the worker in this process.
        self.cache.put_read(read);
        Ok(Some(currency))
    }

    async fn store_and_enqueue<R: Rights>(
        &self,
        new: Submission,
        rights: &mut R,
        reason: QueueReason,
        pending_insert: PendingInsert<'_>,
    ) -> Result<Acceptance, AcceptFault> {
        let traceparent = new.origin.traceparent.clone();
        // Before the insert: from now on, no later request may be posted first.
        let is_first = !self.ledger.checks_order() && self.open_work.begin(&new.key);
        let unconfirmed = self.unsent.begin(&new.key);
        // A read costs less than a failed insert.
        let found = if reason == QueueReason::KeyTaken { self.read(&new.key).await? } else { None };
        let outcome = match found {
            Some(stored) => AcceptOutcome::Existing(Box::new(stored)),
            None => match self.insert(new.clone(), rights, reason.is_in_doubt()).await {
                Err(fault @ AcceptFault::RightsChanged { is_in_doubt: false }) => {
                    // Nothing was stored, so nothing is open.
                    unconfirmed.into_iter().for_each(Unconfirmed::end);
                    if is_first {
                        self.open_work.end(&new.key);
                    }
                    return Err(fault);
                }
                inserted => inserted?,
            },
        };
        // Ended before the send, which waits for pending inserts.
        drop(pending_insert);
        let acceptance = match outcome {
            AcceptOutcome::Inserted { revision, enqueued } => {
                let stored = StoredTransaction::inserted(new, revision, None);
                if !enqueued {
                    self.enqueue(&stored, traceparent).await?;
                }
                Acceptance::Accepted(Accepted::of(stored, false))
            }
            AcceptOutcome::Existing(stored) if !new.instruction.matches(&stored.fingerprint) => {
                if stored.outcome.is_some() {
                    self.open_work.end(&new.key);
                }
                Acceptance::KeyReused
            }
            AcceptOutcome::Existing(stored) => {
                self.enqueue(&stored, traceparent).await?;
                Acceptance::Accepted(Accepted::of(*stored, true))
            }
        };
        unconfirmed.into_iter().for_each(Unconfirmed::end);
        Ok(acceptance)
    }

    /// Inserts a transaction in a group with concurrent ones.
    async fn insert<R: Rights>(
        &self,
        new: Submission,
        rights: &mut R,
        is_in_doubt: bool,
    ) -> Result<AcceptOutcome, AcceptFault> {
        let partition = inserts::partition(self.ledger.accept_grouping(), new.key.account, self.queue_count);
        for _ in 0..CONFIRMATIONS_MAX {
            let admitted = (new.clone(), rights.standing().clone());
            if let Some(outcome) = self.inserts.submit(partition.clone(), admitted).await? {
                return outcome.map_err(AcceptFault::Log);
            }
            confirm(rights, is_in_doubt).await?;
        }
        Err(AcceptFault::RightsChanged { is_in_doubt })
    }

    async fn read(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, AcceptFault> {
        self.ledger.transaction(key).await.map_err(|fault| AcceptFault::Log(Arc::new(fault)))
    }

    /// Waits until this process has seen a confirmed send of the work, with a reply address if a request in this
    /// process waits for the outcome. Returns at once if the transaction is final.
    async fn enqueue(
        &self,
        stored: &StoredTransaction,
        traceparent: Option<TraceParent>,
    ) -> Result<(), AcceptFault> {
        let Some(mut work) = stored.work() else { return Ok(()) };
        work.submission.origin.traceparent = traceparent;
        if !self.confirmed.needs_send(&work.submission.key) {
            return Ok(());
        }
        let queue = envelope::queue_of(work.submission.key.account, self.queue_count);
        self.sends.submit(queue, work).await?.map_err(AcceptFault::Queue)
    }
}

/// Returns the properties that distinguish the submissions of one transaction.
fn identity(submission: &Submission) -> (Timestamp, Option<RequestId>) {
    (submission.accepted_at, submission.origin.request_id.clone())
}

/// Confirms the rights unless they are current.
///
/// # Errors
/// [`AcceptFault::RightsChanged`] if they have ended or cannot be read.
async fn confirm<R: Rights>(rights: &mut R, is_in_doubt: bool) -> Result<(), AcceptFault> {
    if rights.standing().is_current() || rights.confirm().await {
        return Ok(());
    }
    Err(AcceptFault::RightsChanged { is_in_doubt })
}
