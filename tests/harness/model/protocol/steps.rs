//! The possible steps, and their effects.
//!
//! A call and its answer are one step where the difference cannot be observed. The next action of the
//! process is a step of its own, so that other processes can always act in between.

use super::rules::{Mutation, Rules};
use super::state::{
    AttemptStage, KEYS, KnownGate, Late, Lease, PROCESSES, REQUESTS, Slot, Stage, State, Worker,
};
use super::web::requested;
use crate::model::request_outcome::RequestOutcome;

/// A step of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A client sends a request, for the first time or again. It may wait for the outcome.
    Submit { web: usize, request: usize, waits: bool },
    /// A web process begins to post a request at once, or sends it to the queue.
    BeginAtOnce { web: usize, key: usize },
    /// A web process commits.
    CommitAtOnce { web: usize, outcome: RequestOutcome },
    /// A web process reads a row for the nonce of its commit.
    ReadBackAtOnce { web: usize },
    /// A web process gives up on a store that does not answer.
    GiveUpAtOnce { web: usize },
    /// The client's waiting time ends while the commit is under way.
    WaitEnds { web: usize },
    /// The gate is held.
    HoldGate,
    /// A web process reads that the gate is held, or acknowledges it.
    HearGate { web: usize },
    /// A web process inserts a row into the log.
    Insert { web: usize, key: usize, outcome: RequestOutcome },
    /// A web process sends the work of these transactions to the queue.
    Send { web: usize, keys: [bool; KEYS], outcome: RequestOutcome },
    /// A worker receives the messages at these positions.
    Receive { worker: usize, places: Vec<usize> },
    /// A worker reads the account.
    Load { worker: usize },
    /// A worker commits.
    Commit { worker: usize, outcome: RequestOutcome },
    /// A worker reads a row for the nonce of its commit.
    ReadBack { worker: usize },
    /// A worker reads a row after a stale commit.
    Reload { worker: usize },
    /// A worker deletes or releases a message.
    Settle { worker: usize, place: usize, outcome: RequestOutcome },
    /// A worker gives up on a store that does not answer.
    GiveUp { worker: usize },
    /// The lease of a message ends while its holder works.
    Expire { place: usize },
    /// A late request arrives.
    Arrive { place: usize },
    /// A late delete arrives before the message is received again.
    ArriveDelete { place: usize },
    /// A web process crashes and starts again.
    CrashWeb { web: usize },
    /// A worker crashes and starts again.
    CrashWorker { worker: usize },
    /// Repair sends accepted work again.
    Repair { key: usize, outcome: RequestOutcome },
}

