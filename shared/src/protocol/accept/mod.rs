//! Half one of the protocol: idempotency → store → enqueue. The other half is [`crate::protocol::post`].
//!
//! 1. **Know the account.** Its existence and currency never change, so they are cached. That an
//!    account is unknown is never cached: it may be opened the next moment.
//! 2. **Insert** the transaction under its key. The insert *is* the idempotency check. Concurrent
//!    inserts within the ledger's reach go in atomic groups, in each of which a key stands once.
//! 3. **Enqueue** its work, many pieces in one envelope, and **only then** promise anything. Work
//!    that is still accepted is promised only by a process that has itself seen a send of it
//!    confirmed: the process that inserted the row may have died before it sent.
//!
//! Enqueueing twice is always safe; the commit's guards see to that. So work is sent again also for a
//! request that waits and comes late: the new envelope says where to reply to.
//!
//! What a producer puts on the queue by itself is accepted there, by the worker (`direct`).

mod direct;
mod inserts;
mod sends;
mod underway;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use lru::LruCache;

use crate::cluster::completions::{CompletionEvent, Completions, Waiter};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::instruction::Instruction;
use crate::domain::money::Currency;
use crate::domain::transaction::Transaction;
use crate::messaging::dispatch::Dispatch;
use crate::messaging::envelope;
use crate::messaging::envelope::seal::Seal;
use crate::ports::Store;
use crate::ports::doorbell::Doorbell;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{AcceptOutcome, Ledger, Marks, NewTransaction, StoredTransaction};
use crate::ports::queue::QueueName;
use crate::ports::world::{World, WorldExt as _};
use crate::protocol::account_cache::AccountCache;
use crate::protocol::group_commit::{Abandoned, Gather, GroupCommit};

/// Most pieces of work that one round of sends takes from a queue's lane.
const SEND_GROUP_MAX: usize = 1000;
/// Accounts whose currency is remembered.
const KNOWN_ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// How often a waiting request reads the row before its patience has ended, however often it is hinted that
/// the transaction is final: hints prove nothing, and anybody may send them.
const EARLY_LOOKS_MAX: u32 = 3;
/// How long a look at the row may take.
const LOOK_TIME_MAX: Duration = Duration::from_millis(500);

/// What became of a request.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// First time that this key was seen. Log and queue hold it.
    Accepted(Transaction),
    /// Same key, same content: the transaction as it now is. If it is still accepted, a send of its
    /// work was confirmed to this process.
    Replayed(Transaction),
    /// Same key, other content. Nothing was changed.
    KeyReused,
    /// There is no such account. The id is not used up.
    AccountUnknown,
    /// The account is in another currency. The id is not used up.
    CurrencyMismatch {
        /// The account's currency.
        account: Currency,
    },
}

/// The promise could not be made. The transaction may be stored, and may even post; asking again
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
    /// The process is in trouble.
    #[error("the request was given up")]
    Abandoned(#[from] Abandoned),
}

pub use direct::{Admission, Refusal};

impl AcceptFault {
    /// Whether trying again later can help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Account(fault) | Self::Log(fault) | Self::Queue(fault) => fault.is_transient(),
            Self::Abandoned(_) => true,
        }
    }
}

use inserts::{Inserts, inserts};
use sends::{ConfirmedSends, Parcel, Sending, send_groups};
use underway::{Insert, Underway};

type Shared<T> = Result<T, Arc<StoreFault>>;

/// Accepts instructions. One per process: it is where concurrent requests meet.
pub struct Acceptor {
    ledger: Arc<dyn Ledger>,
    world: Arc<dyn World>,
    completions: Arc<Completions>,
    cache: Arc<AccountCache>,
    queue_count: u16,
    known: Mutex<LruCache<AccountKey, Currency>>,
    inserts: Inserts,
    sends: GroupCommit<QueueName, Parcel, Shared<()>>,
    underway: Arc<Underway>,
    confirmed: Arc<ConfirmedSends>,
}

