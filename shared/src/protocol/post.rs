//! Second half of the protocol: load → decide → commit. The first half is [`crate::protocol::accept`].
//!
//! 1. **Load** the account: from the cache, or else from the ledger.
//! 2. **Decide** with a pure function and reserved order numbers.
//! 3. **Commit** account, transactions and journal page in one atomic step under their guards.
//!
//! The cached account may be outdated, and a message may be redelivered: the guards detect both. After the first
//! refusal the account is read again, because usually another process changed it. After the second one the transactions
//! are read too, final transactions are dropped, and the rest is decided again. A rejection
//! is committed under the account's guard like every other outcome, so that an outdated balance never rejects a
//! transaction that the account can pay.

use std::sync::Arc;

use futures::future::join_all;

use crate::backoff::ACCOUNT_WRITE;
use crate::cluster::contention::ContentionNotices;
use crate::domain::account::{Account, Versioned};
use crate::domain::decision::{
    AccountCommit, Decided, DecisionContext, Pending, Submission, Undecidable, Work, decide, discard,
};
use crate::domain::ids::{AccountKey, OrderNumber, TransactionKey};
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::origin::{Origin, TraceParent};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Committed;
use crate::ports::world::WorldExt as _;
use crate::protocol::immediate::ImmediateParts;
use crate::protocol::order_numbers::OrderNumberFault;
use crate::protocol::posting_latency::Way;
use crate::protocol::traced::traced_commit;
use crate::tracer::Tracer;

/// Target of the log lines about decided transactions, one for each.
const DECIDED: &str = "postonce::decided";

/// Number of transaction rows that are read concurrently after a stale commit.
const READS_AT_ONCE: usize = 16;

/// The reason why work is not final.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PostFault {
    /// The ledger could not be read or written. A commit may have happened.
    #[error("the ledger could not be used")]
    Ledger(#[source] Arc<StoreFault>),
    /// No order number is available.
    #[error("no order number is available")]
    OrderNumbers(#[source] OrderNumberFault),
    /// Concurrent commits changed the account during each attempt.
    #[error("the account changed during each of {} attempts", ACCOUNT_WRITE.attempts)]
    Contended,
    /// The account does not exist.
    #[error("the account does not exist")]
    AccountUnknown,
    /// The log does not contain the transaction: it was never accepted.
    #[error("the transaction was never accepted")]
    NeverAccepted,
    /// The gate is held: nothing may be posted.
    #[error("the gate is held")]
    GateHeld,
    /// A bug: posting panicked. The state of the work is unknown.
    #[error("posting panicked; the log of the worker has more")]
    Bug,
    /// A bug: the work cannot be committed.
    #[error("the work cannot be decided")]
    Undecidable(#[source] Arc<Undecidable>),
}

impl PostFault {
    /// Returns whether a retry later can succeed. Other faults lead to the dead letters.
    pub fn is_transient(&self) -> bool {
        match self {
            // A refusal by an available ledger concerns this work: an operator has to investigate.
            Self::Ledger(fault) => matches!(**fault, StoreFault::Unavailable { .. }),
            // A damaged register stops all posting until an operator repairs it; the work is not the cause.
            Self::OrderNumbers(_) | Self::Contended | Self::GateHeld => true,
            Self::AccountUnknown | Self::NeverAccepted | Self::Bug | Self::Undecidable(_) => false,
        }
    }
}

/// Result for one transaction: it is final or in the dead letters (`Ok`), or the fault.
pub type Settled = (TransactionKey, Result<(), PostFault>);

/// The operation to apply to the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Post,
    Discard,
}

/// Result of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Done,
    /// The account changed after it was read, or a transaction.
    Stale,
    /// A transaction changed after it was read.
    RowsChanged,
}

/// Posts work. One per process.
pub struct Poster {
    parts: ImmediateParts,
    contention: Arc<dyn ContentionNotices>,
}

impl Poster {
    /// Creates a poster that shares locks and cache with the immediate posting of its process. When other processes
    /// change an account during two attempts, they are notified through `contention`.
    pub const fn new(parts: ImmediateParts, contention: Arc<dyn ContentionNotices>) -> Self {
        Self { parts, contention }
    }

    /// Makes work of one account final and returns one result for each transaction. The keys must be distinct. While the gate
    /// is held, nothing is committed.
    pub async fn post(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        self.settle_all(account, work, Purpose::Post).await
    }

    /// Rejects work of one account that an operator discarded; otherwise as [`Self::post`].
    pub async fn discard(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        self.settle_all(account, work, Purpose::Discard).await
    }

