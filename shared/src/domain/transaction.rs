//! A transaction: a stored instruction with a status, and the table of what a status may become.

use super::ids::{OrderNumber, TransactionKey};
use super::instruction::Instruction;
use super::money::Balance;
use super::rejection::RejectReason;
use super::time::Timestamp;

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// Stored; the bank owes the partner a final status.
    Accepted,
    /// The money moved.
    Posted,
    /// The bank said no.
    Rejected,
}

impl TransactionStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Posted, Self::Rejected];

    /// Whether this status never changes again.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Accepted => false,
            Self::Posted | Self::Rejected => true,
        }
    }

    /// The life of a transaction.
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Accepted, Self::Posted | Self::Rejected) => true,
            (Self::Accepted, Self::Accepted) | (Self::Posted | Self::Rejected, _) => false,
        }
    }

    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Posted => "posted",
            Self::Rejected => "rejected",
        }
    }

    /// The status with that code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}

/// What became of a transaction, for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The money moved.
    Posted {
        /// The number that people quote.
        order_number: OrderNumber,
        /// The place of its entry in the journal of the account, from 1.
        sequence: u64,
        /// The balance right after it.
        balance_after: Balance,
        /// When it was decided.
        posted_at: Timestamp,
    },
    /// The bank said no.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// When it was decided.
        rejected_at: Timestamp,
    },
}

impl Outcome {
    /// The final status.
    pub const fn status(&self) -> TransactionStatus {
        match self {
            Self::Posted { .. } => TransactionStatus::Posted,
            Self::Rejected { .. } => TransactionStatus::Rejected,
        }
    }
}

/// A stored instruction and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its name.
    pub key: TransactionKey,
    /// What the partner asked for.
    pub instruction: Instruction,
    /// When it was stored.
    pub accepted_at: Timestamp,
    /// What became of it; `None` while it is accepted.
    pub outcome: Option<Outcome>,
}

impl Transaction {
    /// Where it stands.
    pub fn status(&self) -> TransactionStatus {
        self.outcome.as_ref().map_or(TransactionStatus::Accepted, Outcome::status)
    }
}

#[cfg(test)]
mod tests {
    use super::TransactionStatus::{self, Accepted, Posted, Rejected};

    #[test]
    fn a_final_status_never_changes() {
        for from in TransactionStatus::ALL {
            for to in TransactionStatus::ALL {
                let expected = matches!((from, to), (Accepted, Posted | Rejected));
                assert_eq!(from.may_become(to), expected, "{from:?} to {to:?}");
                assert!(!(from.is_final() && from.may_become(to)));
            }
        }
    }
}
