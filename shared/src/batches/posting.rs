//! Posts the items of a chunk: load → decide → commit, as [`crate::protocol::post`], with commits that insert.
//!
//! The insert of its key is the idempotency check of an item. If the key is taken, its row decides: the row of this very
//! line has the outcome; any other row with the same content makes the item a replay, and one with another content refuses
//! it. An accepted row with the same content becomes final in the commit. So what is reported of an item is in its row,
//! whichever worker wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, FuturesUnordered};
use futures::{StreamExt as _, TryStreamExt as _};

use super::items::{Item, ItemOutcome, ItemResult};
use crate::backoff::ACCOUNT_WRITE;
use crate::cluster::completions::Completions;
use crate::cluster::contention::ContentionNotices;
use crate::cluster::gate::permits::GatePermits;
use crate::domain::account::{Account, Versioned};
use crate::domain::batch::{BatchKey, ItemStatus};
use crate::domain::decision::{
    AccountCommit, DecisionContext, NewWork, Work, decide_with_new, reject_unknown,
};
use crate::domain::ids::{AccountKey, MessageId, TransactionKey};
use crate::domain::journal::PAGE_ENTRIES_MAX;
use crate::domain::time::Timestamp;
use crate::domain::transaction::{BatchLine, Outcome};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::{Committed, Ledger, StoredTransaction};
use crate::ports::world::{World, WorldExt as _};
use crate::protocol::account_cache::AccountCache;
use crate::protocol::account_locks::AccountLocks;
use crate::protocol::immediate::ImmediateParts;
use crate::protocol::order_numbers::OrderNumbers;
use crate::protocol::post::PostFault;
use crate::protocol::singles::Singles;

/// Number of transaction rows of an account that are read concurrently.
const READS_AT_ONCE: usize = 16;
/// Commits with taken keys after which all keys are read: the store may name only one of them.
const TAKEN_MAX: u32 = 1;
/// Attempts that wait for accepted transactions of the account, about a second together.
const EARLY_MAX: u32 = 8;

/// Posts items of batches.
#[derive(Clone)]
pub struct ItemPoster {
    ledger: Arc<dyn Ledger>,
    numbers: Arc<OrderNumbers>,
    world: Arc<dyn World>,
    completions: Arc<Completions>,
    cache: Arc<AccountCache>,
    locks: AccountLocks,
    permits: Arc<GatePermits>,
    contention: Arc<dyn ContentionNotices>,
    singles: Arc<Singles>,
}

/// The items of one account that have no result yet, and what is known of their rows.
struct Open<'a> {
    key: &'a BatchKey,
    accepted_at: Timestamp,
    account: AccountKey,
    items: Vec<Item>,
    /// Rows of taken keys.
    rows: BTreeMap<MessageId, StoredTransaction>,
    results: Vec<ItemResult>,
}

/// The next commit on an account.
#[derive(Default)]
struct Group {
    /// Accepted transactions that become final.
    accepted: Vec<Work>,
    /// The lines of their items.
    accepted_lines: Vec<u32>,
    /// New transactions.
    new: Vec<NewWork>,
}

/// Result of one attempt.
enum Attempt {
    /// The commit was written, and its items have their results.
    Done,
    /// The account changed after it was read.
    Stale,
    /// Accepted transactions of the account come first.
    Early,
    /// These keys exist, or their rows changed.
    Taken(Vec<TransactionKey>),
}

impl ItemPoster {
    /// Creates the poster of a process, which shares what the immediate posting of the process uses. Other processes are
    /// notified of contended accounts, and single requests come first.
    pub fn new(
        parts: &ImmediateParts,
        contention: Arc<dyn ContentionNotices>,
        singles: Arc<Singles>,
    ) -> Self {
        Self {
            ledger: Arc::clone(&parts.ledger),
            numbers: Arc::clone(&parts.numbers),
            world: Arc::clone(&parts.world),
            completions: Arc::clone(&parts.completions),
            cache: Arc::clone(&parts.cache),
            locks: parts.locks.clone(),
            permits: Arc::clone(&parts.permits),
            contention,
            singles,
        }
    }

