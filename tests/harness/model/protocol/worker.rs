//! The workers: `post` and `settle` of the bank. Receive, load, commit, and only then delete.
//!
//! One round at a time: within a process the turns of an account do the same. Left out: dead letters
//! (progress is shown without them) and renewals (a lease that is renewed has not ended).

use super::ledger::decide;
use super::rules::{Mutation, Rules};
use super::state::{Account, Commit, KEYS, Late, Lease, Stage, State, Status, Worker};
use crate::model::fate::Fate;

impl State {
    /// A round begins.
    pub(super) fn begin_round(&mut self, worker: usize, places: &[usize], rules: &Rules) {
        self.receive(worker, places);
        self.workers[worker].stage = self.workers[worker].after_reload();
        if rules.breaks(Mutation::DeleteBeforeCommit) {
            self.queue.retain(|message| message.lease != Lease::Held(worker));
        }
    }

    /// The account is read.
    pub(super) fn load(&mut self, worker: usize) {
        self.workers[worker].cache = Some(self.account);
        self.workers[worker].stage = Stage::Committing { unclear: false };
    }

    /// A commit is sent, or the same one again.
    pub(super) fn worker_commit(&mut self, worker: usize, fate: Fate, rules: &Rules) {
        let (Stage::Committing { unclear }, Some(plan)) = (self.workers[worker].stage, self.plan_of(worker))
        else {
            return;
        };
        match fate {
            Fate::Answered if self.commit(&plan, None, rules) => {
                let after = Account { balance: plan.balance, version: self.account.version };
                self.done(worker, &plan, Some(after));
            }
            Fate::Answered if unclear => {
                self.workers[worker].stage = Stage::ReadingBack { refused: true };
            }
            Fate::Answered => self.stale(worker, rules),
            Fate::AnswerLost => {
                self.commit(&plan, Some(worker), rules);
                self.unclear(worker, &plan, rules);
            }
            Fate::NeverArrives => self.unclear(worker, &plan, rules),
            Fate::Late => {
                self.delay(Late::Commit(plan.clone(), Some(worker)));
                self.unclear(worker, &plan, rules);
            }
        }
    }

    /// What the worker has decided: pure, so that it need not be remembered.
    fn plan_of(&self, worker: usize) -> Option<Commit> {
        let Worker { cache, work, .. } = &self.workers[worker];
        cache.map(|account| decide(self, account, work))
    }

    /// A commit had no answer.
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

    /// The worker reads back whether its commit was written. It is written whole, so one row tells.
    /// Not found proves nothing before the guards have refused it: then it is sent again.
    pub(super) fn read_back(&mut self, worker: usize, rules: &Rules) {
        let (Stage::ReadingBack { refused }, Some(plan)) = (self.workers[worker].stage, self.plan_of(worker))
        else {
            return;
        };
        let row = plan.finalizations.first().and_then(|first| self.rows[first.key]);
        let is_own = row.is_some_and(|row| {
            let by_status = rules.breaks(Mutation::RecognizeByStatus) && row.status != Status::Accepted;
            row.decided_by == Some(worker) || by_status
        });
        if is_own {
            // What the account looks like by now is another matter.
            self.done(worker, &plan, None);
        } else if refused {
            self.stale(worker, rules);
        } else {
            self.workers[worker].stage = Stage::Committing { unclear: true };
        }
    }

    /// The commit was written: its outcomes are announced.
    fn done(&mut self, worker: usize, plan: &Commit, after: Option<Account>) {
        for last in &plan.finalizations {
            self.flaws.told_wrong |= self.rows[last.key].is_none_or(|row| row.status != last.status);
        }
        let keys: Vec<usize> = plan.finalizations.iter().map(|last| last.key).collect();
        self.settled(worker, &keys);
        self.workers[worker].cache = after;
    }

    /// The work is taken for final; its messages can go.
    fn settled(&mut self, worker: usize, keys: &[usize]) {
        self.forget_nonce(worker);
        for key in keys {
            self.workers[worker].settled[*key] = true;
        }
        self.settle_round(worker);
    }

    /// Something was not as it had been read: rows and account are read anew.
    fn stale(&mut self, worker: usize, rules: &Rules) {
        self.forget_nonce(worker);
        if !rules.breaks(Mutation::KeepOldCache) {
            self.workers[worker].cache = None;
        }
        self.workers[worker].stage = Stage::Reloading(0);
    }

