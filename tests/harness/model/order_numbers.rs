//! Order numbers: two processes reserve ranges of two numbers in a register, issue them, return the rest when they stop,
//! or crash, until all numbers are used.
//!
//! Models `shared/src/posting/order_numbers/{mod,range,register}.rs` on the compare-and-swap of
//! `shared/src/ports/sync_store.rs`.
//!
//! Assumptions: reads of the register get a response, and a process that has stopped or crashed restarts with empty
//! memory. The rule that a process refuses a register that went back in time is not needed, and omitted.

#![expect(clippy::arithmetic_side_effects, reason = "the numbers of a bounded model are small")]

use super::explore::{Goal, Protocol, RequestOutcome, protocol};

const RANGE_LEN: u8 = 2;

const ISSUED_ONCE: &str = "an order number is issued at most once";
const CONFIRMED: &str = "order numbers are issued only from ranges whose reservation was confirmed";
const FEW_LOST: &str = "at most two ranges are lost with a crash";

protocol! { OrderNumbers;
    PublishedBeforeConfirmed: "numbers of a range are issued as soon as the write of the range is sent" => CONFIRMED, FOUR;
    UnclearIsDone: "numbers of a range are issued although its write had no answer"
        => CONFIRMED, Budget { losses: 1, ..FOUR };
    ComparedAtWrite: "the write compares with the newest revision instead of the one that was read" => ISSUED_ONCE, FOUR;
    FetchedWithoutEnd: "ranges are fetched without a limit on the reserve" => FEW_LOST, Budget { crashes: 1, ..SIX };
    OpenRangeReturned: "numbers that are to be returned can still be issued" => ISSUED_ONCE, Budget { stops: 1, ..FOUR };
    WholeRangeReturned: "a whole range is returned, with the numbers that were taken"
        => ISSUED_ONCE, Budget { stops: 1, ..FOUR };
    ReturnedFromTheMiddle: "a tail is returned although later ranges were reserved"
        => ISSUED_ONCE, Budget { stops: 1, ..FOUR };
    ReturnedAgain: "numbers whose return had no answer are returned again"
        => ISSUED_ONCE, Budget { losses: 1, stops: 1, ..FOUR };
    UsedNumberReused: "a number that was in a commit is issued again" => ISSUED_ONCE, FOUR;
}

/// Number of order numbers, and maximum number of each kind of fault.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    /// At most 16, because each number is a bit.
    numbers: u8,
    /// Lost responses, lost writes, late writes.
    losses: u8,
    crashes: u8,
    /// Regular stops of a process.
    stops: u8,
}

const FOUR: Budget = Budget { numbers: 4, losses: 0, crashes: 0, stops: 0 };
const SIX: Budget = Budget { numbers: 6, ..FOUR };

const SMALL: &[(&str, Budget)] = &[
    ("order numbers: two losses", Budget { losses: 2, ..SIX }),
    ("order numbers: a loss, a crash", Budget { losses: 1, crashes: 1, ..SIX }),
    ("order numbers: a loss, a clean stop", Budget { numbers: 5, losses: 1, stops: 1, ..FOUR }),
];
const LARGE: &[(&str, Budget)] = &[
    ("ten order numbers: two losses", Budget { numbers: 10, losses: 2, ..FOUR }),
    ("ten order numbers: a loss, a crash", Budget { numbers: 10, losses: 1, crashes: 1, ..FOUR }),
    ("order numbers: a loss, a crash, a clean stop", Budget { losses: 1, crashes: 1, stops: 1, ..SIX }),
];

/// Numbers from the first available one up to the one after the last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
struct Span {
    from: u8,
    until: u8,
}

impl Span {
    fn len(self) -> u8 {
        self.until.saturating_sub(self.from)
    }

    fn bits(self) -> u16 {
        (self.from..self.until).fold(0, |bits, number| bits | 1 << number)
    }
}

/// The register, or a write of it under the revision that was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Register {
    next: u8,
    revision: u8,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct Process {
    current: Span,
    reserve: Vec<Span>,
    /// The register as read by a fetch.
    fetch: Option<Register>,
    /// A number taken for a commit.
    taken: Option<u8>,
    /// Numbers that a commit did not need.
    unused: Vec<u8>,
    /// The ranges that a stopping process returns, and the register that it read.
    tails: Option<Vec<Span>>,
    release: Option<Register>,
    /// The numbers of confirmed ranges. Used by the properties only.
    owns: u16,
}

