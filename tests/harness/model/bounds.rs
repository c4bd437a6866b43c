//! The bounds of the models: small ones for the tests, large ones for the command.
//!
//! A budget bounds the number of requests and of faults. Within a budget every combination at every point
//! is visited. Faults that do harm only together are in one budget.

use super::explore::{Figures, exhaust};
use super::protocol::{self, Protocol};
use super::ranges::{self, Ranges};

/// A model with a budget.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    /// The protocol of accepting and posting.
    Protocol(Protocol),
    /// The allocator of order numbers.
    Ranges(Ranges),
}

/// One exploration.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// A description for output.
    pub description: &'static str,
    /// The model to explore.
    pub subject: Subject,
}

impl Run {
    /// Visits every state.
    ///
    /// # Errors
    /// As [`exhaust`].
    pub fn exhaust(&self, threads: usize, progress: impl FnMut(&Figures)) -> Result<Figures, String> {
        match self.subject {
            Subject::Protocol(protocol) => exhaust(protocol, threads, progress),
            Subject::Ranges(ranges) => exhaust(ranges, threads, progress),
        }
    }
}

/// The log and the queue are two services, as on Azure.
const AZURE: protocol::rules::Rules = protocol::rules::Rules::TWO_SERVICES;
/// The log and the queue are one database.
const SQLITE: protocol::rules::Rules = protocol::rules::Rules::ONE_DATABASE;
/// Each client sends one request, and there are no faults.
const ONCE: protocol::Budget = protocol::Budget {
    submits: [1, 1, 0],
    losses: 0,
    crashes: 0,
    expiries: 0,
    repairs: 0,
    waits: 0,
    holds: 0,
    funds: 0,
};
/// As [`ONCE`], and clients wait for the outcomes.
const WAITING: protocol::Budget = protocol::Budget { waits: 2, ..ONCE };
/// Three ranges of two numbers, and no faults.
const NUMBERS: ranges::Budget = ranges::Budget { numbers: 6, losses: 0, crashes: 0, closings: 0 };

const fn protocol(description: &'static str, rules: protocol::rules::Rules, budget: protocol::Budget) -> Run {
    Run { description, subject: Subject::Protocol(Protocol { rules, budget }) }
}

const fn ranges(description: &'static str, budget: ranges::Budget) -> Run {
    Run { description, subject: Subject::Ranges(Ranges { rules: ranges::rules::Rules::CORRECT, budget }) }
}

/// The bounds of every test run: about two million states.
pub const SMALL: &[Run] = &[
    protocol(
        "a crash, a loss and a lease that ends early",
        AZURE,
        protocol::Budget { losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients repeat requests; a loss and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "the same id with other content; a loss",
        AZURE,
        protocol::Budget { submits: [2, 1, 1], losses: 1, ..ONCE },
    ),
    protocol("repair; a loss", AZURE, protocol::Budget { losses: 1, repairs: 1, ..ONCE }),
    protocol("repair; a lease that ends early", AZURE, protocol::Budget { expiries: 1, repairs: 1, ..ONCE }),
    protocol("one database; a crash and a loss", SQLITE, protocol::Budget { losses: 1, crashes: 1, ..ONCE }),
    protocol(
        "one database; the same id with other content; a loss",
        SQLITE,
        protocol::Budget { submits: [2, 1, 1], losses: 1, ..ONCE },
    ),
    protocol(
        "clients wait; a crash and a loss",
        AZURE,
        protocol::Budget { losses: 1, crashes: 1, ..WAITING },
    ),
    protocol(
        "clients wait and repeat requests; a loss",
        AZURE,
        protocol::Budget { submits: [2, 0, 0], losses: 1, ..WAITING },
    ),
    protocol(
        "clients wait; the same id with other content; a loss",
        AZURE,
        protocol::Budget { submits: [1, 0, 1], losses: 1, ..WAITING },
    ),
    protocol(
        "clients wait; the gate is held; a loss",
        AZURE,
        protocol::Budget { losses: 1, holds: 1, ..WAITING },
    ),
    protocol(
        "one database; clients wait; a crash and a loss",
        SQLITE,
        protocol::Budget { losses: 1, crashes: 1, ..WAITING },
    ),
    protocol(
        "one database; clients wait and repeat requests; a loss",
        SQLITE,
        protocol::Budget { submits: [2, 0, 0], losses: 1, ..WAITING },
    ),
    protocol(
        "clients wait; the account can pay; a loss",
        AZURE,
        protocol::Budget { losses: 1, funds: 1, ..WAITING },
    ),
    ranges("order numbers: two losses", ranges::Budget { losses: 2, ..NUMBERS }),
    ranges("order numbers: a loss and a crash", ranges::Budget { losses: 1, crashes: 1, ..NUMBERS }),
    ranges(
        "order numbers: a loss and a clean stop",
        ranges::Budget { numbers: 5, losses: 1, closings: 1, ..NUMBERS },
    ),
];

/// The bounds of the command: about eighty million states.
pub const LARGE: &[Run] = &[
    protocol(
        "clients repeat requests; a crash, a loss and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients repeat requests; a crash, two losses and a lease that ends early",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 2, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "clients repeat both requests; a crash and a loss",
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
        "one database; a crash, a loss and a lease that ends early",
        SQLITE,
        protocol::Budget { losses: 1, crashes: 1, expiries: 1, ..ONCE },
    ),
    protocol(
        "one database; clients repeat requests; the same id with other content; a crash and a loss",
        SQLITE,
        protocol::Budget { submits: [2, 1, 1], losses: 1, crashes: 1, ..ONCE },
    ),
    protocol(
        "clients wait and repeat requests; a crash and a loss",
        AZURE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, crashes: 1, ..WAITING },
    ),
    protocol(
        "clients wait; the same id with other content; the gate is held; a loss",
        AZURE,
        protocol::Budget { submits: [1, 1, 1], losses: 1, holds: 1, ..WAITING },
    ),
    protocol(
        "clients wait; a loss and a lease that ends early",
        AZURE,
        protocol::Budget { losses: 1, expiries: 1, ..WAITING },
    ),
    protocol(
        "one database; clients wait and repeat requests; a crash and a loss",
        SQLITE,
        protocol::Budget { submits: [2, 1, 0], losses: 1, crashes: 1, ..WAITING },
    ),
    ranges("ten order numbers: two losses", ranges::Budget { numbers: 10, losses: 2, ..NUMBERS }),
    ranges(
        "ten order numbers: a loss and a crash",
        ranges::Budget { numbers: 10, losses: 1, crashes: 1, ..NUMBERS },
    ),
    ranges(
        "ten order numbers: a loss and a clean stop",
        ranges::Budget { numbers: 10, losses: 1, closings: 1, ..NUMBERS },
    ),
    ranges(
        "six order numbers: a loss, a crash and a clean stop",
        ranges::Budget { losses: 1, crashes: 1, closings: 1, ..NUMBERS },
    ),
];