    /// Returns whether the gate is released, as this process knows it.
    pub fn may_post(&self) -> bool {
        self.permits.is_open()
    }

    /// Posts items of a batch that was received at `accepted_at`, those of an account in their order, and returns their
    /// results by line. It can be repeated.
    ///
    /// # Errors
    /// [`PostFault`]; some of the items may be posted.
    pub async fn post(
        &self,
        key: &BatchKey,
        accepted_at: Timestamp,
        items: Vec<Item>,
    ) -> Result<Vec<ItemResult>, PostFault> {
        let mut accounts: BTreeMap<AccountKey, Vec<Item>> = BTreeMap::new();
        for item in items {
            accounts.entry(item.account).or_default().push(item);
        }
        let (mut accounts, mut posts) = (accounts.into_iter(), FuturesUnordered::new());
        let (mut results, mut worst) = (Vec::new(), None);
        // A fault of one account does not stop the others, or interrupt their commits.
        loop {
            while posts.len() < Singles::COMMITS_MAX
                && let Some((account, items)) = accounts.next()
            {
                let (rows, results) = (BTreeMap::new(), Vec::new());
                posts.push(self.post_account(Open { key, accepted_at, account, items, rows, results }));
            }
            let Some(posted) = posts.next().await else { break };
            match posted {
                Ok(mut posted) => results.append(&mut posted),
                // A retry helps with some of the accounts, so it comes before the help of an operator.
                Err(fault) if worst.is_none() || fault.is_transient() => worst = Some(fault),
                Err(_) => {}
            }
        }
        if let Some(fault) = worst {
            return Err(fault);
        }
        results.sort_unstable_by_key(|result| result.line);
        Ok(results)
    }

    async fn post_account(&self, mut open: Open<'_>) -> Result<Vec<ItemResult>, PostFault> {
        let Self { cache, contention, world, .. } = self;
        let account = open.account;
        let (mut stale, mut taken, mut early, mut stuck) = (0_u32, 0_u32, 0_u32, 0_u32);
        while let Some(group) = open.next_group() {
            let attempt = {
                // In this order: a single request on the account must not wait for a permit of a batch.
                let _permit = self.singles.permit().await;
                let _lock = self.locks.take(account).await;
                self.attempt(&mut open, &group, early < EARLY_MAX).await?
            };
            match attempt {
                Attempt::Done => (stale, taken, early, stuck) = (0, 0, 0, 0),
                Attempt::Stale => {
                    cache.mark_stale(account);
                    stale = stale.saturating_add(1);
                    match stale {
                        // Usually only the cached account was outdated.
                        1 => {}
                        2 => contention.send(account),
                        _ if stale > ACCOUNT_WRITE.attempts => return Err(PostFault::Contended),
                        _ => ACCOUNT_WRITE.pause(stale, &**world).await,
                    }
                }
                Attempt::Early => {
                    early = early.saturating_add(1);
                    ACCOUNT_WRITE.pause(early, &**world).await;
                }
                Attempt::Taken(keys) => {
                    let keys = if taken >= TAKEN_MAX { group.keys() } else { keys };
                    taken = taken.saturating_add(1);
                    let is_progress = self.read_rows(&mut open, &keys).await?;
                    stuck = if is_progress { 0 } else { stuck.saturating_add(1) };
                    if stuck > ACCOUNT_WRITE.attempts {
                        return Err(PostFault::Contended);
                    }
                }
            }
        }
        Ok(open.results)
    }

