//! Allowed forms of amounts in each currency, as regular expressions for JSON Schema.

use std::collections::BTreeMap;

use iso_currency::{Currency, IntoEnumIterator as _};
use serde_json::{Value, json};

/// Maximum number of digits of an amount or a limit, including decimals.
const DIGITS_MAX: usize = 18;

/// Returns the sorted codes of the supported currencies by number of decimals (ISO 4217). As in the domain, currencies without
/// a defined number of decimals are not supported.
pub fn codes_by_decimals() -> BTreeMap<usize, Vec<&'static str>> {
    let mut codes: BTreeMap<usize, Vec<&'static str>> = BTreeMap::new();
    for currency in Currency::iter() {
        if let Some(decimals) = currency.exponent() {
            codes.entry(decimals.into()).or_default().push(currency.code());
        }
    }
    codes.values_mut().for_each(|codes| codes.sort_unstable());
    codes
}

/// Returns the rule for a member that contains an amount: one pattern for all currencies with the same number of decimals.
pub(super) fn by_currency(member: &str, pattern: impl Fn(usize) -> String) -> Value {
    let groups = codes_by_decimals().into_iter().map(|(decimals, codes)| {
        json!({"properties": {"currency": {"enum": codes}, member: {"pattern": pattern(decimals)}}})
    });
    json!({"oneOf": groups.collect::<Vec<_>>()})
}

/// Returns the pattern of a number greater than zero with at most `decimals` decimals.
pub(super) fn amount(decimals: usize) -> String {
    let major_max = DIGITS_MAX.saturating_sub(decimals).saturating_sub(1);
    let whole = format!("[1-9][0-9]{{0,{major_max}}}");
    if decimals == 0 {
        return format!("^{whole}$");
    }
    // A number below one needs a digit other than zero among its decimals.
    let fraction = |zeros: usize| {
        let rest = decimals.saturating_sub(zeros).saturating_sub(1);
        format!("{}[1-9][0-9]{{0,{rest}}}", "0".repeat(zeros))
    };
    let fractions: Vec<String> = (0..decimals).map(fraction).collect();
    format!("^({whole}(\\.[0-9]{{1,{decimals}}})?|0\\.({}))$", fractions.join("|"))
}

/// Returns the pattern of a number, zero included, with at most `decimals` decimals.
pub(super) fn limit(decimals: usize) -> String {
    let major_max = DIGITS_MAX.saturating_sub(decimals).saturating_sub(1);
    let fraction = if decimals == 0 { String::new() } else { format!("(\\.[0-9]{{1,{decimals}}})?") };
    format!("^(0|[1-9][0-9]{{0,{major_max}}}){fraction}$")
}

/// Returns the rule for an object of limits by currency.
pub(super) fn limits_by_currency() -> Value {
    let groups = codes_by_decimals().into_iter().map(|(decimals, codes)| {
        (format!("^({})$", codes.join("|")), json!({"type": "string", "pattern": limit(decimals)}))
    });
    json!({"patternProperties": groups.collect::<BTreeMap<_, _>>(), "additionalProperties": false})
}

/// Returns the pattern of a limit in any currency.
pub(super) fn limit_of_any_currency() -> String {
    codes_by_decimals().into_keys().map(limit).collect::<Vec<_>>().join("|")
}
