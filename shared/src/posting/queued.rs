//! Posts the work of messages.
//!
//! The cached account may be outdated, and a message may be redelivered; the guards detect both. After the first
//! refusal the account is read again, because usually another process has changed it. After the second one the
//! transactions are read too, final ones are dropped, and the rest is decided again. Like every other outcome, a
//! rejection is committed under the guard of the account, so that an outdated balance never causes a wrong rejection.

use std::sync::Arc;

use futures::future::join_all;

use super::PostFault;
use super::writer::{Attempt, Caller, Group, Order, Writer};
use crate::backoff::ACCOUNT_WRITE;
use crate::cluster::contention::ContentionNotices;
use crate::domain::decision::{Pending, Submission, Work};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::origin::Origin;

/// Number of transaction rows that are read concurrently after a refused commit.
const READS_AT_ONCE: usize = 16;

/// Result for one transaction: `Ok` if it is final or in the dead letters.
pub type Settled = (TransactionKey, Result<(), PostFault>);

/// Posts the work of messages. A process has one.
pub struct Poster {
    writer: Arc<Writer>,
    contention: Arc<dyn ContentionNotices>,
}

impl Poster {
    /// Creates a poster. When an account changes during two attempts, it notifies other processes through `contention`.
    pub const fn new(writer: Arc<Writer>, contention: Arc<dyn ContentionNotices>) -> Self {
        Self { writer, contention }
    }

    /// Makes work of one account final and returns one result per transaction. The keys must be distinct. Nothing is
    /// committed while the gate is held.
    pub async fn post(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        self.settle(account, work, Caller::Queued).await
    }

    /// Rejects work of one account that an operator discarded, even while the gate is held; otherwise like [`Self::post`].
    pub async fn discard(&self, account: AccountKey, work: Vec<Work>) -> Vec<Settled> {
        self.settle(account, work, Caller::Discard).await
    }

    async fn settle(&self, account: AccountKey, work: Vec<Work>, caller: Caller) -> Vec<Settled> {
        let settled = self.writer.guard(&[account], self.settle_all(account, &work, caller)).await;
        settled.unwrap_or_else(|bug| fail(Vec::new(), work, &bug))
    }

    async fn settle_all(&self, account: AccountKey, work: &[Work], caller: Caller) -> Vec<Settled> {
        let _lock = self.writer.locks.take(account).await;
        let mut settled = Vec::with_capacity(work.len());
        let mut chunks = work.chunks(PAGE_ENTRIES_MAX);
        while let Some(chunk) = chunks.next() {
            let of_chunk = self.settle_chunk(account, chunk.to_vec(), caller).await;
            let fault = of_chunk.iter().find_map(|(_, result)| result.as_ref().err().cloned());
            settled.extend(of_chunk);
            // A withdrawal must not be rejected because an outage prevented the deposit before it.
            if let Some(fault) = fault.filter(PostFault::is_transient) {
                return fail(settled, chunks.flatten().cloned().collect(), &fault);
            }
        }
        settled
    }

    /// Commits one chunk, with retries.
    async fn settle_chunk(&self, account: AccountKey, work: Vec<Work>, caller: Caller) -> Vec<Settled> {
        let mut settled: Vec<Settled> = Vec::with_capacity(work.len());
        let mut open = work;
        for attempt in 1..=ACCOUNT_WRITE.attempts {
            let pending = open.iter().cloned().map(Pending::from).collect();
            let mut group = Group::new(account, pending, Order::Any);
            match self.writer.write(caller, &mut group).await {
                Ok(Attempt::Written(_)) => {
                    settled.extend(open.into_iter().map(|work| (work.submission.key, Ok(()))));
                    return settled;
                }
                Ok(Attempt::AccountUnknown) => return fail(settled, open, &PostFault::AccountUnknown),
                Ok(Attempt::RowsChanged(_)) => {}
                Ok(Attempt::Stale | Attempt::Taken(_) | Attempt::Early) => match attempt {
                    // Usually only the cached account was outdated.
                    1 => {
                        self.writer.cache.mark_stale(account);
                        continue;
                    }
                    2 => self.contention.send(account),
                    _ => {}
                },
                Err(fault) => return fail(settled, open, &fault),
            }
            open = match self.reload(account, &open, caller).await {
                Ok((done, open)) => {
                    settled.extend(done);
                    open
                }
                Err(fault) => return fail(settled, open, &fault),
            };
            if open.is_empty() {
                return settled;
            }
            // The retry after the first read of the rows has no delay, because the rows may have been the cause.
            if attempt > 2 {
                ACCOUNT_WRITE.pause(attempt, &*self.writer.world).await;
            }
        }
        fail(settled, open, &PostFault::Contended)
    }

    /// Reads the rows after a refused commit. Settles final work and dead letters, and returns the rest with its revisions.
    async fn reload(
        &self,
        account: AccountKey,
        work: &[Work],
        caller: Caller,
    ) -> Result<(Vec<Settled>, Vec<Work>), PostFault> {
        self.writer.cache.mark_stale(account);
        let mut settled = Vec::new();
        let mut open = Vec::with_capacity(work.len());
        for some in work.chunks(READS_AT_ONCE) {
            let reads: Vec<_> =
                some.iter().map(|work| self.writer.ledger.transaction(&work.submission.key)).collect();
            for (work, row) in some.iter().zip(join_all(reads).await) {
                let row = match row {
                    Ok(Some(row)) => row,
                    Ok(None) => {
                        settled.push((work.submission.key.clone(), Err(PostFault::NeverAccepted)));
                        continue;
                    }
                    Err(fault) if fault.is_transient() => return Err(fault.into()),
                    // A damaged row must not affect the other transactions.
                    Err(fault) => {
                        settled.push((work.submission.key.clone(), Err(fault.into())));
                        continue;
                    }
                };
                if !work.submission.instruction.matches(&row.fingerprint) {
                    // Impossible with a valid seal, unless the row is damaged or the key was disclosed.
                    tracing::error!(
                        transaction = %work.submission.key,
                        "The message and the row of transaction {} differ in content; the row is used",
                        work.submission.key
                    );
                }
                match (row.work(), &row.outcome) {
                    // The transaction became a dead letter after this message was sent. An operator decides about it.
                    (Some(_), _) if caller == Caller::Queued && row.marks.dead_letter => {
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
                            self.writer.completions.complete(&work.submission.key, outcome);
                        }
                        settled.push((work.submission.key.clone(), Ok(())));
                    }
                }
            }
        }
        Ok((settled, open))
    }
}

fn fail(mut settled: Vec<Settled>, open: Vec<Work>, fault: &PostFault) -> Vec<Settled> {
    settled.extend(open.into_iter().map(|work| (work.submission.key, Err(fault.clone()))));
    settled
}
