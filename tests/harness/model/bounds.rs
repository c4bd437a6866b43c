//! How far the models are explored: little in every run of the tests, much by command.
//!
//! A budget bounds how often clients ask and how much goes wrong; within it every combination at every
//! point is visited. Faults that need each other to do harm are in one budget.

use super::explore::{Figures, exhaust};
use super::protocol::{self, Protocol};
use super::ranges::{self, Ranges};

/// A model with a budget.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// Accepting and posting.
    Protocol(Protocol),
    /// The order numbers.
    Ranges(Ranges),
}

/// What to explore.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// What it is about, for people.
    pub about: &'static str,
    /// The model.
    pub subject: Subject,
}

impl Run {
    /// Visits every state.
    ///
    /// # Errors
    /// As [`exhaust`].
    pub fn exhaust(&self, threads: usize, told: impl FnMut(&Figures)) -> Result<Figures, String> {
        match self.subject {
            Subject::Protocol(protocol) => exhaust(protocol, threads, told),
            Subject::Ranges(ranges) => exhaust(ranges, threads, told),
        }
    }
}

/// Log and queue are two services, as on Azure.
const AZURE: protocol::rules::Rules = protocol::rules::Rules::TWO_SERVICES;
/// Log and queue are one database.
const SQLITE: protocol::rules::Rules = protocol::rules::Rules::ONE_DATABASE;
/// Each client asks once, and nothing goes wrong.
const ONCE: protocol::Budget =
    protocol::Budget { submits: [1, 1, 0], losses: 0, crashes: 0, expiries: 0, repairs: 0 };
/// Three ranges of two numbers, and nothing goes wrong.
const NUMBERS: ranges::Budget = ranges::Budget { numbers: 6, losses: 0, crashes: 0, closings: 0 };

const fn protocol(about: &'static str, rules: protocol::rules::Rules, budget: protocol::Budget) -> Run {
    Run { about, subject: Subject::Protocol(Protocol { rules, budget }) }
}

const fn ranges(about: &'static str, budget: ranges::Budget) -> Run {
    Run { about, subject: Subject::Ranges(Ranges { rules: ranges::rules::Rules::SOUND, budget }) }
}

/// For every run of the tests: about three million states.
pub const SMALL: &[Run] = &[
    protocol(
        "a crash, a loss and a lease that ends early",
        AZURE,
        protocol::Budget { losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients ask again; a loss and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients ask again; a loss and a crash",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, crashes: 1, ..ONCE },
    ),
    protocol(
        "the same id with other content; a loss",
        AZURE,
        protocol::Budget { submits: [2, 1, 1], losses: 1, ..ONCE },
    ),
    protocol("repair; a loss", AZURE, protocol::Budget { losses: 1, repairs: 1, ..ONCE }),
    protocol("repair; a lease that ends early", AZURE, protocol::Budget { expiries: 1, repairs: 1, ..ONCE }),
    protocol(
        "one database; a crash, a loss and a lease that ends early",
        SQLITE,
        protocol::Budget { losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "one database; the same id with other content; a loss",
        SQLITE,
        protocol::Budget { submits: [2, 1, 1], losses: 1, ..ONCE },
    ),
    ranges("order numbers: two losses", ranges::Budget { losses: 2, ..NUMBERS }),
    ranges("order numbers: a loss and a crash", ranges::Budget { losses: 1, crashes: 1, ..NUMBERS }),
    ranges("order numbers: a loss and an orderly end", ranges::Budget { losses: 1, closings: 1, ..NUMBERS }),
];

/// By command: some seventy million states.
pub const LARGE: &[Run] = &[
    protocol(
        "clients ask again; a crash, a loss and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients ask again; a crash, two losses and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 2, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients ask for both again; a crash and a loss",
        AZURE,
        protocol::Budget { submits: [2, 2, 0], losses: 1, crashes: 1, ..ONCE },
    ),
    protocol(
        "repair; a crash, a loss and a lease that ends early",
        AZURE,
        protocol::Budget { losses: 1, crashes: 1, expiries: 1, repairs: 1, ..ONCE },
    ),
    protocol(
        "the same id with other content; a crash, a loss and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [1, 1, 1], losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "one database; clients ask again; the same id with other content; a crash and a loss",
        SQLITE,
        protocol::Budget { submits: [2, 1, 1], losses: 1, crashes: 1, ..ONCE },
    ),
    ranges("ten order numbers: two losses", ranges::Budget { numbers: 10, losses: 2, ..NUMBERS }),
    ranges(
        "ten order numbers: a loss and a crash",
        ranges::Budget { numbers: 10, losses: 1, crashes: 1, ..NUMBERS },
    ),
    ranges(
        "ten order numbers: a loss and an orderly end",
        ranges::Budget { numbers: 10, losses: 1, closings: 1, ..NUMBERS },
    ),
    ranges(
        "six order numbers: a loss, a crash and an orderly end",
        ranges::Budget { losses: 1, crashes: 1, closings: 1, ..NUMBERS },
    ),
];
