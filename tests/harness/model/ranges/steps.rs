//! Everything that can happen next, and what it does: `shared::order_numbers` step by step.

use super::rules::{Mutation, Rules};
use super::state::{LateWrite, PeerNetwork, Process, RANGE_LEN, Register, Span, State, bit, bits};
use crate::model::fate::Fate;

/// One step of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A number is taken for a commit.
    Take(usize),
    /// The commit is sent: its number is burnt.
    Use(usize),
    /// The commit did not need its number.
    GiveBack(usize),
    /// The next range becomes the current one.
    Advance(usize),
    /// A fetch begins.
    Fetch(usize),
    /// A fetch reads the register.
    Read(usize),
    /// A fetch writes the register.
    Write(usize, Fate),
    /// A fetch is given up for now.
    GiveUp(usize),
    /// A process begins to end: its ranges are closed.
    Close(usize),
    /// An ending process reads the register.
    ReadToRelease(usize),
    /// An ending process gives back what it did not use.
    Release(usize, Fate),
    /// An ending process has ended, and another one starts.
    Restart(usize),
    /// A process dies and starts again.
    Crash(usize),
    /// A late write is carried out.
    Land(usize),
}

impl State {
    /// Everything that can happen.
    pub(super) fn steps(&self, rules: &Rules, steps: &mut Vec<Step>) {
        for (place, process) in self.processes.iter().enumerate() {
            self.numbers_of(place, process, rules, steps);
            self.exchanges_of(place, process, steps);
            if self.budget.crashes > 0 && *process != Process::new() {
                steps.push(Step::Crash(place));
            }
        }
        steps.extend((0..self.late.len()).map(Step::Land));
    }

    fn numbers_of(&self, place: usize, process: &Process, rules: &Rules, steps: &mut Vec<Step>) {
        let left = process.current.is_some_and(|current| !current.is_empty());
        let open = !process.is_closed() || rules.breaks(Mutation::GiveBackOpenRange);
        if process.hand.is_some() {
            steps.extend([Step::Use(place), Step::GiveBack(place)]);
        } else if open && (left || !process.returned.is_empty()) {
            steps.push(Step::Take(place));
        }
        if process.is_closed() {
            return;
        }
        if !left && !process.following.is_empty() {
            steps.push(Step::Advance(place));
        }
        // From the half of a range on, at any time after it.
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
        let fates = Fate::all(self.budget.losses > 0);
        match process.fetch {
            PeerNetwork::Idle => {}
            PeerNetwork::Reading => steps.extend([Step::Read(place), Step::GiveUp(place)]),
            PeerNetwork::Writing(_) => steps.extend(fates.iter().map(|fate| Step::Write(place, *fate))),
        }
        match process.release {
            PeerNetwork::Reading => steps.push(Step::ReadToRelease(place)),
            PeerNetwork::Writing(_) => steps.extend(fates.iter().map(|fate| Step::Release(place, *fate))),
            PeerNetwork::Idle if process.is_closed() && process.hand.is_none() => {
                steps.push(Step::Restart(place));
            }
            PeerNetwork::Idle => {}
        }
    }

    /// Does a step.
    pub(super) fn take(&mut self, step: Step, rules: &Rules) {
        match step {
            Step::Take(place) => self.take_number(place),
            Step::Use(place) => self.use_number(place, rules),
            Step::GiveBack(place) => self.give_back(place),
            Step::Advance(place) => {
                let process = &mut self.processes[place];
                process.current = Some(process.following.remove(0));
            }
            Step::Fetch(place) => self.processes[place].fetch = PeerNetwork::Reading,
            Step::Read(place) => self.read(place, rules),
            Step::Write(place, fate) => self.write(place, fate, rules),
            Step::GiveUp(place) => self.processes[place].fetch = PeerNetwork::Idle,
            Step::Close(place) => self.close(place, rules),
            Step::ReadToRelease(place) => self.read_to_release(place),
            Step::Release(place, fate) => self.release(place, fate, rules),
            Step::Restart(place) => self.processes[place] = Process::new(),
            Step::Crash(place) => self.crash(place),
            Step::Land(place) => {
                let LateWrite { guard, next } = self.late.remove(place);
                self.swap(guard, next);
            }
        }
        self.forget_what_cannot_land(rules);
    }

    fn take_number(&mut self, place: usize) {
        let process = &mut self.processes[place];
        process.hand = process.returned.pop().or_else(|| {
            let current = process.current.as_mut()?;
            let number = current.from;
            current.from = number.saturating_add(1);
            Some(number)
        });
    }

    fn use_number(&mut self, place: usize, rules: &Rules) {
        let process = &mut self.processes[place];
        let Some(number) = process.hand.take() else { return };
        self.flaws.repeated |= self.issued & bit(number) != 0;
        self.flaws.unconfirmed |= process.owns & bit(number) == 0;
        self.issued |= bit(number);
        if rules.breaks(Mutation::ReuseBurntNumber) {
            process.returned.push(number);
        }
    }

    fn give_back(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let Some(number) = process.hand.take() else { return };
        if process.is_closed() {
            self.losable = self.losable.saturating_add(1);
        } else {
            process.returned.push(number);
        }
    }

