//! Transactions in response bodies.

use postonce_schemas::json::{self as wire, RawMembers, TransactionEventKind, TransactionWay};
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::ids::{AccountKey, TransactionKey};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::origin::{Delivered, Origin};
use postonce_shared::domain::rejection::RejectReason;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::{Outcome, TransactionStatus};
use postonce_shared::ports::ledger::{Marks, StoredTransaction};

/// Converts a transaction for its partner.
pub fn transaction(submission: Submission, outcome: Option<Outcome>) -> wire::Transaction {
    let status = TransactionStatus::of(outcome.as_ref());
    let Submission { key, instruction, accepted_at, .. } = submission;
    let accepted = accepted(&key, instruction, status, accepted_at);
    match outcome {
        None => accepted,
        Some(Outcome::Posted { order_number, sequence, balance_after, posted_at }) => wire::Transaction {
            order_number: Some(order_number.to_string()),
            sequence: Some(sequence),
            balance_after: Some(balance_after.to_string()),
            posted_at: Some(posted_at.to_string()),
            ..accepted
        },
        Some(Outcome::Rejected { reason, rejected_at, .. }) => wire::Transaction {
            reason: Some(reason.code().into()),
            rejected_at: Some(rejected_at.to_string()),
            ..accepted
        },
    }
}

/// Converts a transaction for a reader of the transactions of all partners.
pub fn transaction_of_partner(submission: Submission, outcome: Option<Outcome>) -> wire::Transaction {
    let partner_id = Some(submission.key.partner.to_string());
    let converted = transaction(submission, outcome);
    // A partner can send a member with this name. It stays in `unknown_members`.
    let flattened_members = converted.flattened_members.without(wire::Transaction::PARTNER_ID);
    wire::Transaction { partner_id, flattened_members, ..converted }
}

/// Converts an entry of the journal to its submission and outcome.
pub fn of_entry(account: AccountKey, entry: Entry) -> (Submission, Option<Outcome>) {
    let Entry {
        sequence,
        partner,
        message,
        kind,
        amount,
        details,
        order_number,
        balance_after,
        accepted_at,
        posted_at,
    } = entry;
    let submission = Submission {
        key: TransactionKey { account, partner, message },
        instruction: Instruction { kind, amount, details },
        accepted_at,
        origin: Origin::default(),
        batch_line: None,
    };
    (submission, Some(Outcome::Posted { order_number, sequence, balance_after, posted_at }))
}

fn accepted(
    key: &TransactionKey,
    instruction: Instruction,
    status: TransactionStatus,
    accepted_at: Timestamp,
) -> wire::Transaction {
    let Instruction { kind, amount, details } = instruction;
    // The partner chose this content. Parts that cannot be parsed are omitted.
    let (unknown_members, unknown_elements) = match details.unknown_members() {
        list if list.starts_with('[') => {
            (RawMembers::default(), serde_json::from_str(list).unwrap_or_default())
        }
        object => (RawMembers::new(object), Vec::new()),
    };
    let flattened_members = unknown_members.without(wire::Transaction::UNKNOWN_MEMBERS);
    wire::Transaction {
        message_id: key.message.to_string(),
        user_id: key.account.user.to_string(),
        account_id: key.account.account.to_string(),
        r#type: kind.code().into(),
        amount: amount.to_string(),
        currency: amount.currency().to_string(),
        status: status.code().into(),
        reference: details.reference().map(str::to_owned),
        metadata: details.metadata().clone(),
        accepted_at: accepted_at.to_string(),
        order_number: None,
        sequence: None,
        balance_after: None,
        posted_at: None,
        reason: None,
        rejected_at: None,
        partner_id: None,
        unknown_members,
        flattened_members,
        unknown_elements,
    }
}

/// Converts a stored transaction for operators, with its events and how it was posted.
pub fn found_transaction(stored: StoredTransaction) -> wire::FoundTransaction {
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
    let event = |(event, at): (_, Timestamp)| wire::TransactionEvent { event, at: at.to_string() };
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
    wire::FoundTransaction {
        way,
        request_id: submission.origin.request_id().map(str::to_owned),
        batch_id: batch_line.map(|line| line.batch.to_string()),
        batch_line: batch_line.map(|line| line.line),
        events: times.into_iter().flatten().map(event).collect(),
        is_dead_letter: dead_letter && outcome.is_none(),
        enqueued_again: repairs,
        transaction: transaction_of_partner(submission, outcome),
    }
}
