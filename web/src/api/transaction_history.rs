//! Conversion of a stored transaction to its history, for operators.

use postonce_schemas::json::{FoundTransaction, TransactionEvent, TransactionEventKind, TransactionWay};
use postonce_shared::domain::origin::Delivered;
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::ports::ledger::{Marks, StoredTransaction};

use crate::api::respond;

/// Converts a stored transaction, with its events and how it was posted.
pub fn of(stored: StoredTransaction) -> FoundTransaction {
    let StoredTransaction { submission, outcome, marks, delivered, .. } = stored;
    let Marks { dead_letter, repairs, repaired_at } = marks;
    let batch_line = submission.batch_line;
    let decided = outcome.as_ref().map(|outcome| match outcome {
        Outcome::Posted { posted_at, .. } => (TransactionEventKind::Posted, *posted_at),
        Outcome::Rejected { rejected_at, .. } => (TransactionEventKind::Rejected, *rejected_at),
    });
    let times = [
        Some((TransactionEventKind::Accepted, submission.accepted_at)),
        delivered.map(|Delivered { sent_at, .. }| (TransactionEventKind::Sent, sent_at)),
        delivered.map(|Delivered { received_at, .. }| (TransactionEventKind::Received, received_at)),
        repaired_at.map(|at| (TransactionEventKind::EnqueuedAgain, at)),
        decided,
    ];
    let event = |(event, at): (_, Timestamp)| TransactionEvent { event, at: at.to_string() };
    let way = match (&outcome, batch_line, delivered) {
        (None, _, _) => TransactionWay::Open,
        (Some(_), Some(_), _) => TransactionWay::Batch,
        (Some(_), None, Some(_)) => TransactionWay::Queued,
        // An operator discarded the dead letter.
        (Some(outcome), None, None) if outcome.reason() == Some(RejectReason::Discarded) => {
            TransactionWay::Queued
        }
        (Some(_), None, None) => TransactionWay::Immediate,
    };
    FoundTransaction {
        way,
        request_id: submission.origin.request_id().map(str::to_owned),
        batch_id: batch_line.map(|line| line.batch.to_string()),
        batch_line: batch_line.map(|line| line.line),
        events: times.into_iter().flatten().map(event).collect(),
        is_dead_letter: dead_letter && outcome.is_none(),
        enqueued_again: repairs,
        transaction: respond::transaction_of_partner(submission, outcome),
    }
}
