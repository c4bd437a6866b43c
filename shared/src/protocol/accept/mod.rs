//! First half of the protocol: idempotency → store → enqueue. The second half is [`crate::posting::queued`].
//!
//! 1. **Look up the account.** Its existence and currency never change, so they are cached. The absence of an
//!    account is never cached: it may be opened at any time.
//! 2. **Insert** the transaction under its key. The insert *is* the idempotency check. Concurrent
//!    inserts are written in atomic groups, as far as the ledger allows; a key occurs once in a group.
//! 3. **Enqueue** its work, many transactions in one envelope, and **only then** confirm anything. If the
//!    transaction is still accepted, a process confirms it only after it has itself seen a confirmed send
//!    of the work: the process that inserted the row may have crashed before it sent.
//!
//! A request that waits for its outcome is posted at once if possible ([`crate::posting::waiting`]), without these
//! steps. Otherwise it takes them within the rest of its waiting time, with a nonce of its own: a commit that may still
//! happen then finds the key taken, or the insert finds the transaction posted.
//!
//! Enqueueing twice is always safe, because of the guards of the commit. So a late request that waits for the outcome
//! causes another send with its reply address.
//!
//! Work whose send was not confirmed is sent again in the background (`unsent`). Orders that a producer puts on the
//! queue directly are accepted by the worker (`direct`).

mod direct;
mod inserts;
mod pending_inserts;
mod sends;
mod unsent;
mod waiting;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use lru::LruCache;
use parking_lot::Mutex;

pub use self::direct::{Admission, OrderRefusal};
use self::inserts::{Inserts, inserts};
use self::pending_inserts::{PendingInsert, PendingInserts};
use self::sends::{ConfirmedSends, Sender, send_groups};
use self::unsent::{Sends, Unconfirmed, UnsentWork};
use crate::access::partner_cache::Standing;
use crate::cluster::completions::Completions;
use crate::domain::decision::Submission;
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::instruction::Instruction;
use crate::domain::money::Currency;
use crate::domain::origin::{Origin, TraceParent};
use crate::domain::transaction::{Outcome, TransactionStatus};
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
use crate::posting::group_commit::{Abandoned, GroupCommit, Linger};
use crate::posting::singles::Singles;
use crate::posting::waiting::{Attempted, ImmediatePoster, OpenWork, QueueReason, Route, ServedCounts};
use crate::tracer::Tracer;

/// Largest number of transactions that are sent together to one queue.
const SEND_GROUP_MAX: usize = 1000;
/// Largest number of accounts whose currency is cached.
const KNOWN_ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");

/// A transaction that is in the log. If it is not final, this process has seen a confirmed send of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// What was submitted, by the request that inserted it.
    pub submission: Submission,
    /// The final result; `None` while the status is accepted.
    pub outcome: Option<Outcome>,
    /// Whether an earlier request with the same key and the same content inserted it.
    pub replayed: bool,
}

impl Accepted {
    fn of(stored: StoredTransaction, replayed: bool) -> Self {
        let StoredTransaction { submission, outcome, .. } = stored;
        Self { submission, outcome, replayed }
    }

    /// Returns the current status.
    pub fn status(&self) -> TransactionStatus {
        TransactionStatus::of(self.outcome.as_ref())
    }
}

/// Result of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "most requests are accepted; a box would cost each an allocation"
)]
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// The log contains the transaction, inserted by this request or by an earlier one.
    Accepted(Accepted),
    /// The key exists with another content. Nothing was changed.
    KeyReused,
    /// The account does not exist. The id can be used again.
    AccountUnknown,
    /// The account is in another currency. The id can be used again.
    CurrencyMismatch {
        /// The account's currency.
        account: Currency,
    },
}

