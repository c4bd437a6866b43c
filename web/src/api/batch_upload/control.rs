//! Control totals: what the client counted, compared with what arrived.

use std::collections::BTreeMap;

use actix_web::http::header::HeaderMap;
use postonce_schemas::json::Violation;
use postonce_shared::domain::batch::Tally;
use postonce_shared::domain::money::Currency;

use crate::error::{ApiError, Code};

/// Header with the number of items.
pub const BATCH_COUNT: &str = "batch-count";
/// Header with the sums of the amounts of deposits and withdrawals together, by currency: `EUR=1250.00, USD=7.00`.
pub const BATCH_SUMS: &str = "batch-sums";

/// The totals that a client expects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlTotals {
    count: Option<u64>,
    /// In minor units.
    sums: Option<BTreeMap<&'static str, (Currency, u128)>>,
}

impl ControlTotals {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`ApiError`] with status 422 that names the header.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
        let mut violations = Vec::new();
        let mut refuse = |field: &str, message: &str| {
            violations.push(Violation { field: field.to_owned(), message: message.to_owned() });
        };
        let count = text(BATCH_COUNT).and_then(|text| {
            let count = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
            if count.is_none() {
                refuse("Batch-Count", "must be the number of items");
            }
            count
        });
        let sums = text(BATCH_SUMS).and_then(|text| {
            let sums = parse_sums(text);
            if sums.is_none() {
                refuse("Batch-Sums", "must have one sum for each currency, such as EUR=1250.00, USD=7.00");
            }
            sums
        });
        if violations.is_empty() {
            Ok(Self { count, sums })
        } else {
            Err(ApiError::violations(Code::ValidationFailed, violations))
        }
    }

    /// Compares the totals with what arrived: the number of all items, and the sums of those that are valid in form.
    pub fn violations(&self, count: u64, valid: &Tally) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut refuse = |field: &str, message: String| {
            violations.push(Violation { field: field.to_owned(), message });
        };
        if let Some(expected) = self.count.filter(|expected| *expected != count) {
            refuse("Batch-Count", format!("is {expected}, but the document has {count} items"));
        }
        let Some(sums) = &self.sums else { return violations };
        for (code, (currency, expected)) in sums {
            let sum = valid.sum_of(*currency);
            if sum != *expected {
                let (expected, sum) = (decimal(*currency, *expected), decimal(*currency, sum));
                refuse("Batch-Sums", format!("has {expected} {code}, but the items have {sum} {code}"));
            }
        }
        let codes = valid.sums.keys().map(|flow| flow.currency);
        for code in codes.filter(|code| !sums.contains_key(code)).collect::<std::collections::BTreeSet<_>>() {
            refuse("Batch-Sums", format!("has no sum for {code}, but the document has items in it"));
        }
        violations
    }
}

fn parse_sums(text: &str) -> Option<BTreeMap<&'static str, (Currency, u128)>> {
    let mut sums = BTreeMap::new();
    for sum in text.split(',') {
        let (code, amount) = sum.trim().split_once('=')?;
        let currency = Currency::parse(code.trim()).ok()?;
        let minor_units = minor_units(currency, amount.trim())?;
        if sums.insert(currency.code(), (currency, minor_units)).is_some() {
            return None;
        }
    }
    Some(sums)
}

/// Parses a sum, which can be larger than an amount.
fn minor_units(currency: Currency, text: &str) -> Option<u128> {
    let (major, minor) = text.split_once('.').unwrap_or((text, ""));
    let decimals = usize::from(currency.decimals());
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if major.is_empty() || minor.len() > decimals || !is_number(major) || !is_number(minor) {
        return None;
    }
    if text.ends_with('.') {
        return None;
    }
    format!("{major}{minor:0<decimals$}").parse().ok()
}

/// Writes a sum in minor units as a decimal number.
pub fn decimal(currency: Currency, minor_units: u128) -> String {
    let decimals = usize::from(currency.decimals());
    let digits = format!("{minor_units:0>width$}", width = decimals.saturating_add(1));
    match digits.split_at_checked(digits.len().saturating_sub(decimals)) {
        Some((major, minor)) if decimals > 0 => format!("{major}.{minor}"),
        Some(_) | None => digits,
    }
}