    /// Decides and commits once.
    async fn attempt(
        &self,
        open: &mut Open<'_>,
        group: &Group,
        is_patient: bool,
    ) -> Result<Attempt, PostFault> {
        let Self { ledger, cache, completions, .. } = self;
        let (account, fault) = (open.account, |fault| PostFault::Ledger(Arc::new(fault)));
        let Some(read) = cache.load(&**ledger, account).await.map_err(fault)? else {
            return self.reject(open, group).await;
        };
        let commit = self.decide(&read, group, is_patient).await?;
        let committed = match ledger.commit(&commit).await {
            Ok(committed) => committed,
            Err(error) => {
                // The commit may have happened.
                cache.forget(account);
                return Err(fault(error));
            }
        };
        match committed {
            Committed::Done { revision } => {
                match revision {
                    Some(revision) => {
                        cache.put_written(Versioned { value: commit.after.clone(), revision });
                    }
                    None => cache.forget(account),
                }
                for (key, outcome) in commit.outcomes() {
                    completions.complete(key, outcome);
                }
                open.finish(group, commit.outcomes().map(|(_, outcome)| outcome));
                Ok(Attempt::Done)
            }
            // A row that was read before may have changed as well.
            Committed::Stale if !group.accepted.is_empty() => {
                cache.mark_stale(account);
                Ok(Attempt::Taken(group.keys()))
            }
            Committed::Stale => Ok(Attempt::Stale),
            Committed::Early => Ok(Attempt::Early),
            Committed::Taken(keys) | Committed::RowsChanged(keys) => Ok(Attempt::Taken(keys)),
        }
    }

    async fn decide(
        &self,
        read: &Versioned<Account>,
        group: &Group,
        is_patient: bool,
    ) -> Result<AccountCommit, PostFault> {
        let Self { ledger, numbers, world, .. } = self;
        let count = group.accepted.len().saturating_add(group.new.len());
        let reserved = numbers.take(count).await.map_err(PostFault::OrderNumbers)?;
        let context = DecisionContext { nonce: world.nonce(), now: world.now(), numbers: &reserved };
        let decided = decide_with_new(read, &group.accepted, &group.new, &context);
        // From the commit on, the order numbers in it are used up, whether it succeeds or not.
        let used = decided.as_ref().map_or(0, AccountCommit::numbers_used);
        numbers.give_back(reserved.get(used..).unwrap_or_default().to_vec());
        let mut commit = decided.map_err(|error| PostFault::Undecidable(Arc::new(error)))?;
        // Transactions that were accepted before may be what the account pays with. They are waited for, but not for
        // ever: an account can have some all the time.
        commit.after_accepted = is_patient
            && ledger.checks_order()
            && group.accepted.is_empty()
            && commit.outcomes().any(|(_, outcome)| outcome.depends_on_balance());
        Ok(commit)
    }

    /// Rejects the items of an account that does not exist.
    async fn reject(&self, open: &mut Open<'_>, group: &Group) -> Result<Attempt, PostFault> {
        let Self { ledger, world, .. } = self;
        if !group.accepted.is_empty() {
            return Err(PostFault::AccountUnknown);
        }
        let commit = reject_unknown(open.account, &group.new, (world.nonce(), world.now()));
        let committed = ledger.reject_unknown(&commit).await;
        match committed.map_err(|fault| PostFault::Ledger(Arc::new(fault)))? {
            Committed::Done { revision: _ } => {
                open.finish(group, commit.insertions.iter().map(|insertion| &insertion.outcome));
                Ok(Attempt::Done)
            }
            Committed::Taken(keys) | Committed::RowsChanged(keys) => Ok(Attempt::Taken(keys)),
            Committed::Stale | Committed::Early => Ok(Attempt::Stale),
        }
    }

    /// Reads rows of taken keys. Returns whether one of them is new, or changed.
    async fn read_rows(&self, open: &mut Open<'_>, keys: &[TransactionKey]) -> Result<bool, PostFault> {
        let ledger = &self.ledger;
        let reads: Vec<_> = keys.iter().map(|key| ledger.transaction(key)).collect();
        let reads = stream::iter(reads).buffered(READS_AT_ONCE).try_collect();
        let rows: Result<Vec<Option<StoredTransaction>>, StoreFault> = reads.await;
        let mut is_progress = false;
        for row in rows.map_err(|fault| PostFault::Ledger(Arc::new(fault)))?.into_iter().flatten() {
            let revision = row.revision.clone();
            let before = open.rows.insert(row.transaction.key.message, row);
            is_progress |= before.is_none_or(|before| before.revision != revision);
        }
        Ok(is_progress)
    }
}