impl State {
    /// The steps of the processes without faults.
    pub(super) fn fault_free_steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        let outcome = RequestOutcome::Answered;
        for (web, process) in self.webs.iter().enumerate() {
            for (key, slot) in process.slots.iter().enumerate() {
                match slot {
                    Slot::Inserting(_) => steps.push(Step::Insert { web, key, outcome }),
                    Slot::Waiting(_) if process.attempt.is_none() => {
                        steps.push(Step::BeginAtOnce { web, key });
                    }
                    Slot::Idle | Slot::Waiting(_) | Slot::Sending { .. } => {}
                }
            }
            match process.attempt.map(|attempt| attempt.stage) {
                Some(AttemptStage::Committing { .. }) => steps.push(Step::CommitAtOnce { web, outcome }),
                Some(AttemptStage::ReadingBack { .. }) => steps.push(Step::ReadBackAtOnce { web }),
                None => {}
            }
            self.sends_of(web, |keys| steps.push(Step::Send { web, keys, outcome }));
        }
        for (worker, process) in self.workers.iter().enumerate() {
            match process.stage {
                Stage::Idle => self.receives(worker, steps),
                Stage::Loading => steps.push(Step::Load { worker }),
                Stage::Committing { .. } => steps.push(Step::Commit { worker, outcome }),
                Stage::ReadingBack { .. } => steps.push(Step::ReadBack { worker }),
                Stage::Reloading(_) => steps.push(Step::Reload { worker }),
                Stage::Settling => {
                    self.settleable(worker, rules, |place| {
                        steps.push(Step::Settle { worker, place, outcome })
                    });
                }
            }
        }
    }

    /// The requests of clients and the faults that the budget allows.
    pub(super) fn other_steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        for web in 0..PROCESSES {
            for request in (0..REQUESTS).filter(|request| self.budget.submits[*request] > 0) {
                let (key, _) = requested(request);
                if self.webs[web].slots[key] != Slot::Idle {
                    continue;
                }
                steps.push(Step::Submit { web, request, waits: false });
                if self.budget.waits > 0 && self.webs[web].attempt.is_none_or(|attempt| attempt.key != key) {
                    steps.push(Step::Submit { web, request, waits: true });
                }
            }
        }
        self.steps_beside_commits(rules, steps);
        if self.budget.losses > 0 {
            self.losses(rules, steps);
        }
        for (worker, process) in self.workers.iter().enumerate() {
            // The time limit of an unclear commit ends without a fault; in other stages a read fails.
            let gives_up = match process.stage {
                Stage::ReadingBack { refused: false } => true,
                Stage::Loading | Stage::Reloading(_) | Stage::ReadingBack { refused: true } => {
                    self.budget.losses > 0
                }
                Stage::Idle | Stage::Committing { .. } | Stage::Settling => false,
            };
            if gives_up {
                steps.push(Step::GiveUp { worker });
            }
            if self.budget.crashes > 0 && *process != Worker::new() {
                steps.push(Step::CrashWorker { worker });
            }
        }
        for (web, process) in self.webs.iter().enumerate() {
            if self.budget.crashes > 0 && *process != self.started_web() {
                steps.push(Step::CrashWeb { web });
            }
        }
        self.store_steps(steps);
    }

    /// The steps of clients, of the store and of the gate around the commits of web processes.
    fn steps_beside_commits(&self, rules: &Rules, steps: &mut Vec<Step>) {
        if self.budget.holds > 0 {
            steps.push(Step::HoldGate);
        }
        for (web, process) in self.webs.iter().enumerate() {
            match process.gate {
                KnownGate::Released if self.gate_held => steps.push(Step::HearGate { web }),
                KnownGate::Held if process.attempt.is_none() || rules.breaks(Mutation::NoPermit) => {
                    steps.push(Step::HearGate { web });
                }
                KnownGate::Released | KnownGate::Held | KnownGate::Acknowledged => {}
            }
            let Some(attempt) = process.attempt else { continue };
            if matches!(process.slots[attempt.key], Slot::Waiting(_)) {
                steps.push(Step::WaitEnds { web });
            }
            match attempt.stage {
                // The time limit of an unclear commit ends without a fault; otherwise a read fails.
                AttemptStage::ReadingBack { refused: false } => steps.push(Step::GiveUpAtOnce { web }),
                AttemptStage::ReadingBack { refused: true } if self.budget.losses > 0 => {
                    steps.push(Step::GiveUpAtOnce { web });
                }
                AttemptStage::ReadingBack { .. } | AttemptStage::Committing { .. } => {}
            }
        }
    }

    /// The steps of the queue, of the network and of repair.
    fn store_steps(&self, steps: &mut Vec<Step>) {
        for place in self.different_messages() {
            match self.queue[place].lease {
                Lease::Held(_) if self.budget.expiries > 0 => steps.push(Step::Expire { place }),
                Lease::LateDelete => steps.push(Step::ArriveDelete { place }),
                Lease::Free | Lease::Held(_) | Lease::Expired(_) => {}
            }
        }
        // The list is sorted, so equal requests are adjacent.
        let repeats =
            |place: usize| place > 0 && self.late.get(place.saturating_sub(1)) == self.late.get(place);
        let different = (0..self.late.len()).filter(|place| !repeats(*place));
        steps.extend(different.map(|place| Step::Arrive { place }));
        for key in (0..KEYS).filter(|key| self.is_accepted(*key)) {
            if self.budget.repairs > 0 {
                steps.extend(
                    [RequestOutcome::Answered, RequestOutcome::Late]
                        .map(|outcome| Step::Repair { key, outcome }),
                );
            }
        }
    }

    fn losses(&self, rules: &Rules, steps: &mut Vec<Step>) {
        let outcomes = RequestOutcome::UNANSWERED;
        for (web, process) in self.webs.iter().enumerate() {
            for (key, slot) in process.slots.iter().enumerate() {
                if let Slot::Inserting(_) = slot {
                    steps.extend(outcomes.map(|outcome| Step::Insert { web, key, outcome }));
                }
            }
            self.sends_of(web, |keys| {
                steps.extend(outcomes.map(|outcome| Step::Send { web, keys, outcome }))
            });
            if let Some(AttemptStage::Committing { .. }) = process.attempt.map(|attempt| attempt.stage) {
                steps.extend(outcomes.map(|outcome| Step::CommitAtOnce { web, outcome }));
            }
        }
        for (worker, process) in self.workers.iter().enumerate() {
            match process.stage {
                Stage::Committing { .. } => {
                    steps.extend(outcomes.map(|outcome| Step::Commit { worker, outcome }))
                }
                Stage::Settling => {
                    let outcomes = [RequestOutcome::RequestLost, RequestOutcome::Late];
                    self.settleable(worker, rules, |place| {
                        steps.extend(outcomes.map(|outcome| Step::Settle { worker, place, outcome }));
                    });
                }
                Stage::Idle | Stage::Loading | Stage::ReadingBack { .. } | Stage::Reloading(_) => {}
            }
        }
    }

    /// The sends that a web process can make: for each request, or for both together.
    fn sends_of(&self, web: usize, mut send: impl FnMut([bool; KEYS])) {
        let waiting = self.webs[web].slots.map(|slot| matches!(slot, Slot::Sending { .. }));
        for key in (0..KEYS).filter(|key| waiting[*key]) {
            let mut keys = [false; KEYS];
            keys[key] = true;
            send(keys);
        }
        if waiting == [true; KEYS] {
            send(waiting);
        }
    }

    /// A worker receives any visible message, or any two in either order.
    fn receives(&self, worker: usize, steps: &mut Vec<Step>) {
        let visible = |place: &usize| self.queue[*place].lease.is_visible();
        for place in self.different_messages().filter(visible) {
            steps.push(Step::Receive { worker, places: vec![place] });
            let beside = (0..self.queue.len()).filter(|other| *other != place).filter(visible);
            for other in beside.filter(|other| self.is_first_of_its_kind(*other, place)) {
                steps.push(Step::Receive { worker, places: vec![place, other] });
            }
        }
    }

    fn settleable(&self, worker: usize, rules: &Rules, mut settle: impl FnMut(usize)) {
        let ignores_receipts = rules.breaks(Mutation::IgnoreReceipts);
        for place in self.different_messages() {
            let holds = self.queue[place].lease.holder() == Some(worker);
            if holds || (ignores_receipts && self.is_deletable(worker, place, rules)) {
                settle(place);
            }
        }
    }

    /// The positions of the queue without repetitions.
    fn different_messages(&self) -> impl Iterator<Item = usize> {
        (0..self.queue.len()).filter(|place| self.is_first_of_its_kind(*place, usize::MAX))
    }

    /// Whether no earlier message is equal, apart from the message at `besides`.
    fn is_first_of_its_kind(&self, place: usize, besides: usize) -> bool {
        (0..place).all(|before| before == besides || self.queue[before] != self.queue[place])
    }

    /// Applies a step.
    pub(super) fn apply(&mut self, step: &Step, rules: &Rules) {
        match step {
            Step::Submit { web, request, waits } => self.submit(*web, *request, *waits),
            Step::BeginAtOnce { web, key } => self.begin_at_once(*web, *key, rules),
            Step::CommitAtOnce { web, outcome } => self.commit_at_once_by(*web, *outcome, rules),
            Step::ReadBackAtOnce { web } => self.read_back_at_once(*web, rules),
            Step::GiveUpAtOnce { web } => self.give_up_at_once(*web),
            Step::WaitEnds { web } => self.wait_ends(*web),
            Step::HoldGate => {
                self.gate_held = true;
                self.budget.holds = self.budget.holds.saturating_sub(1);
            }
            Step::HearGate { web } => self.hear_gate(*web),
            Step::Insert { web, key, outcome } => self.web_insert(*web, *key, *outcome, rules),
            Step::Send { web, keys, outcome } => self.web_send(*web, *keys, *outcome),
            Step::Receive { worker, places } => self.begin_round(*worker, places, rules),
            Step::Load { worker } => self.load(*worker),
            Step::Commit { worker, outcome } => self.worker_commit(*worker, *outcome, rules),
            Step::ReadBack { worker } => self.read_back(*worker, rules),
            Step::Reload { worker } => self.reload(*worker, rules),
            Step::Settle { worker, place, outcome } => self.settle(*worker, *place, *outcome, rules),
            Step::GiveUp { worker } => self.give_up(*worker),
            Step::Expire { place } => self.expire(*place),
            Step::Arrive { place } => self.arrive(*place, rules),
            Step::ArriveDelete { place } => drop(self.queue.remove(*place)),
            Step::CrashWeb { web } => self.crash_web(*web),
            Step::CrashWorker { worker } => self.crash_worker(*worker),
            Step::Repair { key, outcome } => self.repair(*key, *outcome),
        }
        self.budget.losses = self.budget.losses.saturating_sub(u8::from(step.is_loss()));
        self.budget.crashes = self.budget.crashes.saturating_sub(u8::from(step.is_crash()));
        // A worker without a lease has nothing left to settle.
        (0..PROCESSES).for_each(|worker| self.end_round(worker));
        self.drop_ineffective_requests(rules);
    }

    fn expire(&mut self, place: usize) {
        let Lease::Held(worker) = self.queue[place].lease else { return };
        self.budget.expiries = self.budget.expiries.saturating_sub(1);
        self.set_lease(place, Lease::Expired(worker));
    }

    /// Drops late requests whose guards can never hold again: rows are never deleted, and versions only
    /// increase.
    fn drop_ineffective_requests(&mut self, rules: &Rules) {
        if rules.mutation.is_some() {
            return;
        }
        let (rows, version) = (self.rows, self.account.version);
        self.late.retain(|late| match late {
            Late::Insert { key, .. } => rows[*key].is_none(),
            Late::Send(_) => true,
            Late::Commit(commit, _) => {
                version <= commit.guard && commit.insertion.is_none_or(|new| rows[new.key].is_none())
            }
        });
    }
}

