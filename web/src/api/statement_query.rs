//! Query parameters of a statement: order and filters.

use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::journal::Entry;
use postonce_shared::domain::money::{Amount, check_decimal};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::domain::transaction::{Outcome, TransactionStatus};
use postonce_shared::ports::ledger::StoredTransaction;
use rust_decimal::Decimal;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::arguments::QueryTexts;
use crate::query::Violations;

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

impl Order {
    fn parse(text: Option<String>, status: TransactionStatus, violations: &mut Violations) -> Option<Self> {
        let rule = match status {
            TransactionStatus::Posted => "must be oldest_first or newest_first for posted transactions",
            TransactionStatus::Accepted => "must be oldest_first for accepted transactions",
            TransactionStatus::Rejected => "must be oldest_first or by_decision for rejected transactions",
        };
        violations.parse("order", text, rule, |text| match (text, status) {
            ("oldest_first", _) => Some(Self::OldestFirst),
            ("newest_first", TransactionStatus::Posted) => Some(Self::NewestFirst),
            ("by_decision", TransactionStatus::Rejected) => Some(Self::ByDecision),
            _ => None,
        })
    }
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

/// Order and filters of a statement.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatementParams {
    /// `posted` (the statement), `accepted` or `rejected`.
    #[param(default = "posted", pattern = "^(posted|accepted|rejected)$")]
    pub status: Option<String>,
    /// `oldest_first`, which lists accepted and rejected transactions by id; for posted ones also `newest_first`; for
    /// rejected ones also `by_decision`, which leaves out those that were decided before the account was opened, or before
    /// its journal contained every decision.
    #[param(default = "oldest_first", pattern = "^(oldest_first|newest_first|by_decision)$")]
    pub order: Option<String>,
    /// Only transactions that were posted, accepted or rejected, according to `status`, at this time or later.
    #[param(format = "date-time", example = "2026-11-01T00:00:00Z")]
    pub from: Option<String>,
    /// The same, before this time.
    #[param(format = "date-time", example = "2026-12-01T00:00:00Z")]
    pub until: Option<String>,
    /// `deposit` or `withdrawal`.
    #[param(pattern = "^(deposit|withdrawal)$")]
    pub r#type: Option<String>,
    /// The smallest amount.
    #[param(pattern = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?$", example = "12.50")]
    pub amount_min: Option<String>,
    /// The largest amount.
    #[param(pattern = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,4})?$", example = "12.50")]
    pub amount_max: Option<String>,
    /// Only transactions with exactly this reference.
    pub reference: Option<String>,
}

/// The transactions of a statement that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementQuery {
    /// The status of the transactions.
    pub status: TransactionStatus,
    /// The order of the transactions.
    pub order: Order,
    /// Selects the transactions.
    pub filter: StatementFilter,
}

impl QueryTexts for StatementParams {
    type Value = StatementQuery;

    fn parse(self, violations: &mut Violations) -> Option<StatementQuery> {
        let Self { status, order, from, until, r#type, amount_min, amount_max, reference } = self;
        let statuses = "must be posted, accepted or rejected";
        let status = match status {
            None => Some(TransactionStatus::Posted),
            given => violations.parse("status", given, statuses, TransactionStatus::from_code),
        };
        // Which orders are allowed depends on the status.
        let order = status.and_then(|status| Order::parse(order, status, violations)).unwrap_or_default();
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
        Some(StatementQuery { status: status?, order, filter })
    }
}

impl StatementQuery {
    /// Returns a text that identifies the order and the filter in cursors; empty for the default.
    pub fn name(&self) -> String {
        let Self { status: _, order, filter } = self;
        let is_default = *order == Order::default() && *filter == StatementFilter::default();
        if is_default { String::new() } else { format!(", {order:?}, {filter:?}") }
    }
}

/// Parses an amount in any currency: at most 18 digits before the decimal point, and 4 after it.
fn decimal(text: &str) -> Option<Decimal> {
    check_decimal(text).ok()?;
    let (major, minor) = text.split_once('.').unwrap_or((text, ""));
    text.parse().ok().filter(|_| major.len() <= 18 && minor.len() <= 4)
}
