//! The workers, which post and settle: receive, load, commit, and then delete.
//!
//! Each worker has one round at a time, which is equivalent to the serialized work on an account within a
//! process. Dead letters (progress holds without them) and renewals (a renewed lease has not ended) are
//! left out.

use super::ledger::decide;
use super::rules::{Mutation, Rules};
use super::state::{Account, Commit, KEYS, Late, Lease, Owner, Stage, State, Status, Worker};
use crate::model::request_outcome::RequestOutcome;

impl State {
    /// A round starts.
    pub(super) fn begin_round(&mut self, worker: usize, places: &[usize], rules: &Rules) {
        self.receive(worker, places);
        self.workers[worker].stage = self.workers[worker].after_reload();
        if rules.breaks(Mutation::DeleteBeforeCommit) {
            self.queue.retain(|message| message.lease != Lease::Held(worker));
        }
    }

    /// Reads the account.
    pub(super) fn load(&mut self, worker: usize) {
        self.workers[worker].cache = Some(self.account);
        self.workers[worker].stage = Stage::Committing { unclear: false };
    }

    /// Sends a commit, for the first time or again.
    pub(super) fn worker_commit(&mut self, worker: usize, outcome: RequestOutcome, rules: &Rules) {
        let (Stage::Committing { unclear }, Some(plan)) = (self.workers[worker].stage, self.plan_of(worker))
        else {
            return;
        };
        match outcome {
            RequestOutcome::Answered if self.commit(&plan, None, rules) => {
                let after = Account { balance: plan.balance, version: self.account.version };
                self.done(worker, &plan, Some(after));
            }
            RequestOutcome::Answered if unclear => {
                self.workers[worker].stage = Stage::ReadingBack { refused: true };
            }
            RequestOutcome::Answered => self.stale(worker, rules),
            RequestOutcome::AnswerLost => {
                self.commit(&plan, Some(Owner::Worker(worker)), rules);
                self.unclear(worker, &plan, rules);
            }
            RequestOutcome::RequestLost => self.unclear(worker, &plan, rules),
            RequestOutcome::Late => {
                self.delay(Late::Commit(plan.clone(), Some(Owner::Worker(worker))));
                self.unclear(worker, &plan, rules);
            }
        }
    }

    /// The decision of a worker. It is a pure function, so it need not be stored.
    fn plan_of(&self, worker: usize) -> Option<Commit> {
        let Worker { cache, work, .. } = &self.workers[worker];
        cache.map(|account| decide(self, account, work))
    }

    /// Handles a commit without an answer.
    fn unclear(&mut self, worker: usize, plan: &Commit, rules: &Rules) {
        if rules.breaks(Mutation::UnclearIsDone) {
            let last: Vec<usize> = plan.finalizations.iter().map(|last| last.key).collect();
            self.settled(worker, &last);
        } else if rules.breaks(Mutation::UnclearIsFailed) {
            self.stale(worker, rules);
        } else {
            self.workers[worker].stage = Stage::ReadingBack { refused: false };
        }
    }

    /// Reads whether the commit was written. A commit is written as a whole, so one row is sufficient. If
    /// the row is not found the commit may still arrive, so it is sent again until the guards refuse it.
    pub(super) fn read_back(&mut self, worker: usize, rules: &Rules) {
        let (Stage::ReadingBack { refused }, Some(plan)) = (self.workers[worker].stage, self.plan_of(worker))
        else {
            return;
        };
        let row = plan.finalizations.first().and_then(|first| self.rows[first.key]);
        let is_own = row.is_some_and(|row| {
            let by_status = rules.breaks(Mutation::RecognizeByStatus) && row.status != Status::Accepted;
            row.decided_by == Some(Owner::Worker(worker)) || by_status
        });
        if is_own {
            // The account may have changed since then.
            self.done(worker, &plan, None);
        } else if refused {
            self.stale(worker, rules);
        } else {
            self.workers[worker].stage = Stage::Committing { unclear: true };
        }
    }

    /// Announces the outcomes of a written commit.
    fn done(&mut self, worker: usize, plan: &Commit, after: Option<Account>) {
        for last in &plan.finalizations {
            self.violations.wrong_announcement |=
                self.rows[last.key].is_none_or(|row| row.status != last.status);
        }
        let keys: Vec<usize> = plan.finalizations.iter().map(|last| last.key).collect();
        self.settled(worker, &keys);
        self.workers[worker].cache = after;
    }

