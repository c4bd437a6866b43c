//! Commits the requests of one account that arrived together.

use std::collections::BTreeSet;

use super::avoided::AvoidedAccounts;
use super::{Attempted, ImmediateParts, QueueReason, Request};
use crate::domain::account::{Account, Versioned};
use crate::domain::decision::{AccountCommit, DecisionContext, Pending, decide};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::ports::fault::{StoreFault, chain};
use crate::ports::ledger::Committed;
use crate::ports::world::WorldExt as _;
use crate::protocol::posting_latency::Way;
use crate::protocol::traced::traced_commit;

/// Refused commits after which an account is avoided.
const STALE_MAX: u32 = 2;
/// Commits with taken keys after which all keys are read: the store may name only one of them.
const TAKEN_MAX: u32 = 2;

/// Posts groups of requests.
pub(super) struct Committer {
    pub(super) parts: ImmediateParts,
    pub(super) avoided: AvoidedAccounts,
}

/// The requests of a group that have no answer yet, in their order, each with its position in the group.
type Open = Vec<(usize, Request)>;

/// A group in progress.
struct Group {
    open: Open,
    answers: Vec<Attempted>,
}

/// Result of one attempt.
enum Attempt {
    /// The commit was written, and its requests have their answers.
    Done,
    /// The account changed after it was read.
    Stale,
    /// These keys exist.
    Taken(BTreeSet<TransactionKey>),
    /// No request of the group can be served at once.
    Refused(QueueReason),
}

impl Group {
    /// A key that occurs several times is posted for the first request; the others find it taken.
    fn new(group: Vec<Request>) -> Self {
        let mut known = BTreeSet::new();
        let answers = vec![Err(QueueReason::KeyTaken); group.len()];
        let firsts = group.into_iter().enumerate().filter(|(_, it)| known.insert(it.new.key.clone()));
        Self { open: firsts.collect(), answers }
    }

    fn answer(&mut self, position: usize, answer: Attempted) {
        if let Some(place) = self.answers.get_mut(position) {
            *place = answer;
        }
    }

    /// Answers the open requests to which `answer` returns one.
    fn settle(&mut self, answer: impl Fn(&Request) -> Option<Attempted>) {
        for (position, request) in std::mem::take(&mut self.open) {
            match answer(&request) {
                Some(answer) => self.answer(position, answer),
                None => self.open.push((position, request)),
            }
        }
    }

    fn send_all_to_queue(&mut self, reason: QueueReason) {
        self.settle(|_| Some(Err(reason)));
    }
}

impl Committer {
    /// Checks whether requests on an account can be served at once now.
    pub(super) fn check(&self, account: AccountKey) -> Result<(), QueueReason> {
        let ImmediateParts { ledger, permits, registration, open_work, world, .. } = &self.parts;
        if !permits.is_open() {
            return Err(QueueReason::GateHeld);
        }
        if !registration.is_valid(world.uptime()) {
            return Err(QueueReason::Unregistered);
        }
        if !ledger.checks_order() && open_work.is_open(account) {
            return Err(QueueReason::OpenWork);
        }
        if self.avoided.contains(account, &**world) {
            return Err(QueueReason::Contended);
        }
        Ok(())
    }

    /// Posts a group of requests on one account, and returns one answer each, in their order.
    pub(super) async fn post(&self, account: AccountKey, group: Vec<Request>) -> Vec<Attempted> {
        let mut group = Group::new(group);
        let _lock = self.parts.locks.take(account).await;
        // Until the end of this function nothing is in progress that a held gate forbids.
        let permit = self.parts.permits.enter();
        match self.check(account) {
            Ok(()) if permit.is_some() => self.post_open(account, &mut group).await,
            Ok(()) => group.send_all_to_queue(QueueReason::GateHeld),
            Err(reason) => group.send_all_to_queue(reason),
        }
        group.answers
    }

    async fn post_open(&self, account: AccountKey, group: &mut Group) {
        let (mut stale, mut taken) = (0_u32, 0_u32);
        loop {
            // They may have waited for the account, or for an attempt before.
            group.settle(|it| (!it.standing.is_current()).then_some(Err(QueueReason::RightsChanged)));
            if group.open.is_empty() {
                return;
            }
            match self.attempt(account, group).await {
                Attempt::Done => return self.avoided.succeeded(account, &*self.parts.world),
                Attempt::Stale => {
                    self.parts.cache.mark_stale(account);
                    stale = stale.saturating_add(1);
                    if stale >= STALE_MAX {
                        self.avoided.contended(account, &*self.parts.world);
                        return group.send_all_to_queue(QueueReason::Contended);
                    }
                }
                Attempt::Taken(mut keys) => {
                    taken = taken.saturating_add(1);
                    if taken == TAKEN_MAX {
                        match self.existing(&group.open).await {
                            Ok(existing) => keys.extend(existing),
                            Err(fault) => return group.send_all_to_queue(log_fault(account, &fault)),
                        }
                    }
                    let before = group.open.len();
                    group.settle(|it| keys.contains(&it.new.key).then_some(Err(QueueReason::KeyTaken)));
                    if group.open.len() == before {
                        // The store names keys of other transactions, so no attempt can succeed.
                        return group.send_all_to_queue(QueueReason::Fault);
                    }
                }
                Attempt::Refused(reason) => return group.send_all_to_queue(reason),
            }
        }
    }

