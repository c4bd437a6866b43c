//! Which transactions a statement lists, and in which order: its query parameters.

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

/// The order of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Posted transactions by sequence, ascending; others by id.
    #[default]
    OldestFirst,
    /// Posted transactions by sequence, descending.
    NewestFirst,
    /// Rejected transactions in the order of their decisions.
    ByDecision,
}

/// The transactions that a statement lists. The default are all.
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
    /// Returns whether the statement lists a posted transaction.
    pub fn accepts_entry(&self, entry: &Entry) -> bool {
        self.accepts(entry.posted_at, (entry.kind, entry.amount, entry.details.reference()))
    }

    /// Returns whether the statement lists a transaction. Its time is that of its status.
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
    /// The order.
    pub order: Order,
    /// The transactions.
    pub filter: StatementFilter,
}

impl StatementQuery {
    /// Parses the query of a statement with transactions in this status.
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

    /// Returns a text that is different for every order and filter, and empty for the default.
    pub fn name(&self) -> String {
        if *self == Self::default() { String::new() } else { format!(", {self:?}") }
    }
}

/// Parses an amount of any currency: up to 18 digits, and up to 4 decimals.
fn decimal(text: &str) -> Option<Decimal> {
    check_decimal(text).ok()?;
    let (major, minor) = text.split_once('.').unwrap_or((text, ""));
    text.parse().ok().filter(|_| major.len() <= 18 && minor.len() <= 4)
}