impl Process {
    fn ranges(&self) -> impl Iterator<Item = Span> {
        std::iter::once(self.current).chain(self.reserve.iter().copied()).filter(|span| span.len() > 0)
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
struct State {
    register: Register,
    /// Writes that may still be executed; sorted.
    late: Vec<Register>,
    processes: [Process; 2],
    issued: u16,
    returned: u8,
    budget: Budget,
    wrong: Option<&'static str>,
}

/// A step. The number is the index of the process.
#[derive(Debug, Clone, Copy)]
enum Step {
    Take(usize),
    Use(usize),
    PutBack(usize),
    /// The next range becomes the current one.
    Advance(usize),
    /// A fetch reads the register, and writes it in the next step.
    Fetch(usize),
    Write(usize, RequestOutcome),
    Stop(usize),
    /// A stopping process reads the register, and writes it in the next step.
    ReadToRelease(usize),
    Release(usize, RequestOutcome),
    Restart(usize),
    Crash(usize),
    Arrive(usize),
}

impl Protocol for OrderNumbers {
    type State = State;
    type Step = Step;
    const GOALS: &[Goal<State>] = &[
        ("all numbers are issued", |it| it.issued.count_ones() == u32::from(it.budget.numbers)),
        ("all numbers are issued after some were returned", |it| {
            it.returned > 0 && it.issued.count_ones() == u32::from(it.budget.numbers)
        }),
        ("a write of the register is late", |it| !it.late.is_empty()),
    ];

    fn start(&self) -> State {
        State { budget: self.budget, ..State::default() }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let (mut steps, budget) = (Vec::new(), state.budget);
        let mut add = |is_possible: bool, step: Step| steps.extend(is_possible.then_some(step));
        for (place, process) in state.processes.iter().enumerate() {
            let (left, is_open) = (process.current.len(), process.tails.is_none());
            let (is_taken, is_new) = (process.taken.is_some(), *process == Process::default());
            let may_take = is_open || self.omits(Mutation::OpenRangeReturned);
            let is_low = process.reserve.is_empty() && left <= RANGE_LEN / 2;
            let may_fetch = is_low || self.omits(Mutation::FetchedWithoutEnd);
            let returns = process.tails.as_ref().is_some_and(|tails| !tails.is_empty());
            add(is_taken, Step::Use(place));
            add(is_taken, Step::PutBack(place));
            add(!is_taken && may_take && (left > 0 || !process.unused.is_empty()), Step::Take(place));
            add(is_open && left == 0 && !process.reserve.is_empty(), Step::Advance(place));
            add(is_open && process.fetch.is_none() && may_fetch, Step::Fetch(place));
            add(is_open && budget.stops > 0 && !is_new, Step::Stop(place));
            add(returns && process.release.is_none(), Step::ReadToRelease(place));
            add(!is_open && !returns && !is_taken, Step::Restart(place));
            add(budget.crashes > 0 && !is_new, Step::Crash(place));
            for outcome in RequestOutcome::all(budget.losses > 0) {
                add(process.fetch.is_some(), Step::Write(place, *outcome));
                add(process.release.is_some(), Step::Release(place, *outcome));
            }
        }
        (0..state.late.len()).for_each(|place| add(true, Step::Arrive(place)));
        steps
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Take(place) => {
                let process = &mut state.processes[place];
                process.taken = process.unused.pop().or_else(|| {
                    process.current.from += 1;
                    Some(process.current.from - 1)
                });
            }
            Step::Use(place) => self.use_number(state, place),
            Step::PutBack(place) => {
                let process = &mut state.processes[place];
                let number = process.taken.take();
                process.unused.extend(number.filter(|_| process.tails.is_none()));
            }
            Step::Advance(place) => {
                let process = &mut state.processes[place];
                process.current = process.reserve.remove(0);
            }
            Step::Fetch(place) => self.fetch(state, place),
            Step::Write(place, outcome) => self.write(state, place, outcome),
            Step::Stop(place) => self.stop(state, place),
            Step::ReadToRelease(place) => {
                state.processes[place].release = Some(state.register);
            }
            Step::Release(place, outcome) => self.release(state, place, outcome),
            Step::Restart(place) => state.processes[place] = Process::default(),
            Step::Crash(place) => {
                state.budget.crashes -= 1;
                let process = std::mem::take(&mut state.processes[place]);
                if process.ranges().map(Span::len).sum::<u8>() > 2 * RANGE_LEN {
                    state.wrong = Some(FEW_LOST);
                }
            }
            Step::Arrive(place) => {
                let Register { next, revision } = state.late.remove(place);
                state.swap(revision, next);
            }
        }
    }

    fn violated(&self, state: &State) -> Option<&'static str> {
        state.wrong
    }
}

