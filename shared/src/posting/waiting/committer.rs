//! Posts the requests on one account that arrived together.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::contended_accounts::ContendedAccounts;
use super::open_work::OpenWork;
use super::{Attempted, QueueReason, Request};
use crate::cluster::registration::Registration;
use crate::domain::decision::{Decided, Pending};
use crate::domain::ids::{AccountKey, TransactionKey};
use crate::ports::fault::{StoreFault, chain};
use crate::posting::PostFault;
use crate::posting::writer::{Attempt, Caller, Group, Order, Writer};

/// Number of refused commits after which an account is avoided.
const STALE_MAX: u32 = 2;
/// Number of commits with taken keys after which all keys are read, because the store may name only one of them.
const TAKEN_MAX: u32 = 2;

pub(super) struct Committer {
    pub(super) writer: Arc<Writer>,
    /// Valid while this process is registered and does not drain.
    pub(super) registration: Arc<Registration>,
    /// The work that this process put on the queue.
    pub(super) open_work: Arc<OpenWork>,
    pub(super) avoided: ContendedAccounts,
}

/// The unanswered requests of a group in order, each with its position in the group.
type Open = Vec<(usize, Request)>;

/// The requests of a group and their answers.
struct Requests {
    open: Open,
    answers: Vec<Attempted>,
}

impl Requests {
    /// If a key occurs several times, the first request is posted and the others find the key taken.
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

    /// Answers the open requests for which `answer` returns an answer.
    fn settle(&mut self, answer: impl Fn(&Request) -> Option<Attempted>) {
        for (position, request) in std::mem::take(&mut self.open) {
            match answer(&request) {
                Some(answer) => self.answer(position, answer),
                None => self.open.push((position, request)),
            }
        }
    }

    /// Answers the open requests with the outcomes of the decided transactions, which are in the same order.
    fn finish(&mut self, decided: Vec<Decided>) {
        for ((position, _), decided) in std::mem::take(&mut self.open).into_iter().zip(decided) {
            self.answer(position, Ok(decided.outcome));
        }
    }

    fn send_all_to_queue(&mut self, reason: QueueReason) {
        self.settle(|_| Some(Err(reason)));
    }
}

impl Committer {
    /// Checks whether requests on an account can currently be posted at once.
    pub(super) fn check(&self, account: AccountKey) -> Result<(), QueueReason> {
        let Writer { ledger, permits, world, .. } = &*self.writer;
        if !self.registration.is_valid(world.uptime()) {
            return Err(QueueReason::Unregistered);
        }
        if !permits.is_open() {
            return Err(QueueReason::GateHeld);
        }
        if !ledger.checks_order() && self.open_work.is_open(account) {
            return Err(QueueReason::OpenWork);
        }
        if self.avoided.contains(account, &**world) {
            return Err(QueueReason::Contended);
        }
        Ok(())
    }

    /// Posts a group of requests on one account and returns one answer per request, in the same order.
    pub(super) async fn post(&self, account: AccountKey, group: Vec<Request>) -> Vec<Attempted> {
        let size = group.len();
        let posted = self.writer.guard(&[account], self.post_group(account, group)).await;
        posted.unwrap_or_else(|_| vec![Err(QueueReason::Fault); size])
    }

    async fn post_group(&self, account: AccountKey, group: Vec<Request>) -> Vec<Attempted> {
        let mut group = Requests::new(group);
        let _lock = self.writer.locks.take(account).await;
        // The permit is held until the end of this function, so that a held gate waits for it.
        let permit = self.writer.permits.enter();
        match self.check(account) {
            Ok(()) if permit.is_some() => self.post_open(account, &mut group).await,
            Ok(()) => group.send_all_to_queue(QueueReason::GateHeld),
            Err(reason) => group.send_all_to_queue(reason),
        }
        group.answers
    }

    async fn post_open(&self, account: AccountKey, group: &mut Requests) {
        let (mut stale, mut taken) = (0_u32, 0_u32);
        loop {
            // Rights may have changed while the request waited for the account or for an earlier attempt.
            group.settle(|it| (!it.standing.is_current()).then_some(Err(QueueReason::RightsChanged)));
            if group.open.is_empty() {
                return;
            }
            match self.attempt(account, group).await {
                // All requests have left the group.
                Ok(Attempt::Written(decided)) if decided.is_empty() => return,
                Ok(Attempt::Written(decided)) => {
                    group.finish(decided);
                    return self.avoided.succeeded(account, &*self.writer.world);
                }
                Ok(Attempt::Stale | Attempt::RowsChanged(_)) => {
                    self.writer.cache.mark_stale(account);
                    stale = stale.saturating_add(1);
                    if stale >= STALE_MAX {
                        self.avoided.contended(account, &*self.writer.world);
                        return group.send_all_to_queue(QueueReason::Contended);
                    }
                }
                Ok(Attempt::Taken(keys)) => {
                    let mut keys: BTreeSet<TransactionKey> = keys.into_iter().collect();
                    taken = taken.saturating_add(1);
                    if taken == TAKEN_MAX {
                        match self.existing(&group.open).await {
                            Ok(existing) => keys.extend(existing),
                            Err(fault) => return group.send_all_to_queue(log_fault(account, &fault.into())),
                        }
                    }
                    let before = group.open.len();
                    group.settle(|it| keys.contains(&it.new.key).then_some(Err(QueueReason::KeyTaken)));
                    if group.open.len() == before {
                        // The store named only keys of other transactions, so no attempt can succeed.
                        return group.send_all_to_queue(QueueReason::Fault);
                    }
                }
                Ok(Attempt::Early) => return group.send_all_to_queue(QueueReason::OpenWork),
                Ok(Attempt::AccountUnknown) => return group.send_all_to_queue(QueueReason::Fault),
                Err(fault) => return group.send_all_to_queue(log_fault(account, &fault)),
            }
        }
    }

    /// Decides and commits once. Removes requests whose rejection may depend on accepted work or whose rights have changed.
    async fn attempt(&self, account: AccountKey, group: &mut Requests) -> Result<Attempt, PostFault> {
        let pending = group.open.iter().map(|(_, it)| Pending::from(it.new.clone())).collect();
        let standings = group.open.iter().map(|(_, it)| it.standing.clone()).collect();
        let mut writing = Group::new(account, pending, Order::AfterAccepted).admitted_on(standings);
        let attempt = self.writer.write(Caller::Waiting, &mut writing).await;
        if !writing.left_out.is_empty() {
            let reason = |it: &Request| {
                if it.standing.is_unchanged() { QueueReason::Rejection } else { QueueReason::RightsChanged }
            };
            group.settle(|it| writing.left_out.contains(&it.new.key).then(|| Err(reason(it))));
        }
        attempt
    }

    /// Returns the keys of the open requests that the log contains.
    async fn existing(&self, open: &Open) -> Result<Vec<TransactionKey>, StoreFault> {
        let keys: Vec<TransactionKey> = open.iter().map(|(_, it)| it.new.key.clone()).collect();
        let rows = self.writer.ledger.transactions(&keys).await?;
        Ok(rows.into_iter().flatten().map(|row| row.submission.key).collect())
    }
}

fn log_fault(account: AccountKey, fault: &PostFault) -> QueueReason {
    tracing::warn!(%account, "Requests on account {account} take the queue: {}", chain(fault));
    QueueReason::Fault
}
