//! The states of a transaction until it is final: submitted, pending and decided. Waiting requests, messages of the queue
//! and items of batches use the same types.

use crate::domain::account::Revision;
use crate::domain::ids::TransactionKey;
use crate::domain::instruction::Instruction;
use crate::domain::origin::{Delivered, Origin};
use crate::domain::time::Timestamp;
use crate::domain::transaction::{BatchLine, Outcome};

/// An instruction that a partner submitted, under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The account, the partner and the partner's message id.
    pub key: TransactionKey,
    /// The instruction of the partner.
    pub instruction: Instruction,
    /// The time of acceptance; for a submission that is not stored yet, the time when the request arrived.
    pub accepted_at: Timestamp,
    /// The request that contained the instruction.
    pub origin: Origin,
    /// The position in the batch that contained it; `None` for a single request.
    pub batch_line: Option<BatchLine>,
}

/// The state of the transaction's row in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// The log has no row. The commit inserts it, and the insert is the idempotency check.
    Absent,
    /// The row must have this revision at the commit.
    Stored(Revision),
}

/// A transaction before its decision, with everything that posting needs: normally nothing is read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending<R = Row> {
    /// The submitted instruction with its key.
    pub submission: Submission,
    /// The row in the log; for [`Work`], its revision.
    pub row: R,
    /// The delivery by the queue; `None` for a transaction that the queue has not delivered.
    pub delivered: Option<Delivered>,
}

/// Accepted work: a pending transaction with a stored row. Only work can be enqueued.
pub type Work = Pending<Revision>;

/// A transaction with its outcome, to be written by a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The submission and its row before the decision.
    pub pending: Pending,
    /// The result of the decision.
    pub outcome: Outcome,
}

impl<R> Pending<R> {
    /// Returns the key of the transaction.
    pub const fn key(&self) -> &TransactionKey {
        &self.submission.key
    }
}

impl Pending {
    /// Returns whether the log has a row of the transaction.
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
    /// Returns the submitted instruction with its key.
    pub const fn submission(&self) -> &Submission {
        &self.pending.submission
    }

    /// Returns the key of the transaction.
    pub const fn key(&self) -> &TransactionKey {
        self.pending.key()
    }

    /// Returns the revision that the row must have; `None` if the commit inserts the row.
    pub const fn revision(&self) -> Option<&Revision> {
        match &self.pending.row {
            Row::Stored(revision) => Some(revision),
            Row::Absent => None,
        }
    }
}
