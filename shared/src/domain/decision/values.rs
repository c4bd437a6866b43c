//! The values of a transaction on its way: what a partner submits, what is pending, and what is decided. They are the same for a
//! request that waits, for a message of the queue and for an item of a batch.

use crate::domain::account::Revision;
use crate::domain::ids::TransactionKey;
use crate::domain::instruction::Instruction;
use crate::domain::origin::{Delivered, Origin};
use crate::domain::time::Timestamp;
use crate::domain::transaction::{BatchLine, Outcome};

/// What a partner submits: an instruction under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Identifies the transaction.
    pub key: TransactionKey,
    /// The instruction of the partner.
    pub instruction: Instruction,
    /// The time when it was accepted: for what is not stored yet, when the request arrived.
    pub accepted_at: Timestamp,
    /// The request that brought it.
    pub origin: Origin,
    /// The batch that it is from; `None` for a request of its own.
    pub batch_line: Option<BatchLine>,
}

/// The row of a pending transaction in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// There is none: the commit inserts it, and the insert is the idempotency check.
    Absent,
    /// The row must have this revision at the commit.
    Stored(Revision),
}

/// A transaction that is not decided yet, with its row. It holds everything that posting needs, so that in the normal case
/// nothing is read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending<R = Row> {
    /// What was submitted.
    pub submission: Submission,
    /// The row.
    pub row: R,
    /// Its delivery by the queue; `None` until it is received.
    pub delivered: Option<Delivered>,
}

/// Accepted work: a pending transaction that is stored. Only this can be enqueued.
pub type Work = Pending<Revision>;

/// A transaction with its outcome, to be written by a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The transaction before the decision.
    pub pending: Pending,
    /// The outcome.
    pub outcome: Outcome,
}

impl<R> Pending<R> {
    /// Returns the key of the transaction.
    pub const fn key(&self) -> &TransactionKey {
        &self.submission.key
    }
}

impl Pending {
    /// Returns whether it has a row.
    pub const fn is_stored(&self) -> bool {
        matches!(self.row, Row::Stored(_))
    }
}

impl From<Work> for Pending {
    fn from(Pending { submission, row, delivered }: Work) -> Self {
        Self { submission, row: Row::Stored(row), delivered }
    }
}

impl From<Submission> for Pending {
    fn from(submission: Submission) -> Self {
        Self { submission, row: Row::Absent, delivered: None }
    }
}

impl Decided {
    /// Returns what was submitted.
    pub const fn submission(&self) -> &Submission {
        &self.pending.submission
    }

    /// Returns the key of the transaction.
    pub const fn key(&self) -> &TransactionKey {
        self.pending.key()
    }

    /// Returns the revision that its row must have; `None` if the commit inserts it.
    pub const fn revision(&self) -> Option<&Revision> {
        match &self.pending.row {
            Row::Stored(revision) => Some(revision),
            Row::Absent => None,
        }
    }
}
