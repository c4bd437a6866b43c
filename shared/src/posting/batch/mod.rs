//! Posts the items of a chunk with commits that insert their transactions.
//!
//! The insert of its key is the idempotency check of an item. If the key is taken, the row determines the result. The
//! row of the same line of this batch has the outcome. Any other row with the same content makes the item a replay; a
//! row with another content refuses it. An accepted row with the same content becomes final in the commit. The result
//! of an item therefore follows from its row, whichever worker wrote it.

mod account;
mod pace;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use self::account::{Lines, Open};
use self::pace::Pace;
use super::PostFault;
use super::writer::{Attempt, Caller, Writer};
use crate::backoff::{ACCOUNT_WRITE, BATCH_COMMIT};
use crate::cluster::completions::Completions;
use crate::cluster::contention::ContentionNotices;
use crate::domain::batch::{BatchKey, Item, ItemResult};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::domain::time::Timestamp;
use crate::ports::ledger::JointSteps;
use crate::posting::commit_permits::Singles;

/// Number of commits with taken keys after which all keys are read, because the store may name only one of them.
const TAKEN_MAX: u32 = 1;
/// Number of attempts that wait for accepted transactions of the account; about a second together.
const EARLY_MAX: u32 = 8;

/// Posts items of batches.
#[derive(Clone)]
pub struct ItemPoster {
    writer: Arc<Writer>,
    contention: Arc<dyn ContentionNotices>,
    singles: Arc<Singles>,
    pace: Arc<Pace>,
    /// Number of faults without a success after which a chunk ends: that of [`BATCH_COMMIT`], except in some tests.
    pub faults_max: u32,
}

/// Result of posting on one or more accounts.
#[derive(Default)]
struct Posted<'a> {
    done: Vec<ItemResult>,
    /// Accounts that need another attempt, grouped by joint attempt.
    left: Vec<Vec<Open<'a>>>,
    fault: Option<PostFault>,
}

/// The step after an attempt on an account.
enum Next {
    /// Commit the next items, if any are left.
    Commit,
    /// Read the account again.
    Reload,
    /// Wait for accepted transactions of the account.
    Wait,
    /// Read the rows of these keys.
    Read(Vec<TransactionKey>),
    /// Stop: the remaining items cannot be posted.
    Fail(PostFault),
}

/// The counters of a chunk and its process when commits began.
struct Begun {
    /// The number of faults since the last success.
    failures: u32,
    /// See [`Pace::halvings`].
    halvings: u64,
}

impl ItemPoster {
    /// Creates the poster of a process. It notifies other processes of contended accounts and gives single requests priority.
    pub fn new(writer: Arc<Writer>, contention: Arc<dyn ContentionNotices>, singles: Arc<Singles>) -> Self {
        Self { writer, contention, singles, pace: Arc::new(Pace::new()), faults_max: BATCH_COMMIT.attempts }
    }

    /// Returns the registry of the waiting requests of the process.
    pub fn completions(&self) -> &Completions {
        &self.writer.completions
    }

    /// Returns whether the gate gives permits now.
    pub fn may_post(&self) -> bool {
        self.writer.permits.is_open()
    }