/// The request cannot be confirmed. The transaction may be stored and may be posted; repeating the request
/// with the same id is always safe.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AcceptFault {
    /// The account could not be read.
    #[error("the account could not be read")]
    Account(#[source] Arc<StoreFault>),
    /// The transaction log could not be written.
    #[error("the transaction could not be written to the log")]
    Log(#[source] Arc<StoreFault>),
    /// The work could not be put on the queue.
    #[error("the work could not be put on the queue")]
    Queue(#[source] Arc<StoreFault>),
    /// A task of this process ended without an answer.
    #[error("the request was aborted")]
    Abandoned(#[from] Abandoned),
    /// The rights on which the request was admitted may have changed. Nothing was stored by this request.
    #[error("the rights of the caller may have changed meanwhile")]
    RightsChanged,
}

impl AcceptFault {
    /// Returns whether a retry later can succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Account(fault) | Self::Log(fault) | Self::Queue(fault) => fault.is_transient(),
            Self::Abandoned(_) | Self::RightsChanged => true,
        }
    }
}

type Shared<T> = Result<T, Arc<StoreFault>>;

/// Accepts instructions, and groups concurrent requests. One per process.
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
    /// Creates an acceptor for a store. Requests that wait are posted by `immediate` if possible. The other work is
    /// distributed over `queue_count` queues by account, and remembered in `open_work`.
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

    /// Caches the currency of a new account, so that its first transaction need not read it.
    pub fn remember(&self, account: AccountKey, currency: Currency) {
        self.known.lock().put(account, currency);
    }

    /// Returns whether this process stored work, or may have, whose send is not confirmed yet.
    pub fn has_unsent_work(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns how the requests of this process were served.
    pub fn served(&self) -> &Arc<ServedCounts> {
        &self.served
    }

    /// As [`Self::submit_while`], for a caller whose rights cannot end.
    ///
    /// # Errors
    /// [`AcceptFault`] when log or queue are not available; see there.
    pub async fn submit(
        &self,
        key: TransactionKey,
        instruction: Instruction,
        origin: Origin,
        wait_time: Option<Duration>,
    ) -> Result<Acceptance, AcceptFault> {
        self.submit_while(&Standing::ALWAYS, key, instruction, origin, wait_time).await
    }

    /// Accepts an instruction, and waits for its outcome for `wait_time` if it is set. A request that waits is posted
    /// at once if possible. Nothing is stored unless the standing of the caller is current then.
    ///
    /// # Errors
    /// [`AcceptFault::RightsChanged`] if it is not: look the rights up again, and repeat the call. Otherwise
    /// [`AcceptFault`] when log or queue are not available; see there.
    pub async fn submit_while(
        &self,
        standing: &Standing,
        key: TransactionKey,
        instruction: Instruction,
        origin: Origin,
        wait_time: Option<Duration>,
    ) -> Result<Acceptance, AcceptFault> {
        let _in_progress = self.singles.begin();
        let account = key.account;
        let begin_insert = || self.pending_inserts.begin(envelope::queue_of(account, self.queue_count));
        let wait_time = wait_time.filter(|wait_time| !wait_time.is_zero());
        // Sends wait for the inserts that have begun. A request that is posted at once has none.
        let begun = wait_time.is_none().then(begin_insert);
        let Some(currency) = self.currency(account).await? else { return Ok(Acceptance::AccountUnknown) };
        if currency != instruction.amount.currency() {
            return Ok(Acceptance::CurrencyMismatch { account: currency });
        }
        let new = Submission { key, instruction, accepted_at: self.world.now(), batch_line: None, origin };
        let until = wait_time.map(|wait_time| self.world.uptime().saturating_add(wait_time));
        let reason = match self.post_at_once(&new, standing, wait_time).await {
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
        if !standing.is_current() {
            return Err(AcceptFault::RightsChanged);
        }
        self.served.add(Route::Queued(reason));
        // Registered before the work is enqueued, so that no outcome is missed.
        let waiter = until.map(|until| (self.completions.register(&new.key), until));
        let (begun, accepted_at) = (begun.unwrap_or_else(begin_insert), new.accepted_at);
        let mut acceptance = self.store_and_enqueue(new, reason, begun).await?;
        if let Acceptance::Accepted(accepted) = &mut acceptance {
            if reason.is_in_doubt() && accepted.submission.accepted_at == accepted_at {
                // The attempt at once was written, and only its result was late or lost.
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

    /// Posts a request that waits at once, within its waiting time.
    async fn post_at_once(
        &self,
        new: &Submission,
        standing: &Standing,
        wait_time: Option<Duration>,
    ) -> Attempted {
        let Some(wait_time) = wait_time else { return Err(QueueReason::NotWaiting) };
        let posted = self.immediate.post(new.clone(), standing.clone());
        match select(std::pin::pin!(posted), self.world.sleep(wait_time)).await {
            Either::Left((attempted, _)) => attempted,
            Either::Right(_) => Err(QueueReason::Late),
        }
    }

    async fn currency(&self, account: AccountKey) -> Result<Option<Currency>, AcceptFault> {
        let known = self.known.lock().get(&account).copied();
        if known.is_some() {
            return Ok(known);
        }
        let read =
            self.ledger.account(account).await.map_err(|fault| AcceptFault::Account(Arc::new(fault)))?;
        let Some(read) = read else { return Ok(None) };
        let currency = read.value.currency;
        self.remember(account, currency);
        // The cached row saves the worker of this process a read.
        self.cache.put_read(read);
        Ok(Some(currency))
    }

    async fn store_and_enqueue(
        &self,
        new: Submission,
        reason: QueueReason,
        pending_insert: PendingInsert<'_>,
    ) -> Result<Acceptance, AcceptFault> {
        let traceparent = new.origin.traceparent.clone();
        // Before the insert: from then on, no request that comes later may be posted first.
        if !self.ledger.checks_order() {
            self.open_work.begin(&new.key);
        }
        let unconfirmed = self.unsent.begin(&new.key);
        // A read costs less than an insert that fails.
        let found = if reason == QueueReason::KeyTaken { self.read(&new.key).await? } else { None };
        let outcome = match found {
            Some(stored) => AcceptOutcome::Existing(Box::new(stored)),
            None => self.insert(new.clone()).await?,
        };
        // Ended here and not after the send, because sends wait for it.
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

    /// Inserts a transaction together with concurrent ones.
    async fn insert(&self, new: Submission) -> Result<AcceptOutcome, AcceptFault> {
        let lane = inserts::lane(self.ledger.accept_grouping(), new.key.account, self.queue_count);
        self.inserts.submit(lane, new).await?.map_err(AcceptFault::Log)
    }

    async fn read(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, AcceptFault> {
        self.ledger.transaction(key).await.map_err(|fault| AcceptFault::Log(Arc::new(fault)))
    }

    /// Waits until a send of the work is confirmed to this process, with a reply address if a request in this process
    /// waits for the outcome. Returns at once when there is no work left.
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