impl Step {
    const fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Insert { outcome, .. }
                | Self::Send { outcome, .. }
                | Self::Commit { outcome, .. }
                | Self::CommitAtOnce { outcome, .. }
                | Self::Settle { outcome, .. } if !matches!(outcome, RequestOutcome::Answered)
        )
    }

    const fn is_crash(&self) -> bool {
        matches!(self, Self::CrashWeb { .. } | Self::CrashWorker { .. })
    }

    /// Whether a process takes this step without a fault.
    pub(super) const fn is_fault_free(&self) -> bool {
        match self {
            Self::BeginAtOnce { .. }
            | Self::CommitAtOnce { .. }
            | Self::ReadBackAtOnce { .. }
            | Self::Insert { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::Load { .. }
            | Self::Commit { .. }
            | Self::ReadBack { .. }
            | Self::Reload { .. }
            | Self::Settle { .. } => !self.is_loss(),
            Self::Submit { .. }
            | Self::GiveUpAtOnce { .. }
            | Self::WaitEnds { .. }
            | Self::HoldGate
            | Self::HearGate { .. }
            | Self::GiveUp { .. }
            | Self::Expire { .. }
            | Self::Arrive { .. }
            | Self::ArriveDelete { .. }
            | Self::CrashWeb { .. }
            | Self::CrashWorker { .. }
            | Self::Repair { .. } => false,
        }
    }
}