impl Group {
    fn keys(&self) -> Vec<TransactionKey> {
        let accepted = self.accepted.iter().map(|work| &work.key);
        accepted.chain(self.new.iter().map(|work| &work.key)).cloned().collect()
    }
}

impl Open<'_> {
    /// Settles the items whose rows are known to be final, and returns the next ones to commit; `None` if all items are
    /// settled. A key that occurs again waits for the row of its first item.
    fn next_group(&mut self) -> Option<Group> {
        let (mut group, mut keys, mut rest) = (Group::default(), BTreeSet::new(), Vec::new());
        for item in std::mem::take(&mut self.items) {
            let count = group.accepted.len().saturating_add(group.new.len());
            let row = self.rows.get(&item.message);
            if let Some(result) = row.and_then(|row| self.result_of(&item, row)) {
                self.results.push(result);
                continue;
            }
            if count < PAGE_ENTRIES_MAX && keys.insert(item.message) {
                match row.and_then(StoredTransaction::work) {
                    Some(work) => {
                        group.accepted.push(work);
                        group.accepted_lines.push(item.line);
                    }
                    None => group.new.push(self.new_work(&item)),
                }
            }
            rest.push(item);
        }
        self.items = rest;
        (!self.items.is_empty()).then_some(group)
    }

    fn new_work(&self, item: &Item) -> NewWork {
        NewWork {
            key: TransactionKey {
                account: self.account,
                partner: self.key.partner.clone(),
                message: item.message,
            },
            instruction: item.instruction.clone(),
            accepted_at: self.accepted_at,
            batch_line: Some(BatchLine { batch: self.key.batch, line: item.line }),
        }
    }

    /// Returns the result that a row proves; `None` if it has the content of the item and is not final.
    fn result_of(&self, item: &Item, row: &StoredTransaction) -> Option<ItemResult> {
        let result = |status, outcome| ItemResult { line: item.line, message: item.message, status, outcome };
        let own = BatchLine { batch: self.key.batch, line: item.line };
        if !item.instruction.matches(&row.fingerprint) {
            return Some(result(ItemStatus::Refused, ItemOutcome::KeyReused));
        }
        let outcome = row.transaction.outcome.as_ref()?;
        let status = match outcome {
            _ if row.batch_line != Some(own) => ItemStatus::Replayed,
            Outcome::Posted { .. } => ItemStatus::Posted,
            Outcome::Rejected { .. } => ItemStatus::Rejected,
        };
        Some(result(status, reported(outcome)))
    }

    /// Records the outcomes of a commit that was written, in its order.
    fn finish<'o>(&mut self, group: &Group, outcomes: impl Iterator<Item = &'o Outcome>) {
        let lines = group.accepted_lines.iter().copied();
        let accepted = lines.zip(&group.accepted).map(|(line, work)| (line, work.key.message, true));
        let new_lines = group.new.iter().filter_map(|work| Some((work.batch_line?.line, work)));
        let new = new_lines.map(|(line, work)| (line, work.key.message, false));
        let mut done = BTreeSet::new();
        for ((line, message, is_replay), outcome) in accepted.chain(new).zip(outcomes) {
            let status = match outcome {
                // It was accepted as a request of its own.
                _ if is_replay => ItemStatus::Replayed,
                Outcome::Posted { .. } => ItemStatus::Posted,
                Outcome::Rejected { .. } => ItemStatus::Rejected,
            };
            self.results.push(ItemResult { line, message, status, outcome: reported(outcome) });
            done.insert(line);
        }
        self.items.retain(|item| !done.contains(&item.line));
    }
}

fn reported(outcome: &Outcome) -> ItemOutcome {
    match outcome {
        Outcome::Posted { order_number, balance_after, .. } => {
            ItemOutcome::Posted { order_number: *order_number, balance_after: *balance_after }
        }
        Outcome::Rejected { reason, rejected_at: _ } => ItemOutcome::Rejected(*reason),
    }
}