    /// Posts items of a batch that was received at `accepted_at` and returns their results by line. The items of an
    /// account are posted in order. The call can be repeated. Accounts with a transient fault are tried again while the
    /// gate is released; each commit has a permit of the gate.
    ///
    /// # Errors
    /// [`PostFault`] of an account, or after several transient faults without a success in between, or
    /// [`PostFault::GateHeld`]. Some of the items may be posted.
    pub async fn post(
        &self,
        key: &BatchKey,
        accepted_at: Timestamp,
        items: Vec<Item>,
    ) -> Result<Vec<ItemResult>, PostFault> {
        let _work = self.writer.permits.begin_work();
        // Adjacent accounts are posted together.
        let mut accounts: BTreeMap<(u64, AccountKey), VecDeque<Item>> = BTreeMap::new();
        for item in items {
            accounts.entry((item.account.position(), item.account)).or_default().push_back(item);
        }
        let together = self.writer.ledger.joint_steps().map_or(1, JointSteps::accounts_max);
        let accounts =
            accounts.into_iter().map(|((_, account), items)| Open::new(key, accepted_at, account, items));
        let (mut accounts, mut left) = (accounts.fuse(), Vec::<Vec<Open<'_>>>::new());
        let (mut posts, mut results) = (FuturesUnordered::new(), Vec::new());
        let (mut failures, mut permanent, mut transient) = (0_u32, None, None);
        loop {
            while transient.is_none() && posts.len() < self.pace.commits() {
                // New accounts come first: an account that always fails must not keep others from being tried.
                let new: Vec<Open<'_>> = accounts.by_ref().take(together).collect();
                let next = if new.is_empty() { left.pop().unwrap_or_default() } else { new };
                if next.is_empty() {
                    break;
                }
                let begun = Begun { failures, halvings: self.pace.halvings() };
                posts.push(self.post_after(begun, next));
            }
            let Some((begun, mut posted)) = posts.next().await else { break };
            if !posted.done.is_empty() {
                failures = 0;
                self.pace.speed_up();
            }
            results.append(&mut posted.done);
            left.append(&mut posted.left);
            match posted.fault {
                None => {}
                // It neither stops the other accounts nor interrupts their commits.
                Some(fault) if !fault.is_transient() => permanent = Some(fault),
                Some(fault) => {
                    // Faults of commits that began before the last counted fault count as part of it.
                    if begun.failures == failures {
                        failures = failures.saturating_add(1);
                    }
                    if matches!(fault, PostFault::Ledger(_)) {
                        self.pace.slow_down(begun.halvings);
                    }
                    if !self.may_post() {
                        transient = Some(PostFault::GateHeld);
                    } else if failures >= self.faults_max {
                        transient = Some(fault);
                    }
                }
            }
        }
        // A transient fault comes first: a retry can help the other accounts before an operator is needed.
        if let Some(fault) = transient.or(permanent) {
            return Err(fault);
        }
        results.sort_unstable_by_key(|result: &ItemResult| result.line);
        Ok(results)
    }

    /// Posts on accounts, after a pause if there were failures, unless the gate is held by then.
    async fn post_after<'a>(&self, begun: Begun, accounts: Vec<Open<'a>>) -> (Begun, Posted<'a>) {
        if begun.failures > 0 {
            BATCH_COMMIT.pause(begun.failures, &*self.writer.world).await;
            if !self.may_post() {
                let fault = Some(PostFault::GateHeld);
                return (begun, Posted { left: vec![accounts], fault, ..Posted::default() });
            }
        }
        (begun, self.post_accounts(accounts).await)
    }