    /// Decides and commits once. Requests that have to take the queue leave the group.
    async fn attempt(&self, account: AccountKey, group: &mut Group) -> Attempt {
        let ImmediateParts { ledger, cache, tracer, .. } = &self.parts;
        let read = match cache.load(&**ledger, account).await {
            Ok(Some(read)) => read,
            Ok(None) => return Attempt::Refused(QueueReason::Fault),
            Err(fault) => return Attempt::Refused(log_fault(account, &fault)),
        };
        let Some(commit) = self.decide(&read, group).await else {
            return Attempt::Refused(QueueReason::Fault);
        };
        let origins = group.open.iter().map(|(_, it)| &it.new.origin);
        match traced_commit(tracer, &**ledger, &commit, origins).await {
            Ok(Committed::Done { revision }) => {
                cache.put_written(&commit, revision);
                self.finish(&commit, group);
                Attempt::Done
            }
            Ok(Committed::Stale | Committed::RowsChanged(_)) => Attempt::Stale,
            Ok(Committed::Taken(keys)) => Attempt::Taken(keys.into_iter().collect()),
            Ok(Committed::Early) => Attempt::Refused(QueueReason::OpenWork),
            Err(fault) => {
                // The commit may have happened, or may still happen.
                cache.forget(account);
                Attempt::Refused(log_fault(account, &fault))
            }
        }
    }

    /// Decides the open requests. Those whose outcome may depend on accepted transactions leave the group. They change
    /// nothing on the account, so the outcomes of the others stay the same. Returns `None` if nothing can be committed.
    async fn decide(&self, read: &Versioned<Account>, group: &mut Group) -> Option<AccountCommit> {
        let ImmediateParts { ledger, numbers, world, .. } = &self.parts;
        let reserved = match numbers.take(group.open.len()).await {
            Ok(reserved) => reserved,
            Err(fault) => {
                tracing::warn!("Requests take the queue: {}", chain(&fault));
                return None;
            }
        };
        let context = DecisionContext { nonce: world.nonce(), now: world.now(), numbers: &reserved };
        let decide_open = |open: &Open| {
            let pending = open.iter().map(|(_, it)| Pending::from(it.new.clone())).collect();
            decide(read, pending, &context)
        };
        let mut decided = decide_open(&group.open);
        if !ledger.checks_order()
            && let Ok(commit) = &decided
        {
            let uncertain: BTreeSet<&TransactionKey> = commit
                .outcomes()
                .filter_map(|(key, outcome)| outcome.depends_on_balance().then_some(key))
                .collect();
            if !uncertain.is_empty() {
                group.settle(|it| uncertain.contains(&it.new.key).then_some(Err(QueueReason::Rejection)));
                decided = decide_open(&group.open);
            }
        }
        // From the commit on, the order numbers in it are used up, whether it succeeds or not.
        let used = decided.as_ref().map_or(0, AccountCommit::numbers_used);
        numbers.give_back(reserved.get(used..).unwrap_or_default().to_vec());
        let mut commit = decided.ok()?;
        commit.after_accepted = true;
        Some(commit)
    }

    fn finish(&self, commit: &AccountCommit, group: &mut Group) {
        self.parts.posted.note(commit.outcomes());
        for (key, outcome) in commit.outcomes() {
            self.parts.completions.complete(key, outcome);
        }
        let answers = std::mem::take(&mut group.open).into_iter().zip(commit.outcomes());
        let now = self.parts.world.now();
        for ((position, Request { new, .. }), (_, outcome)) in answers {
            self.parts.latency.record(Way::Immediate, now.since(new.accepted_at), 1);
            self.parts.latency.count(Way::Immediate, [outcome]);
            group.answer(position, Ok(outcome.clone()));
        }
    }

    /// Returns the keys that exist.
    async fn existing(&self, open: &Open) -> Result<Vec<TransactionKey>, StoreFault> {
        let keys: Vec<TransactionKey> = open.iter().map(|(_, it)| it.new.key.clone()).collect();
        let rows = self.parts.ledger.transactions(&keys).await?;
        Ok(rows.into_iter().flatten().map(|row| row.transaction.key).collect())
    }
}

fn log_fault(account: AccountKey, fault: &StoreFault) -> QueueReason {
    tracing::warn!(%account, "Requests on account {account} take the queue: {}", chain(fault));
    QueueReason::Fault
}
