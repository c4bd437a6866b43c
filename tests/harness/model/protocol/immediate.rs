//! Requests that a web process posts at once: check, read the account, commit, and on any doubt the queue.
//!
//! The model mirrors `shared::posting::waiting`. The following is left out because it makes no difference: the
//! cache (it is a read long before the commit), a second attempt after a stale commit (it is another request), and
//! the group (its members have one commit, and leave it one by one).

use super::ledger::decide_at_once;
use super::rules::{Mutation, Rules};
use super::state::{Attempt, AttemptStage, Commit, KEYS, KnownGate, Late, Owner, Slot, State, Status, Web};
use crate::model::request_outcome::RequestOutcome;

impl State {
    /// Reads the account for a request that waits, or sends the request to the queue.
    pub(super) fn begin_at_once(&mut self, web: usize, key: usize, rules: &Rules) {
        let Slot::Waiting(request) = self.webs[web].slots[key] else { return };
        let stage = AttemptStage::Committing { unclear: false };
        let attempt = Attempt { key, request, account: self.account, stage };
        let rejects = decide_at_once(&attempt).insertion.is_some_and(|new| new.status == Status::Rejected);
        let checks_order = rules.sends_with_insert;
        let is_held = self.webs[web].gate != KnownGate::Released && !rules.breaks(Mutation::IgnoreGate);
        let is_later = !checks_order && self.has_open_work(web) && !rules.breaks(Mutation::ForgetOpenWork);
        let may_reject = checks_order || rules.breaks(Mutation::RejectAtOnce);
        if is_held || is_later || (rejects && !may_reject) {
            self.webs[web].slots[key] = Slot::Inserting(request.content);
            return;
        }
        self.webs[web].attempt = Some(attempt);
        if rules.breaks(Mutation::AnswerBeforeCommit) {
            self.acknowledge(key, request.content);
            self.webs[web].slots[key] = Slot::Idle;
        }
    }

    /// Whether this process put work on the queue that is not final. It knows an outcome at once, which is the worst
    /// case: later it would only use the queue more often.
    fn has_open_work(&self, web: usize) -> bool {
        let Web { slots, confirmed, .. } = &self.webs[web];
        (0..KEYS).any(|key| {
            let begun = matches!(slots[key], Slot::Inserting(_) | Slot::Sending { .. });
            !self.is_final(key) && (begun || confirmed[key])
        })
    }

    /// Sends the commit, for the first time or again.
    pub(super) fn commit_at_once_by(&mut self, web: usize, outcome: RequestOutcome, rules: &Rules) {
        let Some(attempt) = self.webs[web].attempt else { return };
        let AttemptStage::Committing { unclear } = attempt.stage else { return };
        let plan = decide_at_once(&attempt);
        match outcome {
            RequestOutcome::Answered if self.write_at_once(web, &attempt, &plan, None, rules) => {
                self.done_at_once(web, &attempt, &plan);
            }
            RequestOutcome::Answered if unclear => {
                self.set_stage(web, AttemptStage::ReadingBack { refused: true });
            }
            RequestOutcome::Answered
                if rules.breaks(Mutation::TakenIsDone) && self.rows[attempt.key].is_some() =>
            {
                self.done_at_once(web, &attempt, &plan);
            }
            RequestOutcome::Answered => self.end_attempt(web),
            RequestOutcome::AnswerLost => {
                self.write_at_once(web, &attempt, &plan, Some(Owner::Web(web)), rules);
                self.set_stage(web, AttemptStage::ReadingBack { refused: false });
            }
            RequestOutcome::RequestLost => {
                self.set_stage(web, AttemptStage::ReadingBack { refused: false });
            }
            RequestOutcome::Late => {
                self.delay(Late::Commit(plan, Some(Owner::Web(web))));
                self.set_stage(web, AttemptStage::ReadingBack { refused: false });
            }
        }
    }

