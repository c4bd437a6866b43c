//! What the model of the order numbers remembers: the register, the writes on their way, and what each
//! process has in memory.

use stateright::Representative;

use super::rules::Rules;

/// Processes.
pub const PROCESSES: usize = 2;
/// Numbers of a range.
pub const RANGE_LEN: u8 = 2;
/// Most numbers of all: each is a bit.
pub const NUMBERS_MAX: u8 = 16;

/// A half-open range of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first that was not taken.
    pub from: u8,
    /// The first after it.
    pub until: u8,
}

impl Span {
    /// How many there are.
    pub const fn len(self) -> u8 {
        self.until.saturating_sub(self.from)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The shared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register {
    /// The first number that nobody reserved.
    pub next: u8,
    /// Grows with each write.
    pub revision: u8,
}

/// What goes on between a process and the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerNetwork {
    /// Nothing.
    Idle,
    /// It is about to be read.
    Reading,
    /// It was read so, and is about to be written.
    Writing(Register),
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The range that it issues from.
    pub current: Option<Span>,
    /// Ranges in reserve: by the rules at most one.
    pub following: Vec<Span>,
    /// The fetch of a range.
    pub fetch: PeerNetwork,
    /// The highest end of a range of its own that was confirmed.
    pub confirmed: u8,
    /// A number that was taken for a commit.
    pub hand: Option<u8>,
    /// Numbers that were taken and that no commit used.
    pub returned: Vec<u8>,
    /// Whether it is ending, and what it wants to give back.
    pub tails: Option<Vec<Span>>,
    /// The write that gives it back.
    pub release: PeerNetwork,
    /// For the checker only: the numbers of ranges whose write it saw confirmed, as bits.
    pub owns: u16,
}

/// A write without an answer that may still be carried out: the state that it must find, and the
/// number that will be next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LateWrite {
    /// The revision that it must find.
    pub guard: u8,
    /// What it writes.
    pub next: u8,
}

/// How much may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// How many numbers there are, at most 16: their end bounds the model, as it bounds the bank.
    pub numbers: u8,
    /// Answers lost, writes lost, writes that arrive late.
    pub losses: u8,
    /// Crashes.
    pub crashes: u8,
    /// Processes that end in an orderly way.
    pub closings: u8,
}

/// Wrong steps that the state alone would not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Flaws {
    /// A number was issued again.
    pub repeated: bool,
    /// A number was issued of a range that nobody has confirmed to that process.
    pub unconfirmed: bool,
    /// A process that is not ending has refused the register.
    pub refused: bool,
}

/// The world.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// The register.
    pub register: Register,
    /// Writes on their way, sorted.
    pub late: Vec<LateWrite>,
    /// The processes.
    pub processes: [Process; PROCESSES],
    /// Numbers that were used, as bits.
    pub issued: u16,
    /// Numbers that were given back to the register.
    pub given_back: u8,
    /// How many numbers may be lost by now.
    pub losable: u8,
    /// What may still happen.
    pub budget: Budget,
    /// What went wrong.
    pub flaws: Flaws,
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
    /// A process that has just started.
    pub const fn new() -> Self {
        Self {
            current: None,
            following: Vec::new(),
            fetch: PeerNetwork::Idle,
            confirmed: 0,
            hand: None,
            returned: Vec::new(),
            tails: None,
            release: PeerNetwork::Idle,
            owns: 0,
        }
    }

    /// Whether it is ending.
    pub const fn is_closed(&self) -> bool {
        self.tails.is_some()
    }

    /// What is left of its ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Span> {
        self.current.iter().chain(&self.following).copied().filter(|span| !span.is_empty())
    }

    /// Every number that it may still use or give back, as bits.
    fn held(&self) -> u16 {
        let spans = self.ranges().chain(self.tails.iter().flatten().copied());
        let numbers = self.hand.iter().chain(&self.returned).fold(0, |held, number| held | bit(*number));
        spans.fold(numbers, |held, span| held | bits(span))
    }
}

impl State {
    /// A bank that never issued a number.
    pub fn new(budget: Budget) -> Self {
        assert!(budget.numbers <= NUMBERS_MAX, "there are at most {NUMBERS_MAX} numbers");
        Self {
            register: Register { next: 0, revision: 0 },
            late: Vec::new(),
            processes: [Process::new(), Process::new()],
            issued: 0,
            given_back: 0,
            losable: 0,
            budget,
            flaws: Flaws::default(),
        }
    }

    /// How many numbers were reserved and can never be issued.
    pub fn lost(&self) -> u8 {
        let held = self.processes.iter().fold(self.issued, |held, process| held | process.held());
        let reserved = bits(Span { from: 0, until: self.register.next });
        u8::try_from((reserved & !held).count_ones()).unwrap_or(u8::MAX)
    }

    /// Drops writes that their guard will refuse for ever: revisions only grow.
    pub(super) fn forget_what_cannot_land(&mut self, rules: &Rules) {
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