    /// The register as that process may use it. None of its own confirmed numbers may be free again.
    fn sound_register(&mut self, place: usize) -> Option<Register> {
        let process = &self.processes[place];
        let is_sound = self.register.next >= process.confirmed;
        self.flaws.refused |= !is_sound && !process.is_closed();
        is_sound.then_some(self.register)
    }

    fn read(&mut self, place: usize, rules: &Rules) {
        let numbers = self.budget.numbers;
        let sound = self.sound_register(place).filter(|read| reserved(*read).until <= numbers);
        let process = &mut self.processes[place];
        process.fetch = sound.map_or(PeerNetwork::Idle, PeerNetwork::Writing);
        if let Some(read) = sound
            && rules.breaks(Mutation::PublishBeforeConfirmation)
        {
            process.following.push(reserved(read));
        }
    }

    /// The compare-and-swap of the store.
    fn swap(&mut self, guard: u8, next: u8) -> bool {
        let holds = self.register.revision == guard;
        if holds {
            let back = self.register.next.saturating_sub(next);
            self.given_back = self.given_back.saturating_add(back);
            self.register = Register { next, revision: guard.saturating_add(1) };
        }
        holds
    }

    fn write(&mut self, place: usize, fate: Fate, rules: &Rules) {
        let PeerNetwork::Writing(read) = self.processes[place].fetch else { return };
        let newest = rules.breaks(Mutation::CompareWithNewest);
        let guard = if newest { self.register.revision } else { read.revision };
        let span = reserved(read);
        let is_written = match fate {
            Fate::Answered | Fate::AnswerLost => self.swap(guard, span.until),
            Fate::NeverArrives => false,
            Fate::Late => self.delay(guard, span.until),
        };
        self.pay(fate);
        if fate != Fate::Answered {
            self.losable = self.losable.saturating_add(RANGE_LEN);
        }
        let process = &mut self.processes[place];
        process.fetch = PeerNetwork::Reading;
        let confirmed = fate == Fate::Answered && is_written;
        if confirmed {
            process.owns |= bits(span);
        }
        if confirmed || (fate != Fate::Answered && rules.breaks(Mutation::UnclearIsDone)) {
            process.fetch = PeerNetwork::Idle;
            process.confirmed = process.confirmed.max(span.until);
            if process.is_closed() {
                self.losable = self.losable.saturating_add(RANGE_LEN);
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

    fn pay(&mut self, fate: Fate) {
        self.budget.losses = self.budget.losses.saturating_sub(u8::from(fate != Fate::Answered));
    }

    /// The ranges are closed first: from now on nothing of them can be taken.
    fn close(&mut self, place: usize, rules: &Rules) {
        self.budget.closings = self.budget.closings.saturating_sub(1);
        let process = &mut self.processes[place];
        let mut tails: Vec<Span> = process.ranges().collect();
        if rules.breaks(Mutation::GiveBackWholeRange) {
            tails.iter_mut().for_each(|tail| tail.from = tail.until.saturating_sub(RANGE_LEN));
        }
        process.release = if tails.is_empty() { PeerNetwork::Idle } else { PeerNetwork::Reading };
        let left = tails.iter().fold(0_u8, |left, tail| left.saturating_add(tail.len()));
        self.losable = self.losable.saturating_add(left).saturating_add(count(&process.returned));
        process.returned.clear();
        if !rules.breaks(Mutation::GiveBackOpenRange) {
            process.current = None;
            process.following.clear();
        }
        process.tails = Some(tails);
    }

    fn read_to_release(&mut self, place: usize) {
        let sound = self.sound_register(place);
        self.processes[place].release = sound.map_or(PeerNetwork::Idle, PeerNetwork::Writing);
    }

    fn release(&mut self, place: usize, fate: Fate, rules: &Rules) {
        let process = &mut self.processes[place];
        let PeerNetwork::Writing(read) = process.release else { return };
        let mut tails = process.tails.clone().unwrap_or_default();
        tails.sort_by_key(|tail| std::cmp::Reverse(tail.until));
        let anywhere = rules.breaks(Mutation::GiveBackFromTheMiddle);
        let next = tails
            .iter()
            .fold(read.next, |next, tail| if tail.until == next || anywhere { tail.from } else { next });
        let is_written = match fate {
            Fate::Answered | Fate::AnswerLost => self.swap(read.revision, next),
            Fate::NeverArrives => false,
            Fate::Late => self.delay(read.revision, next),
        };
        self.pay(fate);
        let again = (fate == Fate::Answered && !is_written)
            || (fate != Fate::Answered && rules.breaks(Mutation::GiveBackAgain));
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
        let in_hand = count(&process.returned).saturating_add(u8::from(process.hand.is_some()));
        self.losable =
            self.losable.saturating_add(RANGE_LEN).saturating_add(RANGE_LEN).saturating_add(in_hand);
    }
}

/// What a reservation takes.
const fn reserved(read: Register) -> Span {
    Span { from: read.next, until: read.next.saturating_add(RANGE_LEN) }
}

fn count(numbers: &[u8]) -> u8 {
    u8::try_from(numbers.len()).unwrap_or(u8::MAX)
}
