//! Everything that can happen next, and what it does.
//!
//! A call and its answer are one step where nobody can tell the difference: what a process does with
//! an answer is a step of its own, so that others can always come in between.

use super::rules::{Mutation, Rules};
use super::state::{KEYS, Late, Lease, PROCESSES, REQUESTS, Slot, Stage, State, Status, Web, Worker};
use super::web::asked_for;
use crate::model::fate::Fate;

/// One step of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A client asks, for the first time or again.
    Submit { web: usize, request: usize },
    /// A web process writes to the log.
    Insert { web: usize, key: usize, fate: Fate },
    /// A web process puts the work of these transactions on the queue.
    Send { web: usize, keys: [bool; KEYS], fate: Fate },
    /// A worker receives the messages in these places.
    Receive { worker: usize, places: Vec<usize> },
    /// A worker reads the account.
    Load { worker: usize },
    /// A worker commits.
    Commit { worker: usize, fate: Fate },
    /// A worker reads a row for the nonce of its commit.
    ReadBack { worker: usize },
    /// A worker reads a row after a stale commit.
    Reload { worker: usize },
    /// A worker deletes a message or gives it back.
    Settle { worker: usize, place: usize, fate: Fate },
    /// A worker has no patience any more with a store that does not answer.
    GiveUp { worker: usize },
    /// The lease of a message ends while its holder is at work.
    Expire { place: usize },
    /// A late request is carried out.
    Land { place: usize },
    /// A late delete is carried out; nobody has received the message meanwhile.
    LandDelete { place: usize },
    /// A web process dies and starts again.
    CrashWeb { web: usize },
    /// A worker dies and starts again.
    CrashWorker { worker: usize },
    /// Somebody takes accepted work for forgotten.
    Repair { key: usize, fate: Fate },
}