    async fn post_accounts<'a>(&self, accounts: Vec<Open<'a>>) -> Posted<'a> {
        match (self.writer.ledger.joint_steps(), accounts) {
            (Some(steps), accounts) if accounts.len() > 1 => self.post_together(steps, accounts).await,
            (_, accounts) => {
                let mut posted = Posted::default();
                for mut open in accounts {
                    let account = [open.account];
                    let result = self.writer.guard(&account, self.post_account(&mut open)).await;
                    posted.done.append(&mut open.results);
                    if let Err(fault) = result.and_then(|result| result) {
                        if fault.is_transient() {
                            posted.left.push(vec![open]);
                        }
                        posted.fault = Some(fault);
                    }
                }
                posted
            }
        }
    }

    /// Posts on several accounts together as long as every attempt is written. Accounts that need more than another
    /// commit are returned for separate attempts.
    async fn post_together<'a>(&self, steps: &dyn JointSteps, mut accounts: Vec<Open<'a>>) -> Posted<'a> {
        let mut posted = Posted::default();
        while !accounts.is_empty() {
            // The permit comes before the locks: a single request on one of the accounts must not wait for a permit of a batch.
            let permit = self.singles.permit(accounts.len()).await;
            let mut next = accounts.split_off(accounts.len().saturating_sub(permit.commits));
            // All tasks take locks in the order of the accounts, so there is no deadlock.
            next.sort_unstable_by_key(|open| open.account);
            let keys: Vec<AccountKey> = next.iter().map(|open| open.account).collect();
            let mut locks = Vec::with_capacity(keys.len());
            for account in &keys {
                locks.push(self.writer.locks.take(*account).await);
            }
            let attempt = self.writer.guard(&keys, self.attempt_together(steps, &mut next)).await;
            match attempt.and_then(|result| result) {
                Ok(()) => {}
                // The account that caused the fault is unknown.
                Err(fault) if !fault.is_transient() => {
                    posted.left.extend(next.drain(..).map(|open| vec![open]));
                }
                Err(fault) => {
                    accounts.append(&mut next);
                    posted.left.push(accounts);
                    posted.fault = Some(fault);
                    return posted;
                }
            }
            for mut open in next {
                if open.is_finished() {
                    posted.done.append(&mut open.results);
                } else if std::mem::take(&mut open.is_written) {
                    accounts.push(open);
                } else {
                    posted.left.push(vec![open]);
                }
            }
        }
        posted
    }

    /// Decides and commits once for each account.
    async fn attempt_together(
        &self,
        steps: &dyn JointSteps,
        accounts: &mut [Open<'_>],
    ) -> Result<(), PostFault> {
        let (mut next, mut groups) = (Vec::new(), Vec::new());
        for open in accounts {
            if let Some(lines) = open.next_lines() {
                groups.push(open.group(&lines, true));
                next.push((open, lines));
            }
        }
        if groups.is_empty() {
            return Ok(());
        }
        let attempts = self.writer.write_together(steps, Caller::Batch, &mut groups).await?;
        for (attempt, (open, lines)) in attempts.into_iter().zip(next) {
            open.is_written = matches!(self.settle(open, &lines, attempt), Next::Commit);
        }
        Ok(())
    }

    async fn post_account(&self, open: &mut Open<'_>) -> Result<(), PostFault> {
        let (contention, world) = (&self.contention, &self.writer.world);
        let account = open.account;
        let (mut stale, mut taken, mut early, mut stuck) = (0_u32, 0_u32, 0_u32, 0_u32);
        while let Some(lines) = open.next_lines() {
            let attempt = {
                // The permit comes before the lock: a single request on the account must not wait for a permit of a batch.
                let _permit = self.singles.permit(1).await;
                let _lock = self.writer.locks.take(account).await;
                let mut group = open.group(&lines, early < EARLY_MAX);
                self.writer.write(Caller::Batch, &mut group).await?
            };
            match self.settle(open, &lines, attempt) {
                Next::Commit => (stale, taken, early, stuck) = (0, 0, 0, 0),
                Next::Reload => {
                    stale = stale.saturating_add(1);
                    match stale {
                        // Usually only the cached account was outdated.
                        1 => {}
                        2 => contention.send(account),
                        _ if stale > ACCOUNT_WRITE.attempts => return Err(PostFault::Contended),
                        _ => ACCOUNT_WRITE.pause(stale, &**world).await,
                    }
                }
                Next::Wait => {
                    early = early.saturating_add(1);
                    ACCOUNT_WRITE.pause(early, &**world).await;
                }
                Next::Read(keys) => {
                    let keys = if taken >= TAKEN_MAX { lines.keys() } else { keys };
                    taken = taken.saturating_add(1);
                    let is_progress = self.read_rows(open, &keys).await?;
                    stuck = if is_progress { 0 } else { stuck.saturating_add(1) };
                    if stuck > ACCOUNT_WRITE.attempts {
                        return Err(PostFault::Contended);
                    }
                }
                Next::Fail(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Returns the step after an attempt. Records the results of a written one.
    fn settle(&self, open: &mut Open<'_>, lines: &Lines, attempt: Attempt) -> Next {
        match attempt {
            Attempt::Written(decided) => {
                open.finish(lines, &decided);
                Next::Commit
            }
            Attempt::Stale => {
                self.writer.cache.mark_stale(open.account);
                // A row that was read before may have changed as well.
                if lines.accepted.is_empty() { Next::Reload } else { Next::Read(lines.keys()) }
            }
            Attempt::Early => Next::Wait,
            Attempt::Taken(keys) | Attempt::RowsChanged(keys) => Next::Read(keys),
            Attempt::AccountUnknown => Next::Fail(PostFault::AccountUnknown),
        }
    }

    /// Reads the rows of taken keys. Returns whether one of them is new or has changed.
    async fn read_rows(&self, open: &mut Open<'_>, keys: &[TransactionKey]) -> Result<bool, PostFault> {
        let rows = self.writer.ledger.transactions(keys).await?;
        let mut is_progress = false;
        for row in rows.into_iter().flatten() {
            is_progress |= open.note_row(row);
        }
        Ok(is_progress)
    }
}