    /// Marks work as final, so that its messages can be deleted.
    fn settled(&mut self, worker: usize, keys: &[usize]) {
        self.forget_nonce(Owner::Worker(worker));
        for key in keys {
            self.workers[worker].settled[*key] = true;
        }
        self.settle_round(worker);
    }

    /// Reads the rows and the account again, because something had changed.
    fn stale(&mut self, worker: usize, rules: &Rules) {
        self.forget_nonce(Owner::Worker(worker));
        if !rules.breaks(Mutation::KeepOldCache) {
            self.workers[worker].cache = None;
        }
        self.workers[worker].stage = Stage::Reloading(0);
    }

    /// Reads one row: final work is settled, other work gets the current revision of its row.
    pub(super) fn reload(&mut self, worker: usize, rules: &Rules) {
        let Stage::Reloading(place) = self.workers[worker].stage else { return };
        let Some(key) = self.workers[worker].work.get(place).map(|work| work.key) else { return };
        let ignores_status = rules.breaks(Mutation::UnclearIsFailed);
        let done = self.is_final(key) && !ignores_status;
        let Some(row) = self.rows[key] else { return };
        let process = &mut self.workers[worker];
        let next = if done {
            process.work.remove(place);
            process.settled[key] = true;
            place
        } else {
            process.work[place].revision = row.revision;
            place.saturating_add(1)
        };
        if next < process.work.len() {
            process.stage = Stage::Reloading(next);
        } else if process.work.is_empty() {
            self.settle_round(worker);
        } else {
            process.stage = process.after_reload();
        }
    }

    /// Gives up on a store that does not answer: unfinished work returns to the queue.
    pub(super) fn give_up(&mut self, worker: usize) {
        if !matches!(self.workers[worker].stage, Stage::ReadingBack { refused: false }) {
            self.budget.losses = self.budget.losses.saturating_sub(1);
        }
        self.forget_nonce(Owner::Worker(worker));
        self.workers[worker].cache = None;
        self.settle_round(worker);
    }

    fn settle_round(&mut self, worker: usize) {
        self.workers[worker].work.clear();
        self.workers[worker].stage = Stage::Settling;
        self.end_round(worker);
    }

    /// Deletes a message whose work is final, or releases it with its remaining work.
    pub(super) fn settle(&mut self, worker: usize, place: usize, outcome: RequestOutcome, rules: &Rules) {
        match (self.is_deletable(worker, place, rules), outcome) {
            (true, RequestOutcome::Answered | RequestOutcome::AnswerLost) => drop(self.queue.remove(place)),
            (true, RequestOutcome::Late) => self.set_lease(place, Lease::LateDelete),
            (false, RequestOutcome::Answered) => {
                let settled = self.workers[worker].settled;
                for key in (0..KEYS).filter(|key| settled[*key]) {
                    self.queue[place].items[key] = None;
                }
                self.set_lease(place, Lease::Free);
            }
            // The message becomes visible when its lease ends.
            (_, RequestOutcome::RequestLost) | (false, RequestOutcome::AnswerLost | RequestOutcome::Late) => {
                self.set_lease(place, Lease::Free);
            }
        }
        self.end_round(worker);
    }

    /// Whether the worker knows that all work of a message is final.
    pub(super) fn is_deletable(&self, worker: usize, place: usize, rules: &Rules) -> bool {
        let settled = self.workers[worker].settled;
        let items = self.queue[place].items;
        let mut keys = (0..KEYS).filter(|key| items[*key].is_some());
        if rules.breaks(Mutation::DeleteWithRest) {
            return keys.any(|key| settled[key]);
        }
        keys.all(|key| settled[key])
    }

    /// Ends a round when the worker holds no message any more.
    pub(super) fn end_round(&mut self, worker: usize) {
        let holds = self.queue.iter().any(|message| message.lease.holder() == Some(worker));
        if self.workers[worker].stage == Stage::Settling && !holds {
            let cache = self.workers[worker].cache;
            self.workers[worker] = Worker { cache, ..Worker::new() };
        }
    }

    /// A worker crashes and starts again; its memory is lost.
    pub(super) fn crash_worker(&mut self, worker: usize) {
        self.forget_nonce(Owner::Worker(worker));
        self.release_all(worker);
        self.workers[worker] = Worker::new();
    }
}

impl Worker {
    /// The stage before the next commit.
    fn after_reload(&self) -> Stage {
        if self.cache.is_some() { Stage::Committing { unclear: false } } else { Stage::Loading }
    }
}