impl State {
    fn swap(&mut self, revision: u8, next: u8) -> bool {
        let holds = self.register.revision == revision;
        if holds {
            self.returned += self.register.next.saturating_sub(next);
            self.register = Register { next, revision: revision + 1 };
        }
        holds
    }

    /// Sends a write with this outcome. Returns whether the write is confirmed.
    fn request(&mut self, write: Register, outcome: RequestOutcome) -> bool {
        self.budget.losses -= u8::from(outcome.is_loss());
        if outcome == RequestOutcome::Late {
            self.late.push(write);
            self.late.sort_unstable();
        }
        let is_written = outcome.is_carried_out() && self.swap(write.revision, write.next);
        is_written && !outcome.is_loss()
    }
}

impl OrderNumbers {
    fn use_number(&self, state: &mut State, place: usize) {
        let process = &mut state.processes[place];
        let Some(number) = process.taken.take() else { return };
        if process.owns & 1 << number == 0 {
            state.wrong = Some(CONFIRMED);
        } else if state.issued & 1 << number != 0 {
            state.wrong = Some(ISSUED_ONCE);
        }
        state.issued |= 1 << number;
        if self.omits(Mutation::UsedNumberReused) {
            process.unused.push(number);
        }
    }

    fn fetch(&self, state: &mut State, place: usize) {
        let numbers = self.budget.numbers;
        let read = Some(state.register).filter(|read| read.next + RANGE_LEN <= numbers);
        let process = &mut state.processes[place];
        process.fetch = read;
        if self.omits(Mutation::PublishedBeforeConfirmed) {
            process.reserve.extend(read.map(reserved));
        }
    }

    fn write(&self, state: &mut State, place: usize, outcome: RequestOutcome) {
        let Some(read) = state.processes[place].fetch.take() else { return };
        let is_late_guard = self.omits(Mutation::ComparedAtWrite);
        let revision = if is_late_guard { state.register.revision } else { read.revision };
        let span = reserved(read);
        let is_confirmed = state.request(Register { next: span.until, revision }, outcome);
        let process = &mut state.processes[place];
        if is_confirmed {
            process.owns |= span.bits();
        }
        let is_done = is_confirmed || (outcome.is_loss() && self.omits(Mutation::UnclearIsDone));
        if is_done && process.tails.is_none() && !self.omits(Mutation::PublishedBeforeConfirmed) {
            process.reserve.push(span);
        }
    }

    /// Stops a process. Its ranges are closed first, so that none of their numbers can be taken any more.
    fn stop(&self, state: &mut State, place: usize) {
        state.budget.stops -= 1;
        let process = &mut state.processes[place];
        let mut tails: Vec<Span> = process.ranges().collect();
        if self.omits(Mutation::WholeRangeReturned) {
            tails.iter_mut().for_each(|tail| tail.from = tail.until - RANGE_LEN);
        }
        process.unused.clear();
        if !self.omits(Mutation::OpenRangeReturned) {
            process.current = Span::default();
            process.reserve.clear();
        }
        process.tails = Some(tails);
    }

    /// Returns the tails that are at the end of the register.
    fn release(&self, state: &mut State, place: usize, outcome: RequestOutcome) {
        let Some(read) = state.processes[place].release.take() else { return };
        let mut tails = state.processes[place].tails.clone().unwrap_or_default();
        tails.sort_by_key(|tail| std::cmp::Reverse(tail.until));
        let anywhere = self.omits(Mutation::ReturnedFromTheMiddle);
        let return_tail = |next, tail: &Span| if tail.until == next || anywhere { tail.from } else { next };
        let next = tails.iter().fold(read.next, return_tail);
        let is_confirmed = state.request(Register { next, revision: read.revision }, outcome);
        let may_repeat = if outcome.is_loss() { self.omits(Mutation::ReturnedAgain) } else { !is_confirmed };
        if !may_repeat {
            let process = &mut state.processes[place];
            (process.current, process.reserve) = (Span::default(), Vec::new());
            process.tails = Some(Vec::new());
        }
    }
}

/// Returns the range that a process reserves.
fn reserved(read: Register) -> Span {
    Span { from: read.next, until: read.next + RANGE_LEN }
}
