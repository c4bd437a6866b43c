//! One attempt to make transactions final: load → decide → commit, and what follows a commit that was written.

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
use crate::posting::traced::traced_commits;
use crate::tracer::Tracer;

/// Target of the log lines about decided transactions, one for each.
const DECIDED: &str = "postonce::decided";

/// Makes transactions final. One per process.
pub struct Writer {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// The order numbers of this process.
    pub numbers: Arc<OrderNumbers>,
    /// Clock and tasks.
    pub world: Arc<dyn World>,
    /// Completed by each commit.
    pub completions: Arc<Completions>,
    /// The account rows that this process knows.
    pub cache: Arc<AccountCache>,
    /// Taken by the callers: one of them posts on an account at a time.
    pub locks: AccountLocks,
    /// Permits of the gate.
    pub permits: Arc<GatePermits>,
    /// How long transactions took.
    pub latency: Arc<PostingLatency>,
    /// The postings whose order numbers are not recorded yet.
    pub posted: Arc<PostedNumbers>,
    /// The operations of sampled traces.
    pub tracer: Arc<Tracer>,
}

/// Who calls the writer, as far as an attempt depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Requests that wait for their outcome. They have a permit of the gate until their last attempt.
    Waiting,
    /// Messages.
    Queued,
    /// Items of batches.
    Batch,
    /// An operator who discards dead letters, also while the gate is held. No order numbers are needed.
    Discard,
}

impl Caller {
    const fn takes_permit(self) -> bool {
        match self {
            Self::Queued | Self::Batch => true,
            Self::Waiting | Self::Discard => false,
        }
    }

    /// The way by which the transactions are counted.
    const fn way(self) -> Option<Way> {
        match self {
            Self::Waiting => Some(Way::Immediate),
            Self::Queued => Some(Way::Queued),
            Self::Batch => Some(Way::Batch),
            Self::Discard => None,
        }
    }
}

/// Which accepted transactions of the account come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// None.
    Any,
    /// All: the commit is refused while there are some. Where the ledger cannot check that, transactions whose rejection may
    /// depend on them are left out.
    AfterAccepted,
    /// All if a rejection may depend on them, where the ledger can check that.
    RejectAfterAccepted,
}

/// The transactions of one account that are to be committed in one step.
pub struct Group {
    /// The account.
    pub account: AccountKey,
    /// The transactions with distinct keys, those with rows first.
    pub pending: Vec<Pending>,
    /// Which others come first.
    pub order: Order,
    /// The rights on which each of them was admitted, if they can end before the commit; else none.
    standings: Vec<Standing>,
    /// Those that were left out of the commit: because of [`Order::AfterAccepted`], or because their rights have changed.
    pub left_out: BTreeSet<TransactionKey>,
}

impl Group {
    /// Transactions of an account with distinct keys, those with rows first.
    pub const fn new(account: AccountKey, pending: Vec<Pending>, order: Order) -> Self {
        Self { account, pending, order, standings: Vec::new(), left_out: BTreeSet::new() }
    }

    /// The same group, of requests with these rights, which have not changed when the commit begins.
    pub fn admitted_on(self, standings: Vec<Standing>) -> Self {
        Self { standings, ..self }
    }

    /// Leaves out what was admitted on rights that have changed.
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

/// The result of an attempt on an account. Only [`Attempt::Written`] changed something.
#[derive(Debug)]
pub enum Attempt {
    /// They are final, except those left out, which may be all.
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
    /// Makes one attempt on an account. The caller has the lock on it.
    ///
    /// # Errors
    /// [`PostFault`]. After one of the ledger the commit may have happened, or may still happen.
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

    /// Makes one attempt on several accounts in one step. The caller has the locks on them. Accounts that do not exist are left.
    ///
    /// # Errors
    /// As [`Self::write`], for all of them.
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

    /// Waits for posting on an account. A panic, which is a bug, does not concern other accounts.
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

    /// Takes a permit for an attempt: who holds the gate waits for its end.
    fn permit(&self, caller: Caller) -> Result<Option<GatePermit>, PostFault> {
        if !caller.takes_permit() {
            return Ok(None);
        }
        self.permits.enter().map(Some).ok_or(PostFault::GateHeld)
    }

    /// Decides what is pending. `None` if all of it is left out.
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
        // The time of the decision is after the wait for numbers.
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
        // From the commit on, the order numbers in it are used up, whether it succeeds or not.
        let used = commit.as_ref().map_or(0, AccountCommit::numbers_used);
        self.numbers.give_back(numbers.get(used..).unwrap_or_default().to_vec());
        Ok(commit
            .map(|commit| AccountCommit { after_accepted: self.comes_after(&commit, group.order), ..commit }))
    }

    /// Gives the order numbers of commits back that are not attempted.
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

    /// Inserts the rejections of transactions without rows of an account that does not exist.
    async fn reject(&self, caller: Caller, group: &mut Group) -> Result<Attempt, PostFault> {
        if group.pending.iter().any(Pending::is_stored) {
            return Ok(Attempt::AccountUnknown);
        }
        let submissions = std::mem::take(&mut group.pending).into_iter().map(|it| it.submission).collect();
        let commit = reject_unknown(group.account, submissions, (self.world.nonce(), self.world.now()));
        let committed = self.ledger.reject_unknown(&commit).await?;
        Ok(self.conclude(caller, commit.decided, None, committed))
    }

    /// Records the answer to a commit.
    fn settle(&self, caller: Caller, commit: AccountCommit, committed: Committed) -> Attempt {
        if let Committed::Done { revision } = &committed {
            self.cache.put_written(&commit, revision.clone());
        }
        self.conclude(caller, commit.decided, Some(commit.after.version), committed)
    }

    /// Counts, logs and completes what was written. `version` is that of the account.
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
            // What a batch makes final and was accepted before did not take its way.
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

    /// Logs the outcomes, so that a request can be followed from its id to the journal: a line for each transaction. For a request
    /// that waits it has the level `debug`, because the line of the request has the outcome too. Items of a batch are only counted.
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
            // The level of an event is a constant.
            if caller == Caller::Waiting {
                line!(tracing::Level::DEBUG);
            } else {
                line!(tracing::Level::INFO);
            }
        }
    }
}

/// Removes the transactions whose outcome may depend on accepted ones. They change nothing on the account, so the outcomes of the
/// others stay the same. `None` if nothing is left.
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