impl State {
    /// What processes do by themselves while nothing goes wrong.
    pub(super) fn calm_steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        let fate = Fate::Answered;
        for (web, process) in self.webs.iter().enumerate() {
            for (key, slot) in process.slots.iter().enumerate() {
                if let Slot::Inserting(_) = slot {
                    steps.push(Step::Insert { web, key, fate });
                }
            }
            self.sends_of(web, |keys| steps.push(Step::Send { web, keys, fate }));
        }
        for (worker, process) in self.workers.iter().enumerate() {
            match process.stage {
                Stage::Idle => self.receives(worker, steps),
                Stage::Loading => steps.push(Step::Load { worker }),
                Stage::Committing { .. } => steps.push(Step::Commit { worker, fate }),
                Stage::ReadingBack { .. } => steps.push(Step::ReadBack { worker }),
                Stage::Reloading(_) => steps.push(Step::Reload { worker }),
                Stage::Settling => {
                    self.settleable(worker, rules, |place| steps.push(Step::Settle { worker, place, fate }));
                }
            }
        }
    }

    /// Clients that ask, and everything that goes wrong, as far as there is budget for it.
    pub(super) fn other_steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        for web in 0..PROCESSES {
            for request in (0..REQUESTS).filter(|request| self.budget.submits[*request] > 0) {
                if self.webs[web].slots[asked_for(request).0] == Slot::Idle {
                    steps.push(Step::Submit { web, request });
                }
            }
        }
        if self.budget.losses > 0 {
            self.losses(rules, steps);
        }
        for (worker, process) in self.workers.iter().enumerate() {
            // The patience with an unclear commit ends by itself; otherwise it is a read that fails.
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
            if self.budget.crashes > 0 && *process != Web::NEW {
                steps.push(Step::CrashWeb { web });
            }
        }
        self.store_steps(steps);
    }

    /// What comes from the queue, the network and repair.
    fn store_steps(&self, steps: &mut Vec<Step>) {
        for place in self.different_messages() {
            match self.queue[place].lease {
                Lease::Held(_) if self.budget.expiries > 0 => steps.push(Step::Expire { place }),
                Lease::DeleteUnderWay => steps.push(Step::LandDelete { place }),
                Lease::Free | Lease::Held(_) | Lease::Expired(_) => {}
            }
        }
        // Sorted, so that equal ones stand side by side.
        let repeats =
            |place: usize| place > 0 && self.late.get(place.saturating_sub(1)) == self.late.get(place);
        let different = (0..self.late.len()).filter(|place| !repeats(*place));
        steps.extend(different.map(|place| Step::Land { place }));
        let is_accepted = |key: &usize| self.rows[*key].is_some_and(|row| row.status == Status::Accepted);
        for key in (0..KEYS).filter(is_accepted) {
            if self.budget.repairs > 0 {
                steps.extend([Fate::Answered, Fate::Late].map(|fate| Step::Repair { key, fate }));
            }
        }
    }

    fn losses(&self, rules: &Rules, steps: &mut Vec<Step>) {
        let fates = Fate::UNANSWERED;
        for (web, process) in self.webs.iter().enumerate() {
            for (key, slot) in process.slots.iter().enumerate() {
                if let Slot::Inserting(_) = slot {
                    steps.extend(fates.map(|fate| Step::Insert { web, key, fate }));
                }
            }
            self.sends_of(web, |keys| steps.extend(fates.map(|fate| Step::Send { web, keys, fate })));
        }
        for (worker, process) in self.workers.iter().enumerate() {
            match process.stage {
                Stage::Committing { .. } => steps.extend(fates.map(|fate| Step::Commit { worker, fate })),
                Stage::Settling => {
                    let fates = [Fate::NeverArrives, Fate::Late];
                    self.settleable(worker, rules, |place| {
                        steps.extend(fates.map(|fate| Step::Settle { worker, place, fate }));
                    });
                }
                Stage::Idle | Stage::Loading | Stage::ReadingBack { .. } | Stage::Reloading(_) => {}
            }
        }
    }

    /// The sends that a web process can make: of each request, or of both together.
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
        let loose = rules.breaks(Mutation::IgnoreReceipts);
        for place in self.different_messages() {
            let holds = self.queue[place].lease.holder() == Some(worker);
            if holds || (loose && self.is_deletable(worker, place, rules)) {
                settle(place);
            }
        }
    }

    /// The places of the queue without repetitions.
    fn different_messages(&self) -> impl Iterator<Item = usize> {
        (0..self.queue.len()).filter(|place| self.is_first_of_its_kind(*place, usize::MAX))
    }

    /// Whether no message before that place is the same, apart from the one at `besides`.
    fn is_first_of_its_kind(&self, place: usize, besides: usize) -> bool {
        (0..place).all(|before| before == besides || self.queue[before] != self.queue[place])
    }

    /// Does a step.
    pub(super) fn take(&mut self, step: &Step, rules: &Rules) {
        match step {
            Step::Submit { web, request } => self.submit(*web, *request),
            Step::Insert { web, key, fate } => self.web_insert(*web, *key, *fate, rules),
            Step::Send { web, keys, fate } => self.web_send(*web, *keys, *fate),
            Step::Receive { worker, places } => self.begin_round(*worker, places, rules),
            Step::Load { worker } => self.load(*worker),
            Step::Commit { worker, fate } => self.worker_commit(*worker, *fate, rules),
            Step::ReadBack { worker } => self.read_back(*worker, rules),
            Step::Reload { worker } => self.reload(*worker, rules),
            Step::Settle { worker, place, fate } => self.settle(*worker, *place, *fate, rules),
            Step::GiveUp { worker } => self.give_up(*worker),
            Step::Expire { place } => self.expire(*place),
            Step::Land { place } => self.land(*place, rules),
            Step::LandDelete { place } => drop(self.queue.remove(*place)),
            Step::CrashWeb { web } => self.webs[*web] = Web::NEW,
            Step::CrashWorker { worker } => self.crash_worker(*worker),
            Step::Repair { key, fate } => self.repair(*key, *fate),
        }
        self.budget.losses = self.budget.losses.saturating_sub(u8::from(step.is_loss()));
        self.budget.crashes = self.budget.crashes.saturating_sub(u8::from(step.is_crash()));
        // Messages may have changed hands: whose last lease is gone has nothing left to settle.
        (0..PROCESSES).for_each(|worker| self.end_round(worker));
        self.forget_what_cannot_land(rules);
    }

    fn expire(&mut self, place: usize) {
        let Lease::Held(worker) = self.queue[place].lease else { return };
        self.budget.expiries = self.budget.expiries.saturating_sub(1);
        self.set_lease(place, Lease::Expired(worker));
    }

    /// Drops late requests that their guards will refuse for ever: rows are never deleted, and versions
    /// only grow.
    fn forget_what_cannot_land(&mut self, rules: &Rules) {
        if rules.mutation.is_some() {
            return;
        }
        let (rows, version) = (self.rows, self.account.version);
        self.late.retain(|late| match late {
            Late::Insert { key, .. } => rows[*key].is_none(),
            Late::Send(_) => true,
            Late::Commit(commit, _) => version <= commit.guard,
        });
    }
}

impl Step {
    const fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::Insert { fate, .. }
                | Self::Send { fate, .. }
                | Self::Commit { fate, .. }
                | Self::Settle { fate, .. } if !matches!(fate, Fate::Answered)
        )
    }

    const fn is_crash(&self) -> bool {
        matches!(self, Self::CrashWeb { .. } | Self::CrashWorker { .. })
    }

    /// Whether a process does it by itself, and nothing goes wrong in it.
    pub(super) const fn is_calm(&self) -> bool {
        match self {
            Self::Insert { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::Load { .. }
            | Self::Commit { .. }
            | Self::ReadBack { .. }
            | Self::Reload { .. }
            | Self::Settle { .. } => !self.is_loss(),
            Self::Submit { .. }
            | Self::GiveUp { .. }
            | Self::Expire { .. }
            | Self::Land { .. }
            | Self::LandDelete { .. }
            | Self::CrashWeb { .. }
            | Self::CrashWorker { .. }
            | Self::Repair { .. } => false,
        }
    }
}
