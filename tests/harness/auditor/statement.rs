//! A transaction as the bank reports it: a line of a statement, or a rejected transaction.

use postonce_shared::testing::prelude::*;
use serde_json::Value;

use super::cents;

/// A line of a statement.
#[derive(Debug)]
pub(super) struct StatementLine {
    pub(super) id: MessageId,
    pub(super) kind: TransactionKind,
    pub(super) cents: i64,
    pub(super) sequence: u64,
    pub(super) balance_after: i64,
    pub(super) order_number: OrderNumber,
    pub(super) posted_at_ms: i64,
    pub(super) body: Value,
}

impl StatementLine {
    pub(super) fn read(body: &Value) -> Self {
        assert!(
            text(body, "status") == "posted",
            "a statement contains only posted transactions, not {body}"
        );
        let sequence = body.get("sequence").and_then(Value::as_u64);
        let number = text(body, "order_number");
        Self {
            id: id(body),
            kind: kind(body),
            cents: cents(text(body, "amount")),
            sequence: sequence.unwrap_or_else(|| panic!("no sequence in {body}")),
            balance_after: cents(text(body, "balance_after")),
            order_number: OrderNumber::parse(number).unwrap_or_else(|error| panic!("{number:?} {error}")),
            posted_at_ms: milliseconds(body, "posted_at"),
            body: body.clone(),
        }
    }

    pub(super) fn apply_to(&self, balance: i64) -> i64 {
        let after = match self.kind {
            TransactionKind::Deposit => balance.checked_add(self.cents),
            TransactionKind::Withdrawal => balance.checked_sub(self.cents),
        };
        after.expect("small sums")
    }

    /// Returns whether the line has the same content as an entry of the journal.
    pub(super) fn is(&self, entry: &Entry) -> bool {
        self.id == entry.message
            && self.kind == entry.kind
            && self.cents == entry.amount.minor_units()
            && self.sequence == entry.sequence
            && self.balance_after == entry.balance_after.minor_units()
            && self.order_number == entry.order_number
            && self.posted_at_ms == entry.posted_at.unix_ms()
    }
}

/// A rejected transaction.
#[derive(Debug)]
pub(super) struct RejectedTransaction {
    pub(super) id: MessageId,
    pub(super) kind: TransactionKind,
    pub(super) cents: i64,
    pub(super) reason: String,
    pub(super) rejected_at_ms: i64,
    pub(super) body: Value,
}

impl RejectedTransaction {
    pub(super) fn read(body: &Value) -> Self {
        assert!(
            text(body, "status") == "rejected",
            "a listing of rejected transactions contains only these, not {body}"
        );
        Self {
            id: id(body),
            kind: kind(body),
            cents: cents(text(body, "amount")),
            reason: text(body, "reason").to_owned(),
            rejected_at_ms: milliseconds(body, "rejected_at"),
            body: body.clone(),
        }
    }
}

fn text<'a>(body: &'a Value, member: &str) -> &'a str {
    let found = body.get(member).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text {member} in {body}"))
}

fn id(body: &Value) -> MessageId {
    text(body, "message_id").parse().unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn kind(body: &Value) -> TransactionKind {
    TransactionKind::from_code(text(body, "type")).unwrap_or_else(|| panic!("no known type in {body}"))
}

fn milliseconds(body: &Value, member: &str) -> i64 {
    let found = Timestamp::parse(text(body, member));
    found.unwrap_or_else(|| panic!("{member} is not a time in {body}")).unix_ms()
}
