//! One attempt to make transactions final (load → decide → commit), and the actions after a written commit.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::slice;
use std::sync::Arc;

use futures::{FutureExt as _, TryFutureExt as _};

use super::PostFault;
use crate::access::partner_cache::Standing;
use crate::cluster::completions::Completions;
use crate::cluster::gate::permits::{GatePermit, GatePermits};
use crate::domain::account::{Account, Versioned};
use crate::domain::decision::{
    AccountCommit, Decided, DecisionContext, Pending, Submission, decide, discard, reject_unknown,
};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::origin::TraceParent;
use crate::ports::ledger::{Committed, JointSteps, Ledger};
use crate::ports::world::{World, WorldExt as _};
use crate::posting::account_cache::AccountCache;
use crate::posting::account_locks::AccountLocks;
use crate::posting::order_numbers::OrderNumbers;
use crate::posting::posted_numbers::PostedNumbers;
use crate::posting::posting_latency::{PostingLatency, Way};
use crate::posting::spans::traced_commits;
use crate::tracer::Tracer;

/// Target of the log lines about decided transactions.
const DECIDED: &str = "postonce::decided";

/// Makes transactions final. A process has one.
pub struct Writer {
    /// The ledger that commits are written to.
    pub ledger: Arc<dyn Ledger>,
    /// The reserved order numbers of this process.
    pub numbers: Arc<OrderNumbers>,
    /// The clock and the tasks of the process.
    pub world: Arc<dyn World>,
    /// Waiting requests, which written commits complete.
    pub completions: Arc<Completions>,
    /// The cached account rows.
    pub cache: Arc<AccountCache>,
    /// Locks that the callers take, so that one of them at a time posts on an account.
    pub locks: AccountLocks,
    /// Permits of the gate.
    pub permits: Arc<GatePermits>,
    /// The latency metrics of transactions.
    pub latency: Arc<PostingLatency>,
    /// Postings whose order numbers are not recorded yet.
    pub posted: Arc<PostedNumbers>,
    /// The operations of sampled traces.
    pub tracer: Arc<Tracer>,
}

/// The caller of the writer, on which some steps of an attempt depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Requests that wait for their outcome. They hold a permit of the gate until their last attempt.
    Waiting,
    /// Messages of the queue.
    Queued,
    /// Items of batches.
    Batch,
    /// An operator who discards dead letters, even while the gate is held. Needs no order numbers.
    Discard,
}

impl Caller {
    const fn takes_permit(self) -> bool {
        match self {
            Self::Queued | Self::Batch => true,
            Self::Waiting | Self::Discard => false,
        }
    }

    /// Returns the path under which the transactions are counted.
    const fn way(self) -> Option<Way> {
        match self {
            Self::Waiting => Some(Way::Immediate),
            Self::Queued => Some(Way::Queued),
            Self::Batch => Some(Way::Batch),
            Self::Discard => None,
        }
    }
}

/// The condition of a commit on other accepted transactions of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// No condition.
    Any,
    /// The commit is refused while there are any. If the ledger cannot check this, transactions whose rejection may
    /// depend on them are left out.
    AfterAccepted,
    /// A commit with a rejection that may depend on them is refused while there are any, if the ledger can check this.
    RejectAfterAccepted,
}

/// Transactions of one account to commit in one step.
pub struct Group {
    /// The account.
    pub account: AccountKey,
    /// The transactions with distinct keys, those with rows first.
    pub pending: Vec<Pending>,
    /// The condition on other accepted transactions.
    pub order: Order,
    /// The rights on which each transaction was admitted; empty if they cannot end before the commit.
    standings: Vec<Standing>,
    /// The transactions left out of the commit, because of [`Order::AfterAccepted`] or changed rights.
    pub left_out: BTreeSet<TransactionKey>,
}

impl Group {
    /// Creates a group of transactions of one account with distinct keys, those with rows first.
    pub const fn new(account: AccountKey, pending: Vec<Pending>, order: Order) -> Self {
        Self { account, pending, order, standings: Vec::new(), left_out: BTreeSet::new() }
    }

