//! Query parameters of a statement: order and filters.

use actix_web::HttpRequest;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::money::{Amount, check_decimal};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::{Outcome, TransactionStatus};
use postonce_shared::ports::ledger::StoredTransaction;
use rust_decimal::Decimal;

use crate::api::parameters::StatementParams;
use crate::error::ApiError;
use crate::query;

/// Order of the transactions in a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Posted transactions by ascending sequence; others by id.
    #[default]
    OldestFirst,
    /// Posted transactions by descending sequence.
    NewestFirst,
    /// Rejected transactions in the order of their decisions.
    ByDecision,
}

/// Selects the transactions of a statement. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatementFilter {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    kind: Option<TransactionKind>,
    amount_min: Option<Decimal>,
    amount_max: Option<Decimal>,
    reference: Option<String>,
}

impl StatementFilter {
    /// Returns whether a posted transaction is selected.
    pub fn accepts_entry(&self, entry: &Entry) -> bool {
        self.accepts(entry.posted_at, (entry.kind, entry.amount, entry.details.reference()))
    }

    /// Returns whether a transaction is selected. Its time is the time of its current status.
    pub fn accepts_transaction(&self, stored: &StoredTransaction) -> bool {
        let at = match &stored.outcome {
            None => stored.submission.accepted_at,
            Some(Outcome::Posted { posted_at, .. }) => *posted_at,
            Some(Outcome::Rejected { rejected_at, .. }) => *rejected_at,
        };
        let instruction = &stored.submission.instruction;
        self.accepts(at, (instruction.kind, instruction.amount, instruction.details.reference()))
    }

    fn accepts(
        &self,
        at: Timestamp,
        (kind, amount, reference): (TransactionKind, Amount, Option<&str>),
    ) -> bool {
        let amount = Decimal::new(amount.minor_units(), amount.currency().decimals().into());
        self.from.is_none_or(|from| from <= at)
            && self.until.is_none_or(|until| at < until)
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.amount_min.is_none_or(|min| min <= amount)
            && self.amount_max.is_none_or(|max| amount <= max)
            && self.reference.as_deref().is_none_or(|wanted| Some(wanted) == reference)
    }
}

/// Query parameters of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatementQuery {
    /// The order of the transactions.
    pub order: Order,
    /// Selects the transactions.
    pub filter: StatementFilter,
}

impl StatementQuery {
    /// Parses the query of a statement of transactions in this status.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 and every violation.
    pub fn of(request: &HttpRequest, status: TransactionStatus) -> Result<Self, ApiError> {
        let StatementParams { status: _, order, from, until, r#type, amount_min, amount_max, reference } =
            query::texts(request)?;
        let mut violations = query::Violations::default();
        let orders = match status {
            TransactionStatus::Posted => "must be oldest_first or newest_first for posted transactions",
            TransactionStatus::Accepted => "must be oldest_first for accepted transactions",
            TransactionStatus::Rejected => "must be oldest_first or by_decision for rejected transactions",
        };
        let order = violations.parse("order", order, orders, |text| match (text, status) {
            ("oldest_first", _) => Some(Order::OldestFirst),
            ("newest_first", TransactionStatus::Posted) => Some(Order::NewestFirst),
            ("by_decision", TransactionStatus::Rejected) => Some(Order::ByDecision),
            _ => None,
        });
        let order = order.unwrap_or_default();
        let time = "must be a time of RFC 3339, such as 2026-11-23T06:00:00Z";
        let kinds = "must be deposit or withdrawal";
        let amount = "must be an amount, such as 12.50";
        let filter = StatementFilter {
            from: violations.parse("from", from, time, Timestamp::parse),
            until: violations.parse("until", until, time, Timestamp::parse),
            kind: violations.parse("type", r#type, kinds, TransactionKind::from_code),
            amount_min: violations.parse("amount_min", amount_min, amount, decimal),
            amount_max: violations.parse("amount_max", amount_max, amount, decimal),
            reference,
        };
        violations.finish(Self { order, filter })
    }

    /// Returns a text that identifies the order and the filter in cursors; empty for the default.
    pub fn name(&self) -> String {
        if *self == Self::default() { String::new() } else { format!(", {self:?}") }
    }
}

/// Parses an amount in any currency: at most 18 digits before the decimal point, and 4 after it.
fn decimal(text: &str) -> Option<Decimal> {
    check_decimal(text).ok()?;
    let (major, minor) = text.split_once('.').unwrap_or((text, ""));
    text.parse().ok().filter(|_| major.len() <= 18 && minor.len() <= 4)
}