    /// One row is read: what is final is settled, the rest gets the revision that its row has now.
    pub(super) fn reload(&mut self, worker: usize, rules: &Rules) {
        let Stage::Reloading(place) = self.workers[worker].stage else { return };
        let Some(key) = self.workers[worker].work.get(place).map(|work| work.key) else { return };
        let trusting = rules.breaks(Mutation::UnclearIsFailed);
        let done = self.is_final(key) && !trusting;
        let Some(row) = self.rows[key] else { return };
        let hands = &mut self.workers[worker];
        let next = if done {
            hands.work.remove(place);
            hands.settled[key] = true;
            place
        } else {
            hands.work[place].revision = row.revision;
            place.saturating_add(1)
        };
        if next < hands.work.len() {
            hands.stage = Stage::Reloading(next);
        } else if hands.work.is_empty() {
            self.settle_round(worker);
        } else {
            hands.stage = hands.after_reload();
        }
    }

    /// Something was away for too long: what is not final goes back to the queue.
    pub(super) fn give_up(&mut self, worker: usize) {
        if !matches!(self.workers[worker].stage, Stage::ReadingBack { refused: false }) {
            self.budget.losses = self.budget.losses.saturating_sub(1);
        }
        self.forget_nonce(worker);
        self.workers[worker].cache = None;
        self.settle_round(worker);
    }

    fn settle_round(&mut self, worker: usize) {
        self.workers[worker].work.clear();
        self.workers[worker].stage = Stage::Settling;
        self.end_round(worker);
    }

    /// Deletes a message whose work is final, or gives it back with what is left of it.
    pub(super) fn settle(&mut self, worker: usize, place: usize, fate: Fate, rules: &Rules) {
        match (self.is_deletable(worker, place, rules), fate) {
            (true, Fate::Answered | Fate::AnswerLost) => drop(self.queue.remove(place)),
            (true, Fate::Late) => self.set_lease(place, Lease::DeleteUnderWay),
            (false, Fate::Answered) => {
                let settled = self.workers[worker].settled;
                for key in (0..KEYS).filter(|key| settled[*key]) {
                    self.queue[place].items[key] = None;
                }
                self.set_lease(place, Lease::Free);
            }
            // It comes back when its lease ends.
            (_, Fate::NeverArrives) | (false, Fate::AnswerLost | Fate::Late) => {
                self.set_lease(place, Lease::Free);
            }
        }
        self.end_round(worker);
    }

    /// Whether all work of a message is known to be final to that worker.
    pub(super) fn is_deletable(&self, worker: usize, place: usize, rules: &Rules) -> bool {
        let settled = self.workers[worker].settled;
        let items = self.queue[place].items;
        let mut keys = (0..KEYS).filter(|key| items[*key].is_some());
        if rules.breaks(Mutation::DeleteWithRest) {
            return keys.any(|key| settled[key]);
        }
        keys.all(|key| settled[key])
    }

    /// A round ends when the worker has no message any more, be it because others took them.
    pub(super) fn end_round(&mut self, worker: usize) {
        let holds = self.queue.iter().any(|message| message.lease.holder() == Some(worker));
        if self.workers[worker].stage == Stage::Settling && !holds {
            let cache = self.workers[worker].cache;
            self.workers[worker] = Worker { cache, ..Worker::new() };
        }
    }

    /// A worker dies and starts again: its memory is gone.
    pub(super) fn crash_worker(&mut self, worker: usize) {
        self.forget_nonce(worker);
        self.release_all(worker);
        self.workers[worker] = Worker::new();
    }

    /// From now on a commit that the worker has sent is nobody's.
    fn forget_nonce(&mut self, worker: usize) {
        for row in self.rows.iter_mut().flatten() {
            row.decided_by = row.decided_by.filter(|owner| *owner != worker);
        }
        for late in &mut self.late {
            if let Late::Commit(_, owner) = late {
                *owner = owner.filter(|owner| *owner != worker);
            }
        }
        self.late.sort_unstable();
    }
}

impl Worker {
    /// What comes before the next commit.
    fn after_reload(&self) -> Stage {
        if self.cache.is_some() { Stage::Committing { unclear: false } } else { Stage::Loading }
    }
}