    /// Sets the rights of the requests, in the order of the transactions. Requests whose rights have changed are left out.
    pub fn admitted_on(self, standings: Vec<Standing>) -> Self {
        Self { standings, ..self }
    }

    /// Leaves out the transactions whose rights have changed.
    fn leave_out_changed(&mut self) {
        let standings = std::mem::take(&mut self.standings);
        if standings.iter().all(Standing::is_unchanged) {
            return;
        }
        let mut is_unchanged = standings.iter().map(Standing::is_unchanged).chain(std::iter::repeat(true));
        let (kept, changed): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.pending).into_iter().partition(|_| is_unchanged.next() == Some(true));
        self.pending = kept;
        self.left_out.extend(changed.into_iter().map(|pending| pending.submission.key));
    }
}

/// The result of an attempt on an account. Only [`Attempt::Written`] has changed the ledger.
#[derive(Debug)]
pub enum Attempt {
    /// The transactions are final, except those left out, which may be all.
    Written(Vec<Decided>),
    /// The account does not exist.
    AccountUnknown,
    /// As [`Committed::Stale`].
    Stale,
    /// As [`Committed::RowsChanged`].
    RowsChanged(Vec<TransactionKey>),
    /// As [`Committed::Taken`].
    Taken(Vec<TransactionKey>),
    /// As [`Committed::Early`].
    Early,
}

impl Writer {
    /// Makes one attempt on an account. The caller holds its lock.
    ///
    /// # Errors
    /// [`PostFault`]. After a fault of the ledger, the commit may have happened or may still happen.
    pub async fn write(&self, caller: Caller, group: &mut Group) -> Result<Attempt, PostFault> {
        let read = self.cache.load(&*self.ledger, group.account).await?;
        let _permit = self.permit(caller)?;
        let Some(read) = read else {
            return match caller {
                Caller::Batch => self.reject(caller, group).await,
                Caller::Waiting | Caller::Queued | Caller::Discard => Ok(Attempt::AccountUnknown),
            };
        };
        let Some(commit) = self.decide(caller, &read, group).await? else {
            return Ok(Attempt::Written(Vec::new()));
        };
        let committed = self.ledger.commit(&commit).map_ok(|committed| vec![committed]);
        let committed = traced_commits(&self.tracer, slice::from_ref(&commit), committed).await;
        // The commit may have happened.
        let committed = committed.inspect_err(|_| self.cache.forget(group.account))?;
        Ok(self.settle(caller, commit, committed.into_iter().next().expect("an answer to the commit")))
    }

    /// Makes one attempt on several accounts in one step, except unknown ones. The caller holds their locks.
    ///
    /// # Errors
    /// As [`Self::write`], for all accounts.
    pub async fn write_together(
        &self,
        steps: &dyn JointSteps,
        caller: Caller,
        groups: &mut [Group],
    ) -> Result<Vec<Attempt>, PostFault> {
        let accounts: Vec<AccountKey> = groups.iter().map(|group| group.account).collect();
        let rows = self.cache.load_all(steps, &accounts).await?;
        let _permit = self.permit(caller)?;
        let (mut commits, mut attempts) = (Vec::new(), Vec::new());
        for group in groups {
            let Some(read) = rows.get(&group.account) else {
                attempts.push(Some(Attempt::AccountUnknown));
                continue;
            };
            let commit = self.decide(caller, read, group).await.inspect_err(|_| self.withdraw(&commits))?;
            attempts.push(commit.is_none().then(|| Attempt::Written(Vec::new())));
            commits.extend(commit);
        }
        let mut answers = Vec::new();
        if !commits.is_empty() {
            let committed = traced_commits(&self.tracer, &commits, steps.commit_all(&commits)).await;
            answers =
                committed.inspect_err(|_| accounts.iter().for_each(|account| self.cache.forget(*account)))?;
        }
        let mut settled =
            commits.into_iter().zip(answers).map(|(commit, answer)| self.settle(caller, commit, answer));
        let attempt =
            |known: Option<Attempt>| known.or_else(|| settled.next()).expect("an answer to each commit");
        Ok(attempts.into_iter().map(attempt).collect())
    }

