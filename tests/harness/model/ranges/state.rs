//! The state of the model: the register, the writes under way, and the memory of each process.

use stateright::Representative;

use super::rules::Rules;

/// Number of processes.
pub const PROCESSES: usize = 2;
/// Length of a range.
pub const RANGE_LEN: u8 = 2;
/// Largest amount of numbers: each is a bit.
pub const NUMBERS_MAX: u8 = 16;

/// A half-open range of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first number that was not taken.
    pub from: u8,
    /// The first number after the range.
    pub until: u8,
}

impl Span {
    /// The length.
    pub const fn len(self) -> u8 {
        self.until.saturating_sub(self.from)
    }

    /// Whether the range is empty.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The shared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register {
    /// The first number that is not reserved.
    pub next: u8,
    /// Increases with each write.
    pub revision: u8,
}

/// The state of an exchange between a process and the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerNetwork {
    /// No exchange.
    Idle,
    /// The register is to be read.
    Reading,
    /// The register was read and is to be written.
    Writing(Register),
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The current range.
    pub current: Option<Span>,
    /// Ranges in reserve: at most one by the rules.
    pub following: Vec<Span>,
    /// The fetch of a range.
    pub fetch: PeerNetwork,
    /// The highest end of a range of its own that was confirmed.
    pub confirmed: u8,
    /// A number that was taken for a commit.
    pub taken: Option<u8>,
    /// Numbers that were taken and not used by a commit.
    pub returned: Vec<u8>,
    /// The ranges that a stopping process returns; `None` while it is not stopping.
    pub tails: Option<Vec<Span>>,
    /// The write that returns them.
    pub release: PeerNetwork,
    /// For the checker only: the numbers of ranges whose write was confirmed, as bits.
    pub owns: u16,
}

/// A write without an answer that may still be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LateWrite {
    /// The revision that the register must have.
    pub guard: u8,
    /// The next free number after the write.
    pub next: u8,
}

/// How many faults may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// The amount of numbers, at most 16. The end of the numbers bounds the model, as it bounds the bank.
    pub numbers: u8,
    /// Lost answers, lost writes and late writes.
    pub losses: u8,
    /// Crashes.
    pub crashes: u8,
    /// Processes that stop cleanly.
    pub closings: u8,
}

/// Wrong steps that cannot be seen in the rest of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Violations {
    /// A number was issued again.
    pub repeated: bool,
    /// A number was issued from a range whose reservation was not confirmed to that process.
    pub unconfirmed: bool,
    /// A process that is not stopping refused the register.
    pub refused: bool,
}

/// The state of the whole system.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The register.
    pub register: Register,
    /// Writes under way, sorted.
    pub late: Vec<LateWrite>,
    /// The processes.
    pub processes: [Process; PROCESSES],
    /// The issued numbers, as bits.
    pub issued: u16,
    /// Amount of numbers that were returned to the register.
    pub returned_count: u8,
    /// How many numbers may be lost so far.
    pub loss_limit: u8,
    /// The faults that may still happen.
    pub budget: Budget,
    /// The wrong steps so far.
    pub violations: Violations,
}

/// A number as a bit.
pub fn bit(number: u8) -> u16 {
    1_u16.checked_shl(u32::from(number)).unwrap_or(0)
}

/// The numbers of a span as bits.
pub fn bits(span: Span) -> u16 {
    (span.from..span.until).fold(0, |bits, number| bits | bit(number))
}

impl Process {
    /// A process after its start.
    pub const fn new() -> Self {
        Self {
            current: None,
            following: Vec::new(),
            fetch: PeerNetwork::Idle,
            confirmed: 0,
            taken: None,
            returned: Vec::new(),
            tails: None,
            release: PeerNetwork::Idle,
            owns: 0,
        }
    }

    /// Whether the process is stopping.
    pub const fn is_closed(&self) -> bool {
        self.tails.is_some()
    }

    /// The remaining ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Span> {
        self.current.iter().chain(&self.following).copied().filter(|span| !span.is_empty())
    }

    /// Every number that the process may still use or return, as bits.
    fn held(&self) -> u16 {
        let spans = self.ranges().chain(self.tails.iter().flatten().copied());
        let numbers = self.taken.iter().chain(&self.returned).fold(0, |held, number| held | bit(*number));
        spans.fold(numbers, |held, span| held | bits(span))
    }
}

impl State {
    /// A bank that has never issued a number.
    pub fn new(budget: Budget) -> Self {
        assert!(budget.numbers <= NUMBERS_MAX, "there are at most {NUMBERS_MAX} numbers");
        Self {
            register: Register { next: 0, revision: 0 },
            late: Vec::new(),
            processes: [Process::new(), Process::new()],
            issued: 0,
            returned_count: 0,
            loss_limit: 0,
            budget,
            violations: Violations::default(),
        }
    }

    /// The amount of numbers that were reserved and can never be issued.
    pub fn lost(&self) -> u8 {
        let held = self.processes.iter().fold(self.issued, |held, process| held | process.held());
        let reserved = bits(Span { from: 0, until: self.register.next });
        u8::try_from((reserved & !held).count_ones()).unwrap_or(u8::MAX)
    }

    /// Drops writes whose guard can never hold again: revisions only increase.
    pub(super) fn drop_ineffective_writes(&mut self, rules: &Rules) {
        if rules.mutation.is_none() {
            let revision = self.register.revision;
            self.late.retain(|write| revision <= write.guard);
        }
    }
}

/// Processes are interchangeable.
impl Representative for State {
    fn representative(&self) -> Self {
        let mut state = self.clone();
        state.processes.sort_unstable();
        state
    }
}
