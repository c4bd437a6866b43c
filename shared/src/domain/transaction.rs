//! The status of a transaction with its allowed changes, the outcome, and the position in a batch.

use super::ids::{BatchId, OrderNumber};
use super::money::Balance;
use super::rejection::RejectReason;
use super::time::Timestamp;

/// The status of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// Stored, without a final status yet.
    Accepted,
    /// The money was moved.
    Posted,
    /// The bank rejected the transaction.
    Rejected,
}

impl TransactionStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Posted, Self::Rejected];

    /// Returns the status that an outcome implies: [`Self::Accepted`] without an outcome.
    pub fn of(outcome: Option<&Outcome>) -> Self {
        outcome.map_or(Self::Accepted, Outcome::status)
    }

    /// Returns whether this status is final.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Accepted => false,
            Self::Posted | Self::Rejected => true,
        }
    }

    /// Returns whether the status may change to `next`.
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Accepted, Self::Posted | Self::Rejected) => true,
            (Self::Accepted, Self::Accepted) | (Self::Posted | Self::Rejected, _) => false,
        }
    }

    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Posted => "posted",
            Self::Rejected => "rejected",
        }
    }

    /// Returns the status with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}

/// The position of a transaction in the batch that inserted it. Batch and transaction belong to the same partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchLine {
    /// The partner's id of the batch.
    pub batch: BatchId,
    /// The number of the item in the document, from 1.
    pub line: u32,
}

/// The final result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The money was moved.
    Posted {
        /// The number of the posting, for use by people.
        order_number: OrderNumber,
        /// The sequence of its entry in the journal of the account, from 1.
        sequence: u64,
        /// The balance right after this entry.
        balance_after: Balance,
        /// The time of the decision.
        posted_at: Timestamp,
    },
    /// The bank rejected the transaction.
    Rejected {
        /// The reason.
        reason: RejectReason,
        /// The time of the decision.
        rejected_at: Timestamp,
        /// The version of the account whose page contains the decision; `None` if the account does not exist.
        version: Option<u64>,
    },
}

impl Outcome {
    /// Returns the final status.
    pub const fn status(&self) -> TransactionStatus {
        match self {
            Self::Posted { .. } => TransactionStatus::Posted,
            Self::Rejected { .. } => TransactionStatus::Rejected,
        }
    }

    /// Returns the reason of a rejection.
    pub const fn reason(&self) -> Option<RejectReason> {
        match self {
            Self::Posted { .. } => None,
            Self::Rejected { reason, .. } => Some(*reason),
        }
    }

    /// Returns the order number of a posting.
    pub const fn order_number(&self) -> Option<OrderNumber> {
        match self {
            Self::Posted { order_number, .. } => Some(*order_number),
            Self::Rejected { .. } => None,
        }
    }

    /// Returns whether another balance could change the outcome.
    pub fn depends_on_balance(&self) -> bool {
        self.reason().is_some_and(RejectReason::depends_on_balance)
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
