//! Control totals: what the client counted, compared with what arrived. They can be in headers, in the first record of the
//! document, or in both. Each is compared with the items, so totals that contradict each other refuse the batch as well.

use std::collections::{BTreeMap, BTreeSet};

use postonce_schemas::json::{self as wire, Violation};
use postonce_shared::domain::batch::Tally;
use postonce_shared::domain::money::{Currency, check_decimal};
use postonce_shared::text::digits;

use crate::error::{ApiError, Code};
use crate::formats::members::Members;

/// In minor units.
type Sums = BTreeMap<&'static str, (Currency, u128)>;

/// Where totals are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Headers,
    Record,
}

impl Place {
    /// Returns the names of the count and of the sums.
    const fn fields(self) -> (&'static str, &'static str) {
        match self {
            Self::Headers => ("Batch-Count", "Batch-Sums"),
            Self::Record => ("control.count", "control.sums"),
        }
    }
}

/// The totals that a client expects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControlTotals {
    place: Place,
    count: Option<u64>,
    sums: Option<Sums>,
}

impl ControlTotals {
    /// Parses the values of the headers `Batch-Count` and `Batch-Sums`. The sums are those of the amounts of deposits and
    /// withdrawals together, by currency: `EUR=1250.00, USD=7.00`.
    ///
    /// # Errors
    /// [`ApiError`] with status 422 that names the header.
    pub fn parse(count: Option<&str>, sums: Option<&str>) -> Result<Self, ApiError> {
        let place = Place::Headers;
        let (count_field, sums_field) = place.fields();
        let mut violations = Vec::new();
        let mut refuse = |field: &str, message: &str| {
            violations.push(Violation { field: field.to_owned(), message: message.to_owned() });
        };
        let count = count.and_then(|text| {
            let count = digits(text);
            if count.is_none() {
                refuse(count_field, "must be the number of items");
            }
            count
        });
        let sums = sums.and_then(|text| {
            let sums = parse_sums(text);
            if sums.is_none() {
                refuse(sums_field, "must have one sum for each currency, such as EUR=1250.00, USD=7.00");
            }
            sums
        });
        if violations.is_empty() {
            Ok(Self { place, count, sums })
        } else {
            Err(ApiError::violations(Code::ValidationFailed, violations))
        }
    }

    /// Reads the members of a record of control totals.
    ///
    /// # Errors
    /// [`ApiError`] with status 422 that names the member.
    pub fn of_record(mut members: Members) -> Result<Self, ApiError> {
        let place = Place::Record;
        let (count_field, sums_field) = place.fields();
        let wire::BatchControl { control: wire::ControlTotals { count, sums } } = members.read()?;
        members.refuse_unknown();
        // What the reader returns for any larger number.
        if count == Some(u32::MAX) {
            members.refuse(count_field, "is larger than the number of items of any batch");
        }
        let sums = sums.map(|sums| {
            let mut parsed = Sums::new();
            for (code, sum) in &sums {
                let Ok(currency) = Currency::parse(code) else {
                    members.refuse(sums_field, format!("has {code:?}, which is not a currency code"));
                    continue;
                };
                match minor_units(currency, sum) {
                    Some(minor_units) => drop(parsed.insert(currency.code(), (currency, minor_units))),
                    None => {
                        let decimals = currency.decimals();
                        let rule = format!(
                            "must be a decimal number with at most {decimals} decimals, without leading zeros"
                        );
                        members.refuse(&format!("{sums_field}.{code}"), rule);
                    }
                }
            }
            parsed
        });
        members.finish(Some(Self { place, count: count.map(u64::from), sums }))
    }

    /// Compares the totals with what arrived: the number of all items, and the sums of those that are valid in form.
    pub fn violations(&self, count: u64, valid: &Tally) -> Vec<Violation> {
        let (count_field, sums_field) = self.place.fields();
        let mut violations = Vec::new();
        let mut refuse = |field: &str, message: String| {
            violations.push(Violation { field: field.to_owned(), message });
        };
        if let Some(expected) = self.count.filter(|expected| *expected != count) {
            refuse(count_field, format!("is {expected}, but the document has {count} items"));
        }
        let Some(sums) = &self.sums else { return violations };
        for (code, (currency, expected)) in sums {
            let sum = valid.sum_of(*currency);
            if sum != *expected {
                let (expected, sum) = (decimal(*currency, *expected), decimal(*currency, sum));
                refuse(sums_field, format!("has {expected} {code}, but the items have {sum} {code}"));
            }
        }
        let codes = valid.sums.keys().map(|flow| flow.currency);
        for code in codes.filter(|code| !sums.contains_key(code)).collect::<BTreeSet<_>>() {
            refuse(sums_field, format!("has no sum for {code}, but the document has items in it"));
        }
        violations
    }
}

fn parse_sums(text: &str) -> Option<Sums> {
    let mut sums = Sums::new();
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
    check_decimal(text).ok()?;
    let (major, minor) = text.split_once('.').unwrap_or((text, ""));
    let decimals = usize::from(currency.decimals());
    let digits = (minor.len() <= decimals).then(|| format!("{major}{minor:0<decimals$}"))?;
    digits.parse().ok()
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