    async fn settle_all(&self, account: AccountKey, work: Vec<Work>, purpose: Purpose) -> Vec<Settled> {
        let _lock = self.parts.locks.take(account).await;
        let mut settled = Vec::with_capacity(work.len());
        let mut batches = work.chunks(PAGE_ENTRIES_MAX);
        while let Some(batch) = batches.next() {
            let of_batch = self.settle_batch(account, batch.to_vec(), purpose).await;
            let fault = of_batch.iter().find_map(|(_, result)| result.as_ref().err().cloned());
            settled.extend(of_batch);
            // Later work may depend on work that failed before it: a withdrawal must not be rejected
            // because the deposit before it was not posted during an outage.
            if let Some(fault) = fault.filter(PostFault::is_transient) {
                return fail(settled, batches.flatten().cloned().collect(), &fault);
            }
        }
        settled
    }

    /// Commits one batch, with retries.
    async fn settle_batch(&self, account: AccountKey, work: Vec<Work>, purpose: Purpose) -> Vec<Settled> {
        let mut settled: Vec<Settled> = Vec::with_capacity(work.len());
        let mut open = work;
        for attempt in 1..=ACCOUNT_WRITE.attempts {
            match self.attempt(account, &open, purpose).await {
                Ok(Attempt::Done) => {
                    settled.extend(open.into_iter().map(|work| (work.submission.key, Ok(()))));
                    return settled;
                }
                // Usually only the cached account was outdated.
                Ok(Attempt::Stale) if attempt == 1 => continue,
                Ok(Attempt::Stale) if attempt == 2 => self.contention.send(account),
                Ok(Attempt::Stale | Attempt::RowsChanged) => {}
                Err(fault) => return fail(settled, open, &fault),
            }
            open = match self.reload(account, &open, purpose).await {
                Ok((done, open)) => {
                    settled.extend(done);
                    open
                }
                Err(fault) => return fail(settled, open, &fault),
            };
            if open.is_empty() {
                return settled;
            }
            // A retry after the first read of the rows has no delay: they may have been the cause.
            if attempt > 2 {
                ACCOUNT_WRITE.pause(attempt, &*self.parts.world).await;
            }
        }
        fail(settled, open, &PostFault::Contended)
    }

    /// Decides and commits once.
    async fn attempt(
        &self,
        account: AccountKey,
        work: &[Work],
        purpose: Purpose,
    ) -> Result<Attempt, PostFault> {
        let read = self.parts.cache.load(&*self.parts.ledger, account).await;
        let read = read.map_err(|fault| PostFault::Ledger(Arc::new(fault)))?;
        let read = read.ok_or(PostFault::AccountUnknown)?;
        // Until the end of this attempt: who holds the gate waits for it. An operator discards while the gate is held, too.
        let _permit = match purpose {
            Purpose::Post => Some(self.parts.permits.enter().ok_or(PostFault::GateHeld)?),
            Purpose::Discard => None,
        };
        let (commit, numbers) = self.decide(&read, work, purpose).await?;
        // From here on the order numbers in the commit are used up, whether it succeeds or not.
        let unused = numbers.get(commit.numbers_used()..).unwrap_or_default().to_vec();
        self.parts.numbers.give_back(unused);
        let origins = work.iter().map(|work| &work.submission.origin);
        let committed = traced_commit(&self.parts.tracer, &*self.parts.ledger, &commit, origins).await;
        let committed = match committed {
            Ok(committed) => committed,
            Err(fault) => {
                // The commit may have happened, so the cached account may be outdated.
                self.parts.cache.forget(account);
                return Err(PostFault::Ledger(Arc::new(fault)));
            }
        };
        match committed {
            Committed::Done { revision } => {
                self.parts.cache.put_written(&commit, revision);
                if purpose == Purpose::Post {
                    let (now, latency) = (self.parts.world.now(), &self.parts.latency);
                    work.iter().for_each(|work| latency.record(Way::Queued, now.since(work.submission.accepted_at), 1));
                    latency.count(Way::Queued, commit.outcomes().map(|(_, outcome)| outcome));
                }
                self.parts.posted.note(commit.outcomes());
                log_decided(&self.parts.tracer, &commit);
                for (key, outcome) in commit.outcomes() {
                    self.parts.completions.complete(key, outcome);
                }
                Ok(Attempt::Done)
            }
            Committed::Stale | Committed::Taken(_) | Committed::Early => {
                self.parts.cache.mark_stale(account);
                Ok(Attempt::Stale)
            }
            Committed::RowsChanged(_) => Ok(Attempt::RowsChanged),
        }
    }

