//! Money in minor units. This service supports currencies with two decimals only.

use std::fmt;

/// Minor units in one major unit.
const SCALE: u64 = 100;
/// Most digits before the point: the limit of ISO 20022 with two decimals.
const MAJOR_DIGITS_MAX: usize = 16;

/// Parses an amount such as `12.50`: greater than zero, at most two decimals, no sign. The error names the
/// violated rule.
pub fn parse_amount(text: &str) -> Result<i64, &'static str> {
    let (major, minor) = match text.split_once('.') {
        Some((_, "")) => return Err("must have digits on both sides of the point"),
        Some(parts) => parts,
        None => (text, ""),
    };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if major.is_empty() || !is_number(major) || !is_number(minor) {
        return Err("must be a decimal number such as 12.50");
    }
    if major.len() > 1 && major.starts_with('0') {
        return Err("must not have leading zeros");
    }
    if major.len() > MAJOR_DIGITS_MAX {
        return Err("is too large");
    }
    if minor.len() > 2 {
        return Err("must have at most 2 decimals");
    }
    let minor_units: i64 = format!("{major}{minor:0<2}").parse().map_err(|_| "is too large")?;
    if minor_units == 0 { Err("must be greater than zero") } else { Ok(minor_units) }
}

/// Displays minor units as a decimal number.
#[derive(Debug, Clone, Copy)]
pub struct Decimal(pub i64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:02}", magnitude.div_euclid(SCALE), magnitude.rem_euclid(SCALE))
    }
}

#[cfg(test)]
mod tests {
    use super::{Decimal, parse_amount};

    #[test]
    fn amounts_are_parsed_exactly_or_refused() {
        for (text, minor_units) in [("1", 100), ("1.5", 150), ("0.01", 1), ("1234.56", 123_456)] {
            assert_eq!(parse_amount(text), Ok(minor_units), "{text}");
        }
        for text in
            ["", ".", ".5", "5.", "0", "0.00", "01", "-1", "+1", "1e3", "1,00", "1.234", "1.2.3", "１"]
        {
            assert!(parse_amount(text).is_err(), "{text}");
        }
        assert!(parse_amount("99999999999999999").is_err());
    }

    #[test]
    fn decimals_are_shown_with_both_digits() {
        for (minor_units, text) in [(0, "0.00"), (5, "0.05"), (123_456, "1234.56"), (-7, "-0.07")] {
            assert_eq!(Decimal(minor_units).to_string(), text);
        }
    }
}