    /// Awaits posting on some accounts. A panic, which is a bug, does not affect other accounts.
    ///
    /// # Errors
    /// [`PostFault::Bug`] after a panic.
    pub async fn guard<T>(
        &self,
        accounts: &[AccountKey],
        posting: impl Future<Output = T>,
    ) -> Result<T, PostFault> {
        AssertUnwindSafe(posting).catch_unwind().await.map_err(|_| {
            for account in accounts {
                // A commit may have happened.
                self.cache.forget(*account);
                tracing::error!(%account, "Posting on account {account} panicked");
            }
            PostFault::Bug
        })
    }

    /// Takes a permit for an attempt. An operator who holds the gate waits for its end.
    fn permit(&self, caller: Caller) -> Result<Option<GatePermit>, PostFault> {
        if !caller.takes_permit() {
            return Ok(None);
        }
        self.permits.enter().map(Some).ok_or(PostFault::GateHeld)
    }

    /// Decides the pending transactions. Returns `None` if all of them are left out.
    async fn decide(
        &self,
        caller: Caller,
        read: &Versioned<Account>,
        group: &mut Group,
    ) -> Result<Option<AccountCommit>, PostFault> {
        let numbers = match caller {
            Caller::Discard => Vec::new(),
            Caller::Waiting | Caller::Queued | Caller::Batch => {
                self.numbers.take(group.pending.len()).await.map_err(PostFault::OrderNumbers)?
            }
        };
        // After the last wait before the commit.
        group.leave_out_changed();
        let pending = std::mem::take(&mut group.pending);
        if pending.is_empty() {
            self.numbers.give_back(numbers);
            return Ok(None);
        }
        // The wait for numbers must not count as part of the time of the decision.
        let (nonce, now) = (self.world.nonce(), self.world.now());
        let context = DecisionContext { nonce, now, numbers: &numbers };
        if caller == Caller::Discard {
            return Ok(Some(discard(read, pending, &context)));
        }
        let mut commit = Some(decide(read, pending, &context));
        if group.order == Order::AfterAccepted && !self.ledger.checks_order() {
            commit = commit.and_then(|commit| {
                without_uncertain(commit, &mut group.left_out, |rest| decide(read, rest, &context))
            });
        }
        // The order numbers in the commit are used up from now on, whether it succeeds or not.
        let used = commit.as_ref().map_or(0, AccountCommit::numbers_used);
        self.numbers.give_back(numbers.get(used..).unwrap_or_default().to_vec());
        Ok(commit
            .map(|commit| AccountCommit { after_accepted: self.comes_after(&commit, group.order), ..commit }))
    }

    /// Gives back the order numbers of commits that are not attempted.
    fn withdraw(&self, commits: &[AccountCommit]) {
        let outcomes = commits.iter().flat_map(AccountCommit::outcomes);
        self.numbers.give_back(outcomes.filter_map(|(_, outcome)| outcome.order_number()).collect());
    }

    fn comes_after(&self, commit: &AccountCommit, order: Order) -> bool {
        match order {
            Order::Any => false,
            Order::AfterAccepted => true,
            Order::RejectAfterAccepted => {
                self.ledger.checks_order()
                    && commit.outcomes().any(|(_, outcome)| outcome.depends_on_balance())
            }
        }
    }

    /// Rejects transactions of an account that does not exist, unless one of them has a row.
    async fn reject(&self, caller: Caller, group: &mut Group) -> Result<Attempt, PostFault> {
        if group.pending.iter().any(Pending::is_stored) {
            return Ok(Attempt::AccountUnknown);
        }
        let submissions = std::mem::take(&mut group.pending).into_iter().map(|it| it.submission).collect();
        let commit = reject_unknown(group.account, submissions, (self.world.nonce(), self.world.now()));
        let committed = self.ledger.reject_unknown(&commit).await?;
        Ok(self.conclude(caller, commit.decided, None, committed))
    }

    /// Processes the answer to a commit.
    fn settle(&self, caller: Caller, commit: AccountCommit, committed: Committed) -> Attempt {
        if let Committed::Done { revision } = &committed {
            self.cache.put_written(&commit, revision.clone());
        }
        self.conclude(caller, commit.decided, Some(commit.after.version), committed)
    }