    async fn decide(
        &self,
        account: &Versioned<Account>,
        work: &[Work],
        purpose: Purpose,
    ) -> Result<(AccountCommit, Vec<OrderNumber>), PostFault> {
        let numbers = match purpose {
            Purpose::Post => self.parts.numbers.take(work.len()).await.map_err(PostFault::OrderNumbers)?,
            Purpose::Discard => Vec::new(),
        };
        let context = DecisionContext {
            nonce: self.parts.world.nonce(),
            now: self.parts.world.now(),
            numbers: &numbers,
        };
        let pending = work.iter().cloned().map(Pending::from).collect();
        let decided = match purpose {
            Purpose::Post => decide(account, pending, &context),
            Purpose::Discard => discard(account, pending, &context),
        };
        match decided {
            Ok(commit) => Ok((commit, numbers)),
            Err(undecidable) => {
                self.parts.numbers.give_back(numbers);
                Err(PostFault::Undecidable(Arc::new(undecidable)))
            }
        }
    }

    /// After a stale commit: settles work that is final or in the dead letters by now, and returns the rest with the
    /// current revisions of its rows.
    async fn reload(
        &self,
        account: AccountKey,
        work: &[Work],
        purpose: Purpose,
    ) -> Result<(Vec<Settled>, Vec<Work>), PostFault> {
        self.parts.cache.mark_stale(account);
        let mut settled = Vec::new();
        let mut open = Vec::with_capacity(work.len());
        for some in work.chunks(READS_AT_ONCE) {
            let reads: Vec<_> = some.iter().map(|work| self.parts.ledger.transaction(&work.submission.key)).collect();
            for (work, row) in some.iter().zip(join_all(reads).await) {
                let row = match row {
                    Ok(Some(row)) => row,
                    Ok(None) => {
                        settled.push((work.submission.key.clone(), Err(PostFault::NeverAccepted)));
                        continue;
                    }
                    Err(fault) if fault.is_transient() => return Err(PostFault::Ledger(Arc::new(fault))),
                    // A damaged row must not affect the other transactions.
                    Err(fault) => {
                        settled.push((work.submission.key.clone(), Err(PostFault::Ledger(Arc::new(fault)))));
                        continue;
                    }
                };
                if !work.submission.instruction.matches(&row.fingerprint) {
                    // Not possible under a seal, unless the row is damaged or the key was disclosed.
                    tracing::error!(
                        transaction = %work.submission.key,
                        "The message and the row of transaction {} differ in content; the row is used",
                        work.submission.key
                    );
                }
                match (row.work(), &row.transaction.outcome) {
                    // It was moved to the dead letters after it was sent: an operator decides about it.
                    (Some(_), _) if purpose == Purpose::Post && row.marks.dead_letter => {
                        settled.push((work.submission.key.clone(), Ok(())));
                    }
                    (Some(stored), _) => {
                        let traceparent = work.submission.origin.traceparent.clone();
                        let origin = Origin { traceparent, ..stored.submission.origin };
                        let submission = Submission { origin, ..stored.submission };
                        open.push(Work { submission, delivered: work.delivered, ..stored });
                    }
                    (None, outcome) => {
                        if let Some(outcome) = outcome {
                            self.parts.completions.complete(&work.submission.key, outcome);
                        }
                        settled.push((work.submission.key.clone(), Ok(())));
                    }
                }
            }
        }
        Ok((settled, open))
    }
}

/// Logs what became of work that the queue delivered, so that a request can be followed from its id to the journal.
fn log_decided(tracer: &Tracer, commit: &AccountCommit) {
    if !tracing::enabled!(target: DECIDED, tracing::Level::INFO) {
        return;
    }
    for Decided { pending, outcome } in &commit.decided {
        let Submission { key, origin, .. } = &pending.submission;
        let (status, order_number) = (outcome.status().code(), outcome.order_number());
        let span = origin.traceparent.as_ref().filter(|span| tracer.records(span));
        tracing::info!(
            target: DECIDED,
            request_id = origin.request_id(),
            trace_id = origin.trace_id(),
            span_id = span.map(TraceParent::span_id),
            message_id = %key.message,
            partner = key.partner.as_str(),
            account = %key.account,
            order_number = order_number.map(|number| number.to_string()),
            version = commit.after.version,
            "Transaction {} is {status}",
            key.message
        );
    }
}

fn fail(mut settled: Vec<Settled>, open: Vec<Work>, fault: &PostFault) -> Vec<Settled> {
    settled.extend(open.into_iter().map(|work| (work.submission.key, Err(fault.clone()))));
    settled
}
