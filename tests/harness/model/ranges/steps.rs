//! The possible steps, and their effects: `shared::order_numbers` step by step.

use super::rules::{Mutation, Rules};
use super::state::{LateWrite, PeerNetwork, Process, RANGE_LEN, Register, Span, State, bit, bits};
use crate::model::request_outcome::RequestOutcome;

/// A step of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A number is taken for a commit.
    Take(usize),
    /// The commit is sent, so the number is used.
    Use(usize),
    /// The commit did not need its number.
    Return(usize),
    /// The next range becomes the current range.
    Advance(usize),
    /// A fetch starts.
    Fetch(usize),
    /// A fetch reads the register.
    Read(usize),
    /// A fetch writes the register.
    Write(usize, RequestOutcome),
    /// A fetch stops for now.
    GiveUp(usize),
    /// A process starts to stop: its ranges are closed.
    Close(usize),
    /// A stopping process reads the register.
    ReadToRelease(usize),
    /// A stopping process returns unused numbers.
    Release(usize, RequestOutcome),
    /// A process has stopped, and another one starts.
    Restart(usize),
    /// A process crashes and starts again.
    Crash(usize),
    /// A late write arrives.
    Arrive(usize),
}

impl State {
    /// All possible steps.
    pub(super) fn steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        for (place, process) in self.processes.iter().enumerate() {
            self.numbers_of(place, process, rules, steps);
            self.exchanges_of(place, process, steps);
            if self.budget.crashes > 0 && *process != Process::new() {
                steps.push(Step::Crash(place));
            }
        }
        steps.extend((0..self.late.len()).map(Step::Arrive));
    }

    fn numbers_of(&self, place: usize, process: &Process, rules: &Rules, steps: &mut Vec<Step>) {
        let left = process.current.is_some_and(|current| !current.is_empty());
        let open = !process.is_closed() || rules.breaks(Mutation::ReturnOpenRange);
        if process.taken.is_some() {
            steps.extend([Step::Use(place), Step::Return(place)]);
        } else if open && (left || !process.returned.is_empty()) {
            steps.push(Step::Take(place));
        }
        if process.is_closed() {
            return;
        }
        if !left && !process.following.is_empty() {
            steps.push(Step::Advance(place));
        }
        // At any time after half of the current range was taken.
        let is_time = process.current.is_none_or(|current| current.len() <= RANGE_LEN.div_euclid(2));
        let reserve_is_low = process.following.is_empty() && is_time;
        if process.fetch == PeerNetwork::Idle && (reserve_is_low || rules.breaks(Mutation::FetchWithoutEnd)) {
            steps.push(Step::Fetch(place));
        }
        if self.budget.closings > 0 && *process != Process::new() {
            steps.push(Step::Close(place));
        }
    }

    fn exchanges_of(&self, place: usize, process: &Process, steps: &mut Vec<Step>) {
        let outcomes = RequestOutcome::all(self.budget.losses > 0);
        match process.fetch {
            PeerNetwork::Idle => {}
            PeerNetwork::Reading => steps.extend([Step::Read(place), Step::GiveUp(place)]),
            PeerNetwork::Writing(_) => {
                steps.extend(outcomes.iter().map(|outcome| Step::Write(place, *outcome)))
            }
        }
        match process.release {
            PeerNetwork::Reading => steps.push(Step::ReadToRelease(place)),
            PeerNetwork::Writing(_) => {
                steps.extend(outcomes.iter().map(|outcome| Step::Release(place, *outcome)))
            }
            PeerNetwork::Idle if process.is_closed() && process.taken.is_none() => {
                steps.push(Step::Restart(place));
            }
            PeerNetwork::Idle => {}
        }
    }

    /// Applies a step.
    pub(super) fn apply(&mut self, step: Step, rules: &Rules) {
        match step {
            Step::Take(place) => self.take_number(place),
            Step::Use(place) => self.use_number(place, rules),
            Step::Return(place) => self.return_number(place),
            Step::Advance(place) => {
                let process = &mut self.processes[place];
                process.current = Some(process.following.remove(0));
            }
            Step::Fetch(place) => self.processes[place].fetch = PeerNetwork::Reading,
            Step::Read(place) => self.read(place, rules),
            Step::Write(place, outcome) => self.write(place, outcome, rules),
            Step::GiveUp(place) => self.processes[place].fetch = PeerNetwork::Idle,
            Step::Close(place) => self.close(place, rules),
            Step::ReadToRelease(place) => self.read_to_release(place),
            Step::Release(place, outcome) => self.release(place, outcome, rules),
            Step::Restart(place) => self.processes[place] = Process::new(),
            Step::Crash(place) => self.crash(place),
            Step::Arrive(place) => {
                let LateWrite { guard, next } = self.late.remove(place);
                self.swap(guard, next);
            }
        }
        self.drop_ineffective_writes(rules);
    }

    fn take_number(&mut self, place: usize) {
        let process = &mut self.processes[place];
        process.taken = process.returned.pop().or_else(|| {
            let current = process.current.as_mut()?;
            let number = current.from;
            current.from = number.saturating_add(1);
            Some(number)
        });
    }

    fn use_number(&mut self, place: usize, rules: &Rules) {
        let process = &mut self.processes[place];
        let Some(number) = process.taken.take() else { return };
        self.violations.repeated |= self.issued & bit(number) != 0;
        self.violations.unconfirmed |= process.owns & bit(number) == 0;
        self.issued |= bit(number);
        if rules.breaks(Mutation::ReuseUsedNumber) {
            process.returned.push(number);
        }
    }

    fn return_number(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Some(number) = process.taken.take() else { return };
        if process.is_closed() {
            self.loss_limit = self.loss_limit.saturating_add(1);
        } else {
            process.returned.push(number);
        }
    }

    /// The register, unless it would make confirmed numbers of the process free again.
    fn valid_register(&mut self, place: usize) -> Option<Register> {
        let process = &self.processes[place];
        let is_valid = self.register.next >= process.confirmed;
        self.violations.refused |= !is_valid && !process.is_closed();
        is_valid.then_some(self.register)
    }

    fn read(&mut self, place: usize, rules: &Rules) {
        let numbers = self.budget.numbers;
        let valid = self.valid_register(place).filter(|read| reserved(*read).until <= numbers);
        let process = &mut self.processes[place];
        process.fetch = valid.map_or(PeerNetwork::Idle, PeerNetwork::Writing);
        if let Some(read) = valid
            && rules.breaks(Mutation::PublishBeforeConfirmation)
        {
            process.following.push(reserved(read));
        }
    }

    /// The compare-and-swap of the store.
    fn swap(&mut self, guard: u8, next: u8) -> bool {
        let holds = self.register.revision == guard;
        if holds {
            let returned = self.register.next.saturating_sub(next);
            self.returned_count = self.returned_count.saturating_add(returned);
            self.register = Register { next, revision: guard.saturating_add(1) };
        }
        holds
    }

    fn write(&mut self, place: usize, outcome: RequestOutcome, rules: &Rules) {
        let PeerNetwork::Writing(read) = self.processes[place].fetch else { return };
        let newest = rules.breaks(Mutation::CompareWithNewest);
        let guard = if newest { self.register.revision } else { read.revision };
        let span = reserved(read);
        let is_written = match outcome {
            RequestOutcome::Answered | RequestOutcome::AnswerLost => self.swap(guard, span.until),
            RequestOutcome::RequestLost => false,
            RequestOutcome::Late => self.delay(guard, span.until),
        };
        self.spend_loss(outcome);
        if outcome != RequestOutcome::Answered {
            self.loss_limit = self.loss_limit.saturating_add(RANGE_LEN);
        }
        let process = &mut self.processes[place];
        process.fetch = PeerNetwork::Reading;
        let confirmed = outcome == RequestOutcome::Answered && is_written;
        if confirmed {
            process.owns |= bits(span);
        }
        if confirmed || (outcome != RequestOutcome::Answered && rules.breaks(Mutation::UnclearIsDone)) {
            process.fetch = PeerNetwork::Idle;
            process.confirmed = process.confirmed.max(span.until);
            if process.is_closed() {
                self.loss_limit = self.loss_limit.saturating_add(RANGE_LEN);
            } else if !rules.breaks(Mutation::PublishBeforeConfirmation) {
                process.following.push(span);
            }
        }
    }

    fn delay(&mut self, guard: u8, next: u8) -> bool {
        self.late.push(LateWrite { guard, next });
        self.late.sort_unstable();
        false
    }

    fn spend_loss(&mut self, outcome: RequestOutcome) {
        self.budget.losses = self.budget.losses.saturating_sub(u8::from(outcome != RequestOutcome::Answered));
    }

    /// The ranges are closed first, so that no number of them can be taken any more.
    fn close(&mut self, place: usize, rules: &Rules) {
        self.budget.closings = self.budget.closings.saturating_sub(1);
        let process = &mut self.processes[place];
        let mut tails: Vec<Span> = process.ranges().collect();
        if rules.breaks(Mutation::ReturnWholeRange) {
            tails.iter_mut().for_each(|tail| tail.from = tail.until.saturating_sub(RANGE_LEN));
        }
        process.release = if tails.is_empty() { PeerNetwork::Idle } else { PeerNetwork::Reading };
        let left = tails.iter().fold(0_u8, |left, tail| left.saturating_add(tail.len()));
        self.loss_limit = self.loss_limit.saturating_add(left).saturating_add(count(&process.returned));
        process.returned.clear();
        if !rules.breaks(Mutation::ReturnOpenRange) {
            process.current = None;
            process.following.clear();
        }
        process.tails = Some(tails);
    }

    fn read_to_release(&mut self, place: usize) {
        let valid = self.valid_register(place);
        self.processes[place].release = valid.map_or(PeerNetwork::Idle, PeerNetwork::Writing);
    }

    fn release(&mut self, place: usize, outcome: RequestOutcome, rules: &Rules) {
        let process = &mut self.processes[place];
        let PeerNetwork::Writing(read) = process.release else { return };
        let mut tails = process.tails.clone().unwrap_or_default();
        tails.sort_by_key(|tail| std::cmp::Reverse(tail.until));
        let anywhere = rules.breaks(Mutation::ReturnFromTheMiddle);
        let next = tails
            .iter()
            .fold(read.next, |next, tail| if tail.until == next || anywhere { tail.from } else { next });
        let is_written = match outcome {
            RequestOutcome::Answered | RequestOutcome::AnswerLost => self.swap(read.revision, next),
            RequestOutcome::RequestLost => false,
            RequestOutcome::Late => self.delay(read.revision, next),
        };
        self.spend_loss(outcome);
        let again = (outcome == RequestOutcome::Answered && !is_written)
            || (outcome != RequestOutcome::Answered && rules.breaks(Mutation::ReturnAgain));
        let process = &mut self.processes[place];
        process.release = if again { PeerNetwork::Reading } else { PeerNetwork::Idle };
        if !again {
            *process =
                Process { current: None, following: Vec::new(), tails: Some(Vec::new()), ..process.clone() };
        }
    }

    fn crash(&mut self, place: usize) {
        let process = std::mem::replace(&mut self.processes[place], Process::new());
        self.budget.crashes = self.budget.crashes.saturating_sub(1);
        let taken = count(&process.returned).saturating_add(u8::from(process.taken.is_some()));
        self.loss_limit =
            self.loss_limit.saturating_add(RANGE_LEN).saturating_add(RANGE_LEN).saturating_add(taken);
    }
}

/// The range of a reservation.
const fn reserved(read: Register) -> Span {
    Span { from: read.next, until: read.next.saturating_add(RANGE_LEN) }
}

fn count(numbers: &[u8]) -> u8 {
    u8::try_from(numbers.len()).unwrap_or(u8::MAX)
}