    /// Counts, logs and completes the transactions of a written commit. `version` is the version of the account.
    fn conclude(
        &self,
        caller: Caller,
        decided: Vec<Decided>,
        version: Option<u64>,
        committed: Committed,
    ) -> Attempt {
        match committed {
            Committed::Done { revision: _ } => {}
            Committed::Stale => return Attempt::Stale,
            Committed::RowsChanged(keys) => return Attempt::RowsChanged(keys),
            Committed::Taken(keys) => return Attempt::Taken(keys),
            Committed::Early => return Attempt::Early,
        }
        if let Some(way) = caller.way() {
            let now = self.world.now();
            // A transaction that was accepted before the batch did not take this path.
            let is_of_way = |decided: &&Decided| caller != Caller::Batch || decided.revision().is_none();
            for decided in decided.iter().filter(is_of_way) {
                self.latency.record(way, now.since(decided.submission().accepted_at), 1);
            }
            self.latency.count(way, decided.iter().map(|decided| &decided.outcome));
        }
        self.posted.note(decided.iter().map(|decided| (decided.key(), &decided.outcome)));
        for decided in &decided {
            self.completions.complete(decided.key(), &decided.outcome);
        }
        self.log(caller, &decided, version);
        Attempt::Written(decided)
    }

    /// Logs one line per transaction, so that a request can be followed from its id to the journal. For a waiting request it
    /// has the level `debug`, because the line of the request contains the outcome too. Items of a batch are only counted.
    fn log(&self, caller: Caller, decided: &[Decided], version: Option<u64>) {
        let is_logged = match caller {
            Caller::Queued | Caller::Discard => tracing::enabled!(target: DECIDED, tracing::Level::INFO),
            Caller::Waiting | Caller::Batch => tracing::enabled!(target: DECIDED, tracing::Level::DEBUG),
        };
        if !is_logged {
            return;
        }
        if caller == Caller::Batch {
            let account = decided.first().map(|decided| decided.key().account.to_string());
            tracing::debug!(target: DECIDED, account, version, "{} items of a batch are final", decided.len());
            return;
        }
        for decided in decided {
            let Submission { key, origin, .. } = decided.submission();
            let (status, order_number) = (decided.outcome.status().code(), decided.outcome.order_number());
            let span = origin.traceparent.as_ref().filter(|span| self.tracer.records(span));
            macro_rules! line {
                ($level:expr) => {
                    tracing::event!(
                        target: DECIDED,
                        $level,
                        request_id = origin.request_id(),
                        trace_id = origin.trace_id(),
                        span_id = span.map(TraceParent::span_id),
                        message_id = %key.message,
                        partner = key.partner.as_str(),
                        account = %key.account,
                        order_number = order_number.map(|number| number.to_string()),
                        version,
                        "Transaction {} is {status}",
                        key.message
                    )
                };
            }
            // The level of an event must be a constant.
            if caller == Caller::Waiting {
                line!(tracing::Level::DEBUG);
            } else {
                line!(tracing::Level::INFO);
            }
        }
    }
}

/// Removes the transactions whose outcome may depend on accepted ones. They do not change the account, so the other
/// outcomes stay the same. Returns `None` if nothing is left.
fn without_uncertain(
    commit: AccountCommit,
    left_out: &mut BTreeSet<TransactionKey>,
    decide: impl Fn(Vec<Pending>) -> AccountCommit,
) -> Option<AccountCommit> {
    if !commit.outcomes().any(|(_, outcome)| outcome.depends_on_balance()) {
        return Some(commit);
    }
    let (uncertain, rest): (Vec<Decided>, Vec<Decided>) =
        commit.decided.into_iter().partition(|decided| decided.outcome.depends_on_balance());
    left_out.extend(uncertain.into_iter().map(|decided| decided.pending.submission.key));
    let rest: Vec<Pending> = rest.into_iter().map(|decided| decided.pending).collect();
    (!rest.is_empty()).then(|| decide(rest))
}