impl Acceptor {
    /// An acceptor over a store. `queue_count` queues share the work by account.
    pub fn new(
        store: &Store,
        seal: &Seal,
        world: Arc<dyn World>,
        doorbell: Arc<dyn Doorbell>,
        completions: Arc<Completions>,
        cache: Arc<AccountCache>,
        queue_count: u16,
    ) -> Self {
        let confirmed = Arc::new(ConfirmedSends::new(Arc::clone(&completions)));
        let inserts = inserts(
            &world,
            Arc::clone(&store.ledger),
            Arc::clone(&completions),
            Arc::clone(&confirmed),
            Arc::clone(&doorbell),
        );
        let sending = Sending {
            dispatch: Dispatch::new(store, seal, Arc::clone(&world)),
            doorbell,
            confirmed: Arc::clone(&confirmed),
        };
        let send = send_groups(Arc::new(sending));
        let underway = Arc::new(Underway::new(Arc::clone(&world)));
        let inserts_underway = Arc::clone(&underway);
        let gather: Gather<QueueName> = Arc::new(move |queue| {
            let underway = Arc::clone(&inserts_underway);
            async move { underway.settled(&queue).await }.boxed()
        });
        Self {
            ledger: Arc::clone(&store.ledger),
            completions,
            cache,
            queue_count,
            known: Mutex::new(LruCache::new(KNOWN_ACCOUNTS_MAX)),
            inserts,
            sends: GroupCommit::new(Arc::clone(&world), SEND_GROUP_MAX, send).gathering(gather),
            underway,
            confirmed,
            world,
        }
    }