    fn write_at_once(
        &mut self,
        web: usize,
        attempt: &Attempt,
        plan: &Commit,
        owner: Option<Owner>,
        rules: &Rules,
    ) -> bool {
        let others_wait = (0..KEYS).any(|other| other != attempt.key && self.is_accepted(other));
        let is_written = self.commit(plan, owner, rules);
        if is_written {
            self.violations.order_broken |= attempt.request.is_later && others_wait;
            self.violations.gate_ignored |= self.webs[web].gate == KnownGate::Acknowledged;
        }
        is_written
    }

    /// Reads whether the commit was written: a final row has its nonce. If not the commit may still arrive, so it is
    /// sent again until the guards refuse it.
    pub(super) fn read_back_at_once(&mut self, web: usize, rules: &Rules) {
        let Some(attempt) = self.webs[web].attempt else { return };
        let AttemptStage::ReadingBack { refused } = attempt.stage else { return };
        let proves = self.is_final(attempt.key) || rules.breaks(Mutation::FallbackSharesNonce);
        let is_own = self.rows[attempt.key].is_some_and(|row| row.decided_by == Some(Owner::Web(web)));
        if is_own && proves {
            self.done_at_once(web, &attempt, &decide_at_once(&attempt));
        } else if refused {
            self.end_attempt(web);
        } else {
            self.set_stage(web, AttemptStage::Committing { unclear: true });
        }
    }

    /// Announces the outcome of a written commit.
    fn done_at_once(&mut self, web: usize, attempt: &Attempt, plan: &Commit) {
        let (key, announced) = (attempt.key, plan.insertion.map(|new| new.status));
        self.violations.wrong_announcement |= self.rows[key].map(|row| row.status) != announced;
        if let Slot::Waiting(request) = self.webs[web].slots[key] {
            self.acknowledge(key, request.content);
            self.webs[web].slots[key] = Slot::Idle;
        }
        self.end_attempt(web);
    }

    /// Gives up: a read failed, or the time limit has ended.
    pub(super) fn give_up_at_once(&mut self, web: usize) {
        let stage = self.webs[web].attempt.map(|attempt| attempt.stage);
        if stage == Some(AttemptStage::ReadingBack { refused: true }) {
            self.budget.losses = self.budget.losses.saturating_sub(1);
        }
        self.end_attempt(web);
    }

    /// Ends the attempt. A request that still waits takes the queue.
    pub(super) fn end_attempt(&mut self, web: usize) {
        self.wait_ends(web);
        self.webs[web].attempt = None;
        self.forget_nonce(Owner::Web(web));
    }

    /// The client's waiting time ends: the request takes the queue while its commit is under way.
    pub(super) fn wait_ends(&mut self, web: usize) {
        let Some(key) = self.webs[web].attempt.map(|attempt| attempt.key) else { return };
        if let Slot::Waiting(request) = self.webs[web].slots[key] {
            self.webs[web].slots[key] = Slot::Inserting(request.content);
        }
    }

    fn set_stage(&mut self, web: usize, stage: AttemptStage) {
        if let Some(attempt) = &mut self.webs[web].attempt {
            attempt.stage = stage;
        }
    }

    /// A web process reads the gate, or acknowledges that it is held: no commit is under way then.
    pub(super) fn hear_gate(&mut self, web: usize) {
        self.webs[web].gate = match self.webs[web].gate {
            KnownGate::Released => KnownGate::Held,
            KnownGate::Held | KnownGate::Acknowledged => KnownGate::Acknowledged,
        };
    }

    /// A web process crashes and starts again; its memory is lost. It reads the gate before it posts.
    pub(super) fn crash_web(&mut self, web: usize) {
        self.forget_nonce(Owner::Web(web));
        self.webs[web] = self.started_web();
    }

    /// A web process after its start.
    pub(super) const fn started_web(&self) -> Web {
        let gate = if self.gate_held { KnownGate::Acknowledged } else { KnownGate::Released };
        Web { gate, ..Web::NEW }
    }
}