    /// Remembers that an account exists, so that its first transaction need not ask.
    pub fn remember(&self, account: AccountKey, currency: Currency) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).put(account, currency);
    }

    /// Accepts an instruction, and with `patience` waits that long for its outcome.
    ///
    /// # Errors
    /// [`AcceptFault`] when log or queue could not be reached; see there.
    pub async fn submit(
        &self,
        key: TransactionKey,
        instruction: Instruction,
        traceparent: Option<String>,
        patience: Option<Duration>,
    ) -> Result<Acceptance, AcceptFault> {
        let underway = self.underway.begin(envelope::queue_of(key.account, self.queue_count));
        let Some(currency) = self.currency(key.account).await? else { return Ok(Acceptance::AccountUnknown) };
        if currency != instruction.amount.currency() {
            return Ok(Acceptance::CurrencyMismatch { account: currency });
        }
        // Before the work is enqueued: whatever is announced from now on is heard.
        let waiter = patience.map(|patience| (self.completions.register(&key), patience));
        let acceptance = self.store_and_enqueue(key, instruction, traceparent, underway).await?;
        let (transaction, first): (Transaction, bool) = match acceptance {
            Acceptance::Accepted(transaction) => (transaction, true),
            Acceptance::Replayed(transaction) => (transaction, false),
            refused @ (Acceptance::KeyReused
            | Acceptance::AccountUnknown
            | Acceptance::CurrencyMismatch { .. }) => return Ok(refused),
        };
        let transaction = match waiter {
            Some((waiter, patience)) if transaction.outcome.is_none() => {
                self.await_outcome(transaction, waiter, patience).await
            }
            _ => transaction,
        };
        Ok(if first { Acceptance::Accepted(transaction) } else { Acceptance::Replayed(transaction) })
    }

    async fn currency(&self, account: AccountKey) -> Result<Option<Currency>, AcceptFault> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&account).copied();
        if known.is_some() {
            return Ok(known);
        }
        let read =
            self.ledger.account(account).await.map_err(|fault| AcceptFault::Account(Arc::new(fault)))?;
        let Some(read) = read else { return Ok(None) };
        let currency = read.value.currency;
        self.remember(account, currency);
        // A worker of the same process need not read it again.
        self.cache.put(read);
        Ok(Some(currency))
    }

    async fn store_and_enqueue(
        &self,
        key: TransactionKey,
        instruction: Instruction,
        traceparent: Option<String>,
        underway: Insert<'_>,
    ) -> Result<Acceptance, AcceptFault> {
        let new = NewTransaction {
            key: key.clone(),
            instruction,
            accepted_at: self.world.now(),
            nonce: self.world.nonce(),
        };
        let outcome = self.insert(new.clone()).await?;
        // Ended here, and not with the send: sends wait for it.
        drop(underway);
        match outcome {
            AcceptOutcome::Inserted { revision, enqueued } => {
                let stored = as_stored(new, revision);
                if !enqueued {
                    self.enqueue(&stored, traceparent).await?;
                }
                Ok(Acceptance::Accepted(stored.transaction))
            }
            AcceptOutcome::Existing(stored) if !new.instruction.matches(&stored.fingerprint) => {
                Ok(Acceptance::KeyReused)
            }
            AcceptOutcome::Existing(stored) => {
                self.enqueue(&stored, traceparent).await?;
                Ok(Acceptance::Replayed(stored.transaction))
            }
        }
    }

    /// Inserts a transaction together with those that come with it.
    async fn insert(&self, new: NewTransaction) -> Result<AcceptOutcome, AcceptFault> {
        let lane = inserts::lane(self.ledger.accept_grouping(), new.key.account, self.queue_count);
        self.inserts.submit(lane, new).await?.map_err(AcceptFault::Log)
    }

    /// Returns when a send of the work was confirmed to this process (one that asked for a reply, if
    /// somebody here waits for it), or when there is no work left.
    async fn enqueue(
        &self,
        stored: &StoredTransaction,
        traceparent: Option<String>,
    ) -> Result<(), AcceptFault> {
        let Some(work) = stored.work() else { return Ok(()) };
        if !self.confirmed.lacks(&work.key) {
            return Ok(());
        }
        let queue = envelope::queue_of(work.key.account, self.queue_count);
        self.sends.submit(queue, Parcel { work, traceparent }).await?.map_err(AcceptFault::Queue)
    }

    /// The transaction with its outcome, if that is known in time: a worker of this process announces
    /// it, one of another process replies. The row is read at the end, as an announcement can get lost, and
    /// when something hints that the transaction is final.
    async fn await_outcome(
        &self,
        transaction: Transaction,
        mut waiter: Waiter,
        patience: Duration,
    ) -> Transaction {
        let mut patience = self.world.sleep(patience);
        for early_look in 0..=EARLY_LOOKS_MAX {
            let news = async {
                if early_look < EARLY_LOOKS_MAX {
                    waiter.next_event().await
                } else {
                    CompletionEvent::Final(waiter.outcome().await)
                }
            };
            match select(std::pin::pin!(news), &mut patience).await {
                Either::Left((CompletionEvent::Final(outcome), _)) => {
                    return Transaction { outcome: Some(outcome), ..transaction };
                }
                Either::Left((CompletionEvent::Hint, _)) => {
                    // What is announced meanwhile is there for the next round.
                    if let Some(found) = self.look(&transaction.key).await {
                        return found;
                    }
                }
                Either::Right(_) => break,
            }
        }
        self.look(&transaction.key).await.unwrap_or(transaction)
    }

    /// The transaction if the log shows that it is final. The promise was made: a log that does not
    /// answer now is no reason to break it, or to keep the client waiting.
    async fn look(&self, key: &TransactionKey) -> Option<Transaction> {
        let read = self.ledger.transaction(key);
        match select(read, self.world.sleep(LOOK_TIME_MAX)).await {
            Either::Left((Ok(Some(stored)), _)) if stored.transaction.outcome.is_some() => {
                Some(stored.transaction)
            }
            Either::Left(_) | Either::Right(_) => None,
        }
    }
}

fn as_stored(new: NewTransaction, revision: crate::domain::account::Revision) -> StoredTransaction {
    let NewTransaction { key, instruction, accepted_at, nonce: _ } = new;
    let fingerprint = instruction.fingerprint();
    let transaction = Transaction { key, instruction, accepted_at, outcome: None };
    StoredTransaction { transaction, fingerprint, revision, marks: Marks::default() }
}
